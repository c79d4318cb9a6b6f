"""A table's column of a custom kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom kind: JSONPath below the object."""

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""
    format: str = ""
