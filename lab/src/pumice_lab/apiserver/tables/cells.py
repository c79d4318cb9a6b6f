"""Small texts of table cells: lists and selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


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
