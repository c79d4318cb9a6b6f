"""Field ownership (metadata.managedFields)."""

from __future__ import annotations

from typing import Any

from pumice.cluster.apiserver.registry import Kind

Json = dict[str, Any]


def record_write(kind: Kind, value: Json, old: Json | None, manager: str, subresource: str, now: str) -> None:
    value["metadata"].pop("managedFields", None)
