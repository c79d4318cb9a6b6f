"""Tables: what kubectl prints, made by the server (Kubernetes "API concepts", "Receiving resources as Tables")."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pumice.ports.clock import Clock
from pumice.wire.kubectl_columns import age, duration_since
from pumice_lab.apiserver.bodies import encode
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.tables.kinds import PRINTERS
from pumice_lab.apiserver.tables.printer import Column, Printer

_STEP = re.compile(
    r"""\.([A-Za-z0-9_\-]+(?:\\\.[A-Za-z0-9_\-/]+)*)   # .field, with escaped dots
      | \[(-?\d+)\]                                     # [0]
      | \[(\*)\]                                        # [*]
      | \[['"]([^'"]+)['"]\]                            # ['field']
      | \[\?\(@\.([A-Za-z0-9_\-.]+)\s*==\s*(?:'([^']*)'|"([^"]*)"|([^)\s]+))\)\]
    """,
    re.VERBOSE,
)
Step = tuple[str, str, str]


@lru_cache(maxsize=512)
def parse(path: str) -> tuple[Step, ...]:
    """The steps of a path. Raises ValueError when it is none of these forms."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if not match:
            raise ValueError(f"{path!r} is not a JSONPath of fields, indexes and filters (at {text[position:]!r})")
        field, index, star, quoted, key, single, double, bare = match.groups()
        if field is not None:
            steps.append(("field", field.replace("\\.", "."), ""))
        elif index is not None:
            steps.append(("index", index, ""))
        elif star:
            steps.append(("all", "", ""))
        elif quoted is not None:
            steps.append(("field", quoted, ""))
        else:
            steps.append(("filter", key, next(v for v in (single, double, bare) if v is not None)))
        position = match.end()
    return tuple(steps)


def find_first(value: Any, path: str) -> Any:
    """The first value at the path, or None."""
    try:
        found = [value]
        for kind, name, wanted in parse(path):
            found = [inner for outer in found for inner in _step(outer, kind, name, wanted)]
    except ValueError:
        return None
    return found[0] if found else None


def _step(value: Any, kind: str, name: str, wanted: str) -> list[Any]:
    if kind == "field":
        return [value[name]] if isinstance(value, dict) and value.get(name) is not None else []
    if not isinstance(value, list):
        return list(value.values()) if kind == "all" and isinstance(value, dict) else []
    if kind == "all":
        return value
    if kind == "index":
        return [value[int(name)]] if -len(value) <= int(name) < len(value) else []
    return [item for item in value if isinstance(item, dict) and str(find_first(item, name)) == wanted]


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableView:
    """Tables of kubectl for one answer. ``include`` says how much of each object comes along: None, Metadata or Object."""

    version: str
    include: str = "Metadata"


class Tables:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def head(self, kind: Kind, metadata: Json, view: TableView, columns: bool = True) -> Json:
        """A Table without its rows."""
        shown = [_definition(c) for c in _printer(kind).columns] if columns else None
        return {"kind": "Table", "apiVersion": f"meta.k8s.io/{view.version}", "metadata": metadata, "columnDefinitions": shown}

    def row(self, kind: Kind, value: Json, view: TableView) -> bytes:
        return encode(_row(_printer(kind).cells(value, self._clock.now()), value, view))

    def single(self, kind: Kind, value: Json, view: TableView, columns: bool = True) -> bytes:
        revision = value.get("metadata", {}).get("resourceVersion", "")
        head = encode(self.head(kind, {"resourceVersion": revision}, view, columns))
        return head[:-1] + b',"rows":[' + self.row(kind, value, view) + b"]}"

    def bookmark(self, metadata: Json, view: TableView) -> bytes:
        """A bookmark inside a watch of Tables: one row whose object carries nothing but the revision."""
        value = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{view.version}", "metadata": metadata}
        return encode({"kind": "Table", "apiVersion": f"meta.k8s.io/{view.version}",
                       "metadata": {"resourceVersion": metadata["resourceVersion"]},
                       "columnDefinitions": None, "rows": [{"cells": [], "object": value}]})  # fmt: skip


def _definition(column: Column) -> Json:
    return {"name": column.name, "type": column.type, "format": column.format or ("name" if column.name == "Name" else ""),
            "description": column.description, "priority": column.priority}  # fmt: skip


def _row(cells: list[Any], value: Json, view: TableView) -> Json:
    row: Json = {"cells": cells}
    if view.include == "Object":
        row["object"] = value
    elif view.include != "None":
        row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{view.version}",
                         "metadata": value.get("metadata", {})}  # fmt: skip
    return row


def _printer(kind: Kind) -> Printer:
    if kind.custom is not None:
        return _custom_printer(kind.custom.columns)
    return PRINTERS.get(kind.id) or _DEFAULT


_NAME = Column("Name", "string", "", format="name", description="Name of the object within its namespace")
_AGE = Column("Age", "string", "", description="Time since the object was created")


def _default_cells(value: Json, now: float) -> list[Any]:
    metadata = value.get("metadata", {})
    return [metadata.get("name", ""), age(metadata, now)]


_DEFAULT = Printer((_NAME, _AGE), _default_cells)


def _custom_printer(columns: Sequence[Column]) -> Printer:
    """Columns of a CRD; without any, name and age."""
    if not columns:
        return _DEFAULT
    cells: list[Callable[[Json, float], Any]] = [_custom_cell(column) for column in columns]

    def row(value: Json, now: float) -> list[Any]:
        return [value.get("metadata", {}).get("name", ""), *(cell(value, now) for cell in cells)]

    return Printer((_NAME, *columns), row)


def _custom_cell(column: Column) -> Callable[[Json, float], Any]:
    def cell(value: Json, now: float) -> Any:
        found = find_first(value, column.path)
        if column.type == "date":
            return duration_since(found, now) if isinstance(found, str) else "<unknown>"
        if column.type == "integer":
            return found if isinstance(found, int) and not isinstance(found, bool) else None
        if column.type == "boolean" or column.type == "number":
            return found
        if found is None:
            return ""
        return found if isinstance(found, str) else encode(found).decode()

    return cell
