"""Runs the benchmarks of this checkout, for ``pumice bench``.

A benchmark is a module below benchmarks/ with a function ``main``; the first line of its text is its title, its file name without
``bsN_`` its name, and a constant ``MINUTES`` says how long it takes. Those that know ``--save`` are part of ``all``; the others
are run by name.
"""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pumice.model.errors import BadInput, nearest

ROOT = Path(__file__).parents[1]
SHORT = 3
"""Exit code of a benchmark whose result is right and whose figures miss a goal (benchmarks/report.py)."""
LEAST_LIMIT = 20.0
"""Minutes that each may take at least; those that say how long they take may take four times as long."""
FAREWELL = 30.0
"""Seconds in which a benchmark that is ended takes its servers down."""


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


def run(root: Path, name: str = "", further: Sequence[str] = (), *, list_: bool = False, quick: bool = False, save: bool = False,
        least_limit: float = LEAST_LIMIT) -> None:  # fmt: skip
    """The command in the checkout ``root``. Raises BadInput, and SystemExit where one fell short."""
    found = find_benchmarks(root)
    if list_ or not name:
        for one in found.values():
            minutes = f"{one.minutes:g} min" if one.minutes else ""
            print(f"{one.name:18} {minutes:>7}  {one.title}{'' if one.in_all else '  (by name only)'}")
        return
    if name != "all" and name not in found:
        raise BadInput(f"there is no benchmark {name!r}{nearest(name, found) or '; see pumice bench --list'}")
    if name == "all" and further:
        raise BadInput(f"{further[0]}: flags of a single benchmark need its name in place of all")
    if quick and save:
        raise BadInput("--quick and --save: the figures of a short run would replace those of a whole one; leave one of them out")
    chosen = [one for one in found.values() if one.in_all] if name == "all" else [found[name]]
    flags = [flag for flag, given in (("--quick", quick), ("--save", save)) if given]
    if name == "all" and not quick:
        print(f"# {len(chosen)} benchmarks; those that say so take {sum(one.minutes for one in chosen):.0f} min", file=sys.stderr)
    verdicts: list[Verdict] = []
    for number, one in enumerate(chosen, 1):
        verdicts.append(_run(root, one, f"{number}/{len(chosen)}", flags, further, least_limit))
        if verdicts[-1].words == INTERRUPTED:
            break
    if name == "all":
        _summary(verdicts)
    pardoned = {GOOD, MISSED} if quick else {GOOD}  # a second's rate on a busy machine says little
    failed = [verdict.name for verdict in verdicts if verdict.words not in pardoned]
    if failed:
        print(f"fell short or failed: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)


GOOD, MISSED, INTERRUPTED = "good", "short of a goal", "interrupted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one benchmark."""

    name: str
    words: str
    seconds: float


def _run(root: Path, one: Benchmark, place: str, flags: Sequence[str], further: Sequence[str], least_limit: float) -> Verdict:
    """Run it, and say so before and after on stderr."""
    expected = f" (about {one.minutes:g} min)" if one.minutes and "--quick" not in flags else ""
    print(f"# {place} {one.name}: {one.title}{expected}", file=sys.stderr)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", one.module, *(flag for flag in flags if flag in one.flags), *further], cwd=root
    )
    limit = max(least_limit, 4 * one.minutes)
    try:
        code = process.wait(60 * limit)
        words = {0: GOOD, SHORT: MISSED}.get(code, f"failed, exit code {code}")
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        _end(process)
        words = f"ended after {limit:g} min"
    except KeyboardInterrupt:  # the terminal has told the benchmark as well
        _end(process)
        words = INTERRUPTED
    verdict = Verdict(one.name, words, time.monotonic() - began)
    print(f"# {place} {one.name}: {words} after {verdict.seconds:.0f} s", file=sys.stderr)
    return verdict


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for one that was told to end, and end it."""
    try:
        process.wait(FAREWELL)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def _summary(verdicts: Sequence[Verdict]) -> None:
    table = Table("benchmark", "verdict", "seconds")
    for verdict in verdicts:
        table.add_row(verdict.name, verdict.words, f"{verdict.seconds:.0f}")
    Console(stderr=True, width=None if sys.stderr.isatty() else 100).print(table)
