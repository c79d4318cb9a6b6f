"""Small texts of table cells: ages, lists, selectors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

Json = dict[str, Any]


def parse_time(text: str) -> float:
    """Unix seconds of a metav1.Time or MicroTime."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def human(seconds: float) -> str:
    """A duration in the steps that kubectl shows: 45s, 3m12s, 5m, 2h3m, 26h, 3d4h, 12d, 2y30d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


def duration_since(text: str | None, now: float) -> str:
    if not text:
        return "<unknown>"
    try:
        return human(now - parse_time(text))
    except ValueError:
        return "<invalid>"


def age(metadata: Json, now: float) -> str:
    return duration_since(metadata.get("creationTimestamp"), now)


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
