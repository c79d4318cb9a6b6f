"""The report of every benchmark: goals, a table for people, an exit code."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kit.results import environment, save
from rich.console import Console
from rich.table import Table

from benchmarks.goals import Goal
from benchmarks.yardsticks import yardsticks

SHORT = 3
"""Exit code where the result is right and a figure misses its goal; a result that is wrong raises, and ends with 1."""


def median(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Median with its spread: a wide one says that the machine was noisy."""
    return {"median": round(statistics.median(values), digits), "min": round(min(values), digits),
            "max": round(max(values), digits), "runs": len(values)}  # fmt: skip


def conclude(name: str, result: Mapping[str, Any], goals: Sequence[Goal], *, keep: bool, quick: bool = False,
             measure: Callable[[], dict[str, float]] = yardsticks) -> int:  # fmt: skip
    """Save the result with its goals, print the table, and return the exit code: 0, or SHORT when a goal is not met. A ``quick``
    run goes without the yardsticks: its figures are compared with none."""
    yard = {} if quick else measure()
    save(name, {"yardsticks": yard, **result, "goals": [goal.plain() for goal in goals]}, keep=keep)
    print_table(name, {**environment(), **yard}, goals, result)
    return 0 if all(goal.met for goal in goals) else SHORT


def print_table(name: str, about: Mapping[str, Any], goals: Sequence[Goal], result: Mapping[str, Any]) -> None:
    """For people, to stderr: JSON alone goes to stdout."""
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 120)
    console.print(f"[bold]{name}[/bold]  " + ", ".join(f"{key} {value}" for key, value in about.items()), highlight=False)
    table = Table("figure", "median", "min", "max", "runs")
    for row in figures(result):
        table.add_row(*row)
    console.print(table)
    verdicts = Table("goal", "figure", "wanted", "")
    for goal in goals:
        wanted = f"{'≥' if goal.least else '≤'} {readable(goal.limit)} {goal.unit}"
        verdicts.add_row(goal.what, f"{readable(goal.value)} {goal.unit}", wanted, "met" if goal.met else "[bold]short[/bold]")
    if goals:
        console.print(verdicts)


def readable(value: float) -> str:
    """Return four digits, and of what is larger each before the point: 38,380 and never 3.838e+04."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def figures(result: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str, str, str]]:
    """The rows of a nested result: medians with their spread, plain numbers alone."""
    for key, value in result.items():
        name = f"{path} {key}".strip().replace("_", " ")
        if isinstance(value, Mapping) and {"median", "min", "max"} <= value.keys():
            yield name, readable(value["median"]), readable(value["min"]), readable(value["max"]), str(value.get("runs", ""))
        elif isinstance(value, Mapping):
            yield from figures(value, name)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, f"{value:g}", "", "", ""
