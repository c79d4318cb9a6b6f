"""The goals of each benchmark's figures: ``goals.toml``, with the runs that the limits stand on."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

GOALS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure and what it has to be. ``least``: at least that much, else at most."""

    what: str
    value: float
    limit: float
    unit: str = ""
    least: bool = False

    @property
    def met(self) -> bool:
        return bool(self.value >= self.limit if self.least else self.value <= self.limit)  # NumPy has a bool of its own

    def plain(self) -> dict[str, Any]:
        return {"what": self.what, "value": round(self.value, 3), "goal": f"{'>=' if self.least else '<='} {self.limit:g}",
                "unit": self.unit, "met": self.met}  # fmt: skip


def goal_of(benchmark: str, what: str, value: float) -> Goal:
    """One figure beside the row that its words fit. A figure that has no goal is a KeyError."""
    rows = GOALS[benchmark]["goals"]
    fitting = [name for name in rows if name == what or fnmatchcase(what, name)]
    if not fitting:
        raise KeyError(what)
    row = rows[max(fitting, key=len)]
    return Goal(what, value, row.get("least", row.get("most")), row.get("unit", ""), "least" in row)


def goals_of(benchmark: str, values: Mapping[str, float]) -> list[Goal]:
    """The figures that a run has beside what they have to be."""
    return [goal_of(benchmark, what, value) for what, value in values.items()]
