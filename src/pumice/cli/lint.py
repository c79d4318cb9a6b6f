"""``pumice lint``: check scheduler, device and pod files before they do harm."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.streams import read

app = flags.App()


@app.command(epilog="Example: pumice lint volcano-scheduler.conf device-config.yaml examples/*.yaml")
def lint(
    files: Annotated[list[Path], flags.Argument(help="YAML files, or - for standard input; folders are searched.")],
    output: Annotated[str, flags.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """Say, with line numbers, what would be refused and what would silently do nothing or something else.

    Exit code 0 without findings, 1 with findings, 2 when a file cannot be read.
    """
    from pumice.devices.lint import lint_files

    texts = {str(path): read(path) for given in files for path in expanded(given)}
    findings = lint_files(texts)
    if output == "json":
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding)
        if not findings:
            print(f"{len(texts)} file{'s' if len(texts) > 1 else ''}: nothing to say" if texts else "no YAML or conf file there")
    if findings:
        raise SystemExit(1)


def expanded(path: Path) -> list[Path]:
    """The file itself, or the YAML and conf files below a folder."""
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml", ".conf") and p.is_file())
