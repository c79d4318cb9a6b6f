"""Sources of a PersistentVolume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BESIDE = frozenset(("accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
                     "storageClassName", "volumeAttributesClassName", "volumeMode"))  # fmt: skip


def sources(spec: Mapping[str, Any]) -> list[str]:
    """The kinds of volume in its spec, of which a valid one names one: whatever is of no other field."""
    return [key for key in spec if key not in _BESIDE]
