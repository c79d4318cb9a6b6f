"""A kind's columns and the cells of one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pumice_lab.apiserver.tables.column import Column

Json = dict[str, Any]
Cells = Callable[[Json, float], list[Any]]  # object, Unix seconds now


@dataclass(frozen=True, slots=True)
class Printer:
    columns: tuple[Column, ...]
    cells: Cells


def printer(columns: str, cells: Cells) -> Printer:
    """Columns as text: ``Name Ready Age | IP Node``; behind the bar only with ``-o wide``. ``:i`` marks an integer."""
    found: list[Column] = []
    for priority, part in enumerate(columns.split("|")):
        for word in part.split():
            name, _, mark = word.partition(":")
            kind = "integer" if mark == "i" else "string"
            form = "name" if name == "Name" else ""
            found.append(Column(name.replace("_", " "), kind, "", priority, format=form))
    return Printer(tuple(found), cells)
