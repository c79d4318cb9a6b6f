"""``pumice bench NAME``: run the project's benchmarks, which live beside the sources.

A benchmark is a module below benchmarks/ with a function ``main``; the first line of its text is its title, its file name without
``bsN_`` its name, and a constant ``MINUTES`` says how long it takes. Those that know ``--save`` are part of ``all``; the others
are run by name.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pumice.model.refusal import BadInput

app = typer.Typer(add_completion=False)
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One module. ``minutes`` is 0 when it does not say; ``flags`` are those of ours that it knows."""

    name: str
    module: str
    title: str
    minutes: float
    flags: frozenset[str]

    @property
    def in_all(self) -> bool:
        return "--save" in self.flags


def find_benchmarks(root: Path) -> dict[str, Benchmark]:
    """By name, those with a number first, in its order. Modules are read and not imported."""
    found = [one for path in sorted((root / "benchmarks").rglob("*.py")) if (one := _benchmark(path, root)) is not None]
    found.sort(key=lambda one: (".bs" not in one.module, "." in one.module.removeprefix("benchmarks."), one.module))
    return {one.name: one for one in found}


def _benchmark(path: Path, root: Path) -> Benchmark | None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    if not any(isinstance(part, ast.FunctionDef) and part.name == "main" for part in tree.body):
        return None
    parts = path.relative_to(root).with_suffix("").parts
    name = "-".join(re.sub(r"^bs\d+_", "", part) for part in parts[1:]).replace("_", "-")
    title = (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")
    stated = re.search(r"^MINUTES = ([0-9.]+)$", source, re.MULTILINE)
    # Flags that a shared module defines are named in the usage line of the text.
    flags = frozenset(flag for flag in ("--quick", "--save") if flag in source)
    return Benchmark(name, ".".join(parts), title, float(stated[1]) if stated else 0.0, flags)


@app.command(
    epilog="Example: pumice bench decide --quick",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def main(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of one (see --list), or all.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="Say which there are.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and sizes.")] = False,
    save: Annotated[bool, typer.Option("--save", help="Keep the results in benchmarks/results.")] = False,
) -> None:
    """Run benchmarks; each checks its own result and prints JSON and a table. Further flags go to the benchmark named.

    With KUBEBUILDER_ASSETS those over an API server use the real kube-apiserver and etcd. All are run even when one falls short;
    then the exit code is 1.
    """
    if not (ROOT / "benchmarks" / "report.py").exists():
        raise BadInput("the benchmarks are part of the source tree, not of the installed package: run this in a checkout")
    found = find_benchmarks(ROOT)
    if list_ or not name:
        for one in found.values():
            minutes = f"{one.minutes:g} min" if one.minutes else ""
            typer.echo(f"{one.name:18} {minutes:>7}  {one.title}{'' if one.in_all else '  (by name only)'}")
        return
    if name != "all" and name not in found:
        near = difflib.get_close_matches(name, found, 1)
        raise BadInput(f"there is no benchmark {name!r}; " + (f"did you mean {near[0]}?" if near else "see pumice bench --list"))
    if name == "all" and context.args:
        raise BadInput(f"{context.args[0]}: flags of a single benchmark need its name in place of all")
    chosen = [one for one in found.values() if one.in_all] if name == "all" else [found[name]]
    flags = [flag for flag, given in (("--quick", quick), ("--save", save)) if given]
    failed = [one.name for number, one in enumerate(chosen, 1) if not _run(one, f"{number}/{len(chosen)}", flags, context.args)]
    if failed:
        typer.echo(f"fell short or failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _run(one: Benchmark, place: str, flags: Sequence[str], further: Sequence[str]) -> bool:
    """Run it, say so before and after on stderr, and return whether it is content with itself."""
    expected = f" (about {one.minutes:g} min)" if one.minutes else ""
    typer.echo(f"# {place} {one.name}: {one.title}{expected}", err=True)
    began = time.monotonic()
    words = [sys.executable, "-m", one.module, *(flag for flag in flags if flag in one.flags), *further]
    code = subprocess.run(words, cwd=ROOT, check=False).returncode
    verdict = "good" if code == 0 else f"exit code {code}"
    typer.echo(f"# {place} {one.name}: {verdict} after {time.monotonic() - began:.0f} s", err=True)
    return code == 0
