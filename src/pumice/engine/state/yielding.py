"""How a pod takes part where room is made: whom it spares, and what spares it (spec volcano-core 4.3, 11.3, 11.14)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import Struct

from pumice.wire.duration import parse_duration
from pumice.wire.names import COOLDOWN_TIME, PREEMPTABLE, REVOCABLE_ZONE
from pumice.wire.objects import Pod
from pumice.wire.volcano import seconds

SYSTEM_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
EVERY_ZONE: Final = "*"
"""The only value of the annotation that means something."""
SYSTEM_NAMESPACE: Final = "kube-system"
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class Yielding(Struct, frozen=True, cache_hash=True):
    """Equal ones are one object: nearly all pods are alike in this."""

    preemptable: bool = True
    """Its annotation or label lets it go; what cannot be read does not."""
    preempts: bool = True
    """Its preemptionPolicy lets others go for it."""
    revocable: bool = False
    """It may run on nodes that are lent for some hours (plugin tdm): it says so, or says that it may be evicted."""
    system: bool = False
    cooldown: float = 0.0
    """It is not evicted within so many seconds after it started (plugin cdp)."""
    started: float = 0.0
    """When that was; known only of pods that have a cooldown time."""


USUAL: Final = Yielding()
_SAID: Final = frozenset({PREEMPTABLE, COOLDOWN_TIME, REVOCABLE_ZONE})
"""Annotations and labels without one of which a pod is as it is usual."""


def yielding(pod: Pod) -> Yielding:
    meta, spec = pod.metadata, pod.spec
    system = spec.priority_class_name in SYSTEM_CLASSES or meta.namespace == SYSTEM_NAMESPACE
    preempts = spec.preemption_policy != "Never"
    if _SAID.isdisjoint(meta.annotations) and _SAID.isdisjoint(meta.labels):
        return USUAL if preempts and not system else _shared(True, preempts, False, system, 0.0, 0.0)
    said = meta.annotations.get(PREEMPTABLE, meta.labels.get(PREEMPTABLE, "true"))
    cooldown = meta.annotations.get(COOLDOWN_TIME) or meta.labels.get(COOLDOWN_TIME, "")
    pause = _seconds(cooldown)
    started = seconds(pod.status.start_time) if pause and pod.status.start_time else 0.0
    zone = meta.annotations.get(REVOCABLE_ZONE)
    revocable = zone == EVERY_ZONE if zone is not None else meta.annotations.get(PREEMPTABLE) in _TRUE
    return _shared(said in _TRUE, preempts, revocable, system, pause, started)


@lru_cache(maxsize=4096)
def _shared(
    preemptable: bool, preempts: bool, revocable: bool, system: bool, cooldown: float, started: float
) -> Yielding:
    found = Yielding(preemptable, preempts, revocable, system, cooldown, started)
    return USUAL if found == USUAL else found


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) if text else 0.0
    except ValueError:
        return 0.0
