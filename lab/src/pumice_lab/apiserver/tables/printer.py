"""A kind's columns and the cells of one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.wire.kubectl_columns import age
from pumice_lab.apiserver.strategies.base import at

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


def name_of(value: Json) -> str:
    return str(value["metadata"].get("name", ""))


def age_of(value: Json, now: float) -> str:
    return age(value["metadata"], now)


def row(*cells: str | tuple[str, Any] | Callable[[Json], Any]) -> Cells:
    """Return the cells of a row: the name, what stands at each path (a pair: or else that), or is made of the object, and the age
    at ``AGE``."""

    def cell(of: str | tuple[str, Any] | Callable[[Json], Any], value: Json, now: float) -> Any:
        if of is AGE:
            return age_of(value, now)
        return at(value, of, "") if isinstance(of, str) else at(value, *of) if isinstance(of, tuple) else of(value)

    return lambda value, now: [name_of(value), *(cell(of, value, now) for of in cells)]


AGE = "age"
CREATED = row("metadata.creationTimestamp")


# -- A table's column of a custom kind -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom kind: JSONPath below the object."""

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""
    format: str = ""


# -- Small texts of table cells: lists and selectors -----------------------------------------------------------------



def labels_text(labels: Mapping[str, Any] | None) -> str:
    if not labels:
        return "<none>"
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def selector_text(selector: Json | None) -> str:
    """A LabelSelector as kubectl writes it."""
    if not selector:
        return "<none>"
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or []:
        key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values") or []
        inside = ",".join(sorted(values))
        parts.append({"In": f"{key} in ({inside})", "NotIn": f"{key} notin ({inside})", "Exists": str(key)}.get(
            str(operator), f"!{key}"))  # fmt: skip
    return ",".join(parts) or "<none>"


def joined(items: list[str]) -> str:
    return ",".join(items) if items else "<none>"
