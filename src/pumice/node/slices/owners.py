"""Which pods still hold their slices. The driver is not enough: a CUDA program that does nothing is in no list of processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pumice.node.pods import Held, NodePod

VANISHED: Final = 10.0
"""Seconds for which a pod counts that vanished from the API server before it was seen to end, while the kubelet's record names
it: deleted by force, or with a grace period of zero, its containers run until the kubelet has killed them. The record alone says
too much, because the kubelet takes pods out of it late (ADR 120)."""


class Owners:
    """This node's pods as the watch has shown them, with those that it has taken away."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}
        self._ended: set[str] = set()
        self._vanished: dict[str, tuple[str, float]] = {}
        self._held: frozenset[str] = frozenset()
        self._now = float("-inf")

    def look(self, pods: Iterable[NodePod], now: float) -> None:
        """These pods are there at this moment of a monotonic clock."""
        there = {pod.uid: pod for pod in pods}
        gone = {uid: (name, now) for uid, name in self._running.items() if uid not in there}
        self._vanished = {uid: seen for uid, seen in {**gone, **self._vanished}.items() if uid not in there}
        self._running = {uid: pod.key for uid, pod in there.items() if not pod.finished}
        self._ended |= {uid for uid, pod in there.items() if pod.finished}
        self._now = now

    def ask(self, held: Held | None) -> None:
        """The kubelet's record as it is now; None where there is none. Who is named there and was never seen vanished while
        nobody watched."""
        self._held = frozenset(uid for uid, _ in held or ())
        strange = self._held - self._running.keys() - self._ended - self._vanished.keys()
        self._vanished |= {uid: (f"of UID {uid}", self._now) for uid in strange}
        self._vanished = {uid: seen for uid, seen in self._vanished.items() if uid in self._held}
        self._ended &= self._held

    @property
    def vanishing(self) -> float:
        """Seconds until nobody is waited for any more who has vanished."""
        return max((since + VANISHED - self._now for _, since in self._vanished.values()), default=0.0)

    def runs(self, uid: str) -> str:
        """The name of the pod where it is known to be there and not to have ended, else empty."""
        return self._running.get(uid, "")

    def holds(self, uid: str) -> str:
        """The name of the pod where it still holds what it was given, else empty."""
        if uid in self._running:
            return self._running[uid]
        name, since = self._vanished.get(uid, ("", float("-inf")))
        return name if uid in self._held and self._now < since + VANISHED else ""
