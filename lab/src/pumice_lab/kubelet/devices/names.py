"""Which resource names a device plugin may register (Kubernetes: extended resources)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pumice.wire.quantity import round_up

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_extended(resource: str) -> bool:
    """A name outside kubernetes.io that is a qualified name and no quota's ``requests.`` name."""
    domain, slash, name = resource.partition("/")
    if not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return False
    if resource.startswith("requests.") or len(domain) > 253:
        return False
    return bool(_DOMAIN.fullmatch(domain) and _NAME.fullmatch(name))


def device_limits(container: Mapping[str, Any]) -> dict[str, int]:
    """Extended resources that a container asks for, above zero."""
    limits = (container.get("resources") or {}).get("limits") or {}
    counts = {name: round_up(amount) for name, amount in limits.items() if is_extended(name)}
    return {name: count for name, count in counts.items() if count > 0}
