"""``pumice.MigPolicy``: which of all free slots a request takes, when it is not upstream's first fit.

A chooser gets one card's state and answers (cost, group, slot): the caller takes the card of least cost. Both choosers
look at all groups that the card may take; the costs are comparable between cards of one model.

* ``tightest``: least memory wasted by the slot, then a card that is in use already, then the groups' listed order.
* ``expected``: the slot that wastes least and takes least from what the card can be expected to serve next. A card has
  few states (147 for an A100), so their values are exact and remembered, see ``remaining_value``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from pumice.families.nvidia_vgpu.mig import Choice, Geometry

Offer = tuple[float, int, int]
Chooser = Callable[[Geometry, int, int, int], Offer | None]


def chooser(policy: str) -> Chooser | None:
    """The chooser of a policy; None for ``listed``, which needs no costs."""
    return {"tightest": tightest, "expected": expected}.get(policy)


def choices(geometry: Geometry, active: int, used: int, need: int) -> Iterator[Choice]:
    """One free slot (the first) of every profile that is large enough, in every group that the card may take."""
    for index in geometry.candidates(active, used):
        group = geometry.groups[index]
        seen: set[str] = set()
        for slot, memory in enumerate(group.memory):
            if memory >= need and not used >> slot & 1 and group.profiles[slot] not in seen:
                seen.add(group.profiles[slot])
                yield index, slot


@lru_cache(maxsize=65536)
def tightest(geometry: Geometry, active: int, used: int, need: int) -> Offer | None:
    """Cost: MiB wasted, plus one half where an idle card would have to be partitioned."""
    best: Offer | None = None
    for group, slot in choices(geometry, active, used, need):
        cost = geometry.groups[group].memory[slot] - need + (0.0 if used else 0.5)
        if best is None or cost < best[0]:
            best = cost, group, slot
    return best


@lru_cache(maxsize=65536)
def expected(geometry: Geometry, active: int, used: int, need: int) -> Offer | None:
    """Cost: MiB wasted now, plus the MiB that the card can be expected to serve less afterwards."""
    before = remaining_value(geometry, active if used else -1, used)
    best: Offer | None = None
    for group, slot in choices(geometry, active, used, need):
        waste = geometry.groups[group].memory[slot] - need
        cost = waste + before - remaining_value(geometry, group, used | 1 << slot)
        if best is None or cost < best[0]:
            best = cost, group, slot
    return best


@lru_cache(maxsize=65536)
def remaining_value(geometry: Geometry, active: int, used: int) -> float:
    """The MiB that a card in that state can still serve, in expectation over the size of the requests to come.

    Every size of slot is taken to bring the same amount of memory, hence small requests are the more frequent ones
    (weights 1/size); with equal numbers instead, small pods open layouts made for large ones, which fills the streams
    of ``benchmarks/mig_streams.py`` to 81 instead of 88 per cent.
    """
    sizes = sorted({memory for group in geometry.groups for memory in group.memory})
    groups = [geometry.groups[i] for i in geometry.candidates(active, used)]
    served = [size * max(group.room(size, used) for group in groups) for size in sizes]
    weights = [1.0 / size for size in sizes]
    return sum(w * memory for w, memory in zip(weights, served, strict=True)) / sum(weights)
