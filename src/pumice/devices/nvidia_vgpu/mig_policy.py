"""``pumice.MigPolicy``: which of all free slots a request takes, when it is not upstream's first fit.

A chooser gets one card's state and answers (cost, group, slot): the caller takes the card of least cost. Both choosers
look at all groups that the card may take; the costs are comparable between cards of one model.

* ``tightest``: least memory wasted by the slot, then a card that is in use already, then the groups' listed order.
* ``expected``: the slot that wastes least and takes least from what the card can be expected to serve next. A card has
  few states (147 for an A100), so their values are exact and remembered, see ``remaining_value``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pumice.devices.layout import remaining
from pumice.devices.nvidia_vgpu.mig import Geometry

Offer = tuple[float, int, int]
Chooser = Callable[[Geometry, int, int, int], Offer | None]


def chooser(policy: str) -> Chooser | None:
    """The chooser of a policy; None for ``listed``, which needs no costs."""
    return {"tightest": tightest, "expected": expected}.get(policy)


@lru_cache(maxsize=65536)
def tightest(geometry: Geometry, active: int, used: int, need: int) -> Offer | None:
    """Cost: MiB wasted, plus one half where an idle card would have to be partitioned. Where slices may lie anywhere, the
    place that spoils least for larger ones is cheaper by a fraction of one MiB."""
    best: Offer | None = None
    before = remaining_value(geometry, active, used) if geometry.anywhere else 0.0
    for group, slot in geometry.choices(active, used, need):
        cost = geometry.memory(group, slot) - need + (0.0 if used else 0.5)
        if geometry.anywhere:
            after = remaining_value(geometry, *geometry.taken(active, used, group, slot))
            cost += 0.25 * (before - after) / geometry.largest
        if best is None or cost < best[0]:
            best = cost, group, slot
    return best


@lru_cache(maxsize=65536)
def expected(geometry: Geometry, active: int, used: int, need: int) -> Offer | None:
    """Cost: MiB wasted now, plus the MiB that the card can be expected to serve less afterwards."""
    before = remaining_value(geometry, active if used else -1, used)
    best: Offer | None = None
    for group, slot in geometry.choices(active, used, need):
        waste = geometry.memory(group, slot) - need
        cost = waste + before - remaining_value(geometry, *geometry.taken(active, used, group, slot))
        if best is None or cost < best[0]:
            best = cost, group, slot
    return best


@lru_cache(maxsize=65536)
def remaining_value(geometry: Geometry, active: int, used: int) -> float:
    """The MiB that a card in that state can still serve. Every size of slot is taken to bring the same amount of memory, hence
    small requests are the more frequent ones (weights 1/size); with equal numbers instead, small pods open layouts made for
    large ones, which fills the streams of ``benchmarks/mig_streams.py`` to 81 instead of 88 per cent."""
    return remaining(
        ((size, size, 1.0 / size) for size in geometry.sizes), lambda size: geometry.room(active, used, size)
    )
