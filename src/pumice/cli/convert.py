"""``pumice convert``: manifests and ConfigMaps of HAMi's and Volcano's in our words, and back."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.cli import flags
from pumice.cli.lint import expanded
from pumice.cli.streams import read
from pumice.model.errors import BadInput
from pumice.wire.hami_names import To

if TYPE_CHECKING:
    from pumice.devices.convert import Converted

app = flags.App()


class As(StrEnum):
    YAML = "yaml"
    DIFF = "diff"
    JSON = "json"


class From(StrEnum):
    AUTO = "auto"
    HAMI = "hami"


@app.command(name="convert", epilog="Examples: pumice convert gpu-pod.yaml -o diff;  pumice convert --to claims a.yaml")
def command(
    files: Annotated[list[Path], flags.Argument(help="YAML or JSON files, or - for standard input; folders are searched.")],
    to: Annotated[
        To, flags.Option("--to", help="Whose words: Pumice's are Volcano's and more; claims: shares as ResourceClaimTemplates.")
    ] = To.PUMICE,
    source: Annotated[From, flags.Option("--from", help="hami: nvidia.com/gpu alone is HAMi's, not NVIDIA's own.")] = From.AUTO,
    write: Annotated[bool, flags.Option("--write", help="Write the files; nothing is printed but what was changed.")] = False,
    output: Annotated[As, flags.Option("-o", "--output", help="yaml, diff, or json with all changes.")] = As.YAML,
) -> None:
    """Say of each line what is called otherwise there and why, and print the files with these names. Comments and order stay.
    What has no name on the other side stays as it is, and is told with what comes of that.

    Exit code 0, 1 where something could not be converted, 2 when a file cannot be read or mixes names of both sides."""
    from pumice.devices.convert import convert  # only here: help needs no YAML

    texts = {str(path): _exactly(path) for given in files for path in expanded(given)}
    if write and "-" in texts:
        raise BadInput("--write wants files, not standard input")
    found = convert(texts, to, from_hami=source is From.HAMI)
    if write:
        for one in found:
            if one.text != texts[one.file]:
                Path(one.file).write_text(one.text, "utf-8", newline="")
    elif output is not As.JSON:
        sys.stdout.write(_printed(found, texts, output))
    if output is As.JSON:
        print(json.dumps([asdict(one) for one in found], indent=2))
    else:
        for line in _reported(found):
            print(line, file=sys.stdout if write else sys.stderr)
    if any(one.left for one in found):
        raise SystemExit(1)


def _exactly(path: Path) -> str:
    """A file with its own ends of lines. Raises BadInput."""
    text = read(path)
    return path.read_bytes().decode("utf-8") if str(path) != "-" and "\n" in text else text


def _printed(found: Sequence[Converted], texts: dict[str, str], output: As) -> str:
    if output is As.DIFF:
        lines = (line for one in found for line in difflib.unified_diff(
            texts[one.file].splitlines(True), one.text.splitlines(True), one.file, f"{one.file} (converted)"))  # fmt: skip
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return "---\n".join(one.text if one.text.endswith("\n") or len(found) == 1 else f"{one.text}\n" for one in found)


def _reported(found: Sequence[Converted]) -> Iterator[str]:
    for one in found:
        yield from map(str, (*one.changes, *one.left))
    changes, left = sum(len(one.changes) for one in found), sum(len(one.left) for one in found)
    rest = f", {left} not converted" if left else ""
    yield f"{len(found)} file{'s' if len(found) != 1 else ''}: {changes} change{'s' if changes != 1 else ''}{rest}"
