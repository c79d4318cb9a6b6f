"""Findings in objects of Kubernetes and Volcano: what they ask for that has no effect yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from pumice.wire.objects import Pod, convert
from pumice.wire.volcano import Queue
from pumice.wire.without_effect import Row, What, asked_by_pod, asked_by_queue, rows

Path = tuple[str | int, ...]
ASKED: Mapping[str, tuple[type[Any], Callable[[Any], tuple[Row, ...]]]] = {
    "Pod": (Pod, asked_by_pod), "Queue": (Queue, asked_by_queue),
}  # fmt: skip


def asked(value: Any, kind: str) -> Iterator[tuple[Path, str]]:
    """(where, sentence) for each field of an object of that kind."""
    slice_of, rows_of = ASKED[kind]
    try:
        found = rows_of(convert(slice_of, value))
    except (msgspec.ValidationError, AttributeError, TypeError):
        return  # what it is in place of an object is somebody else's finding
    for row in found:
        yield row.path, row.field_text


def unserved(value: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The same for a whole document: queues, and kinds that nothing serves. Lists are gone through."""
    kind, version = value.get("kind"), str(value.get("apiVersion", ""))
    if kind == "List" and isinstance(value.get("items"), list):
        for number, item in enumerate(value["items"]):
            if isinstance(item, dict):
                yield from ((("items", number, *path), text) for path, text in unserved(item))
    elif kind == "Queue" and version.startswith("scheduling."):
        yield from asked(value, kind)
    else:
        row = rows(What.KIND).get(str(kind))
        if row is not None and row.resource is not None and version.startswith(f"{row.resource.group}/"):
            yield ("kind",), row.text
