"""The fewest pods whose leaving lets another one in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from pumice.families.offers import Change, Holder, WhatIf
from pumice.wire.objects import Pod

NODES_SEARCHED = 64
"""Nodes looked at for pods whose leaving would help; the most promising ones first."""
QUESTIONS = 2000
"""Sets of pods that are asked about in all. Beyond that each pod of an offer is needed, and another offer may have fewer."""


def left(pod: Pod, what_if: WhatIf) -> Iterator[Change]:
    """The fewest pods of one node whose leaving lets the pod in, the least important of those; each of them is needed."""
    search = _Search(pod, what_if)
    best: tuple[tuple[int, int, int], str, tuple[Holder, ...]] | None = None
    for node in what_if.crowded(pod)[:NODES_SEARCHED]:
        gone = search.fewest(node, len(best[2]) if best else None)
        if gone:
            rank = (len(gone), max(h.priority for h in gone), sum(h.size for h in gone))
            if best is None or rank < best[0]:
                best = rank, node, gone
    if best is not None:
        _, node, gone = best
        who = ", ".join(holder.name for holder in gone)
        noun = "this pod" if len(gone) == 1 else f"these {len(gone)} pods"
        yield Change("evict", f"let {noun} leave {node}: {who}", node, pod, evict=tuple(h.uid for h in gone))


@dataclass(slots=True)
class _Search:
    pod: Pod
    what_if: WhatIf
    asked: int = 0

    def fewest(self, node: str, at_most: int | None) -> tuple[Holder, ...]:
        """The smallest set on that node; none where nobody's leaving helps or more than ``at_most`` would have to go.

        Where no single pod is enough: all of them less those that may stay, the dearest asked first, is an answer of which each
        pod is needed. Smaller sets are then tried in the order of their size, the least important pods first."""
        holders = sorted(self.what_if.holders(node), key=lambda h: (h.priority, h.size, h.name))
        for holder in holders:
            if self._fits(node, (holder,)):
                return (holder,)
        gone = () if at_most == 1 else self._needed(node, holders)
        most = len(gone) if at_most is None else min(len(gone), at_most)
        for size in range(2, min(most, len(gone) - 1) + 1):
            for some in combinations(holders, size):
                if self.asked >= QUESTIONS:
                    break
                if self._fits(node, some):
                    return some
        return gone if len(gone) <= most else ()

    def _needed(self, node: str, holders: Sequence[Holder]) -> tuple[Holder, ...]:
        if not self._fits(node, holders):
            return ()
        gone = list(holders)
        for holder in reversed(holders):
            fewer = [h for h in gone if h is not holder]
            if self._fits(node, fewer):
                gone = fewer
        return tuple(gone)

    def _fits(self, node: str, gone: Sequence[Holder]) -> bool:
        self.asked += 1
        return self.what_if.fits_without(self.pod, node, tuple(h.uid for h in gone))
