"""The offers of ``explain``, and the scheduler's filter that it asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pumice.wire.objects import Pod, Taint


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that holds something on a node: who could leave. The last ones in order are the dearest."""

    uid: str
    name: str
    priority: int = 0
    size: int = 0
    node: str = ""


class WhatIf(Protocol):
    """The scheduler's filter over some snapshot of the cluster. Asking changes nothing."""

    def fits(self, pod: Pod) -> str:
        """A node that takes the pod, or the empty string."""
        ...

    def fits_without(self, pod: Pod, gone: Sequence[str]) -> str:
        """A node that takes the pod once the pods with these uids have left, or the empty string."""
        ...

    def crowded(self, pod: Pod) -> Sequence[str]:
        """Nodes that refuse the pod only for what others hold there, the most promising first."""
        ...

    def occupants(self, node: str) -> Sequence[Occupant]:
        """Return who holds something on the node (empty: on any)."""
        ...

    def taints(self, pod: Pod) -> Iterable[Sequence[Taint]]:
        """Of each node the taints that keep the pod away, equal lists once."""
        ...

    def largest(self) -> int:
        """The memory of the largest card, in memory units."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """One change that lets the pod in. ``pod`` is the changed pod (unchanged when others leave); ``wanted`` and ``best``
    are the value asked for and the value that fits, ``smaller`` the pods with one unit less of change, which do not."""

    kind: str  # name, unit, memory, cores, cards, mode, request, toleration, constraint, evict, combined
    text: str
    node: str
    pod: Pod
    wanted: int = 0
    best: int = 0
    smaller: tuple[Pod, ...] = ()
    evict: tuple[str, ...] = ()
