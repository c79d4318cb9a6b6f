"""The conditions in an object's status, which every kind of Kubernetes writes alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Empty while the object has none of this kind."""
    entries = (obj.get("status") or {}).get("conditions") or ()
    return next((entry for entry in entries if entry.get("type") == kind), {})


def holds(obj: Mapping[str, Any], kind: str) -> bool:
    return condition(obj, kind).get("status") == "True"


def is_ready(pod: Mapping[str, Any]) -> bool:
    return holds(pod, "Ready")
