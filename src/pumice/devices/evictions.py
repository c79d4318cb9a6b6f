"""The fewest pods whose leaving lets another one in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from pumice.devices.offers import Change, Holder, WhatIf
from pumice.wire.objects import Pod

NODES_SEARCHED = 64
"""Nodes looked at for pods whose leaving would help; the most promising ones first."""
QUESTIONS = 2000
"""Sets of pods that are asked about in all. Beyond that each pod of an offer is needed, and another offer may have fewer."""
ANYWHERE = ""
"""Those who are in the way by the labels of a whole zone may run on several nodes."""


def left(pod: Pod, what_if: WhatIf) -> Iterator[Change]:
    """The fewest pods of one node whose leaving lets the pod in, the least important of those; where there are none, of all nodes
    together. Each of them is needed."""
    search = _Search(pod, what_if)
    best: tuple[tuple[int, int, int], str, tuple[Holder, ...]] | None = None
    crowded = what_if.crowded(pod)[:NODES_SEARCHED]
    for node in crowded:
        gone = search.fewest(node, len(best[2]) if best else None)
        if gone:
            rank = (len(gone), max(h.priority for h in gone), sum(h.size for h in gone))
            if best is None or rank < best[0]:
                best = rank, node, gone
    gone = best[2] if best is not None else search.fewest(ANYWHERE, None) if crowded or _attracted(pod) else ()
    if gone:
        noun = "this pod" if len(gone) == 1 else f"these {len(gone)} pods"
        who = ", ".join(h.name if best is not None else f"{h.name} on {h.node}" for h in gone)
        where = f" {best[1]}" if best is not None else ""
        yield Change("evict", f"let {noun} leave{where}: {who}", search.takes(gone), pod, evict=tuple(h.uid for h in gone))


@dataclass(slots=True)
class _Search:
    pod: Pod
    what_if: WhatIf
    asked: int = 0

    def fewest(self, node: str, at_most: int | None) -> tuple[Holder, ...]:
        """The smallest set on that node; none where nobody's leaving helps or more than ``at_most`` would have to go.

        Where no single pod is enough: all of them less those that may stay, the dearest asked first, is an answer of which each
        pod is needed. Smaller sets are then tried in the order of their size, the least important pods first. Only a pod that has
        to be near others may be helped by one that leaves and not by all."""
        holders = sorted(self.what_if.holders(node), key=lambda h: (h.priority, h.size, h.name))
        helps = self.takes(holders)
        if not helps and not _attracted(self.pod):
            return ()
        for holder in holders if len(holders) <= QUESTIONS - self.asked else ():
            if self.takes((holder,)):
                return (holder,)
        if at_most == 1:
            return ()
        gone = self._needed(holders) if helps else ()
        most = len(gone) if gone else len(holders) + 1
        most = most if at_most is None else min(most, at_most)
        for size in range(2, min(most, len(gone) - 1 if gone else len(holders) - 1) + 1):
            for some in combinations(holders, size):
                if self.asked >= QUESTIONS:
                    break
                if self.takes(some):
                    return some
        return gone if len(gone) <= most else ()

    def _needed(self, holders: Sequence[Holder]) -> tuple[Holder, ...]:
        """Those of them that must go, halves of them asked for at first: with thousands of pods most are not in the way."""
        gone = list(holders)
        size = len(gone)
        while size:
            for end in range(len(gone), 0, -size):
                fewer = gone[: max(0, end - size)] + gone[end:]
                if self.takes(fewer):
                    gone = fewer
            size //= 2
        return tuple(gone)

    def takes(self, gone: Sequence[Holder]) -> str:
        """The node that takes the pod without them; empty where none does."""
        self.asked += 1
        return self.what_if.fits_without(self.pod, tuple(h.uid for h in gone))


def _attracted(pod: Pod) -> bool:
    near = (pod.spec.affinity or {}).get("podAffinity") or {}
    return bool(near.get("requiredDuringSchedulingIgnoredDuringExecution"))
