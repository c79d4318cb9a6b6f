"""MIG geometries at work: which slot of a card a request gets (Volcano pkg/scheduler/api/devices/nvidia/vgpu/mig.go, Volcano
pkg/scheduler/api/devices/nvidia/vgpu).

A ``Geometry`` is one model's groups, compiled for one memory factor. A card's state is (active group, used mask): bit i of
the mask is slot i of that group. ``mig_catalogue.Places`` answers the same questions for cards whose slices may lie anywhere.

``pumice.MigPolicy``: which of all free slots a request takes, when it is not upstream's first fit.

A chooser gets one card's state and answers (cost, group, slot): the caller takes the card of least cost. Both choosers
look at all groups that the card may take; the costs are comparable between cards of one model.

* ``tightest``: least memory wasted by the slot, then a card that is in use already, then the groups' listed order.
* ``expected``: the slot that wastes least and takes least from what the card can be expected to serve next. A card has
  few states (147 for an A100), so their values are exact and remembered, see ``remaining_value``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from pumice.devices.protocol import SlotView
from pumice.model.cards import Slot, Usage, remaining
from pumice.wire.device_config import MOST_SLOTS

Choice = tuple[int, int]
"""(group index, slot number)."""


@dataclass(frozen=True)
class Group:
    """The slots of one group in listed order: ``memory`` in MiB, ``charge`` in memory units, ``profiles`` by name."""

    name: str
    memory: tuple[int, ...]
    charge: tuple[int, ...]
    profiles: tuple[str, ...]

    @cached_property
    def smallest_first(self) -> tuple[int, ...]:
        return tuple(sorted(range(len(self.memory)), key=lambda slot: (self.memory[slot], slot)))

    def first(self, need: int, used: int) -> int:
        """The smallest free slot of at least ``need`` MiB, the earlier of equals; -1 when there is none."""
        memory = self.memory
        for slot in self.smallest_first:
            if memory[slot] >= need and not used >> slot & 1:
                return slot
        return -1

    def room(self, need: int, used: int) -> int:
        """Return how many free slots have at least ``need`` MiB."""
        return sum(1 for slot, memory in enumerate(self.memory) if memory >= need and not used >> slot & 1)

    def slot(self, number: int) -> Slot:
        return Slot(self.name, number, self.profiles[number], self.charge[number])


@dataclass(frozen=True, eq=False)
class Geometry:
    """The groups of one model in listed order. ``number`` tells geometries of one family apart."""

    number: int
    models: tuple[str, ...]
    groups: tuple[Group, ...]
    factor: int = 1
    free: Geometry | None = None
    """The same model with slices anywhere (``pumice.MigOffGroup``); None where that is not offered."""

    anywhere = False

    @cached_property
    def index(self) -> dict[str, int]:
        return {group.name: i for i, group in enumerate(self.groups)}

    @cached_property
    def largest(self) -> int:
        """MiB of the largest slot of any group: what a whole card means in MIG mode (D-24)."""
        return max(max(group.memory) for group in self.groups)

    def part(self, percent: int) -> int:
        """MiB of the smallest kind of slot that is so many per cent of the largest, to the nearest per cent: half of an 80 GB
        card is its 3g.40gb, although that has 49.7 per cent of the 7g.80gb."""
        least = self.largest * (2 * percent - 1)
        return next(size for size in self.sizes if 200 * size > least) if percent else 0

    def candidates(self, active: int, used: int) -> Sequence[int]:
        """Groups that may be chosen now: a card without used slots is free to change its group (D-22)."""
        return (active,) if used else range(len(self.groups))

    def first_fit(self, active: int, used: int, need: int) -> Choice | None:
        """Upstream's rule: groups in listed order, inside a group the smallest slot that is large enough."""
        for index in self.candidates(active, used):
            slot = self.groups[index].first(need, used)
            if slot >= 0:
                return index, slot
        return None

    def first_with_room(self, need: int, count: int) -> int:
        """The first group with ``count`` slots of ``need`` MiB on an empty card; -1 when there is none."""
        for index, group in enumerate(self.groups):
            if group.room(need, 0) >= count:
                return index
        return -1


    def choices(self, active: int, used: int, need: int) -> Iterator[Choice]:
        """One free slot (the first) of every profile that is large enough, in every group that the card may take."""
        for index in self.candidates(active, used):
            group = self.groups[index]
            seen: set[str] = set()
            for slot, memory in enumerate(group.memory):
                if memory >= need and not used >> slot & 1 and group.profiles[slot] not in seen:
                    seen.add(group.profiles[slot])
                    yield index, slot

    def slot(self, group: int, number: int) -> Slot:
        return self.groups[group].slot(number)

    def outside(self, profile: str, start: int) -> Slot | str:
        """The slice of a ``UUID[profile@start]``, or why the card cannot have it."""
        return "slices outside the geometry groups are not offered here (pumice.MigOffGroup)"

    def memory(self, group: int, number: int) -> int:
        """MiB of a slot."""
        return self.groups[group].memory[number]

    def taken(self, active: int, used: int, group: int, number: int) -> tuple[int, int]:
        """The state once that slot is taken, too."""
        return group, used | 1 << number

    def allocated(self, usage: Usage) -> tuple[int, int]:
        """The state of a card by the pods on it; (TANGLED, not 0) where they claim what cannot be true together."""
        if not usage.holders:
            return -1, 0
        slots = [
            container_device.slot
            for container_devices in usage.holders.values()
            for container_device in container_devices
            if container_device.slot is not None
        ]
        used = mask_of(slot.number for slot in slots if slot.number < MOST_SLOTS)
        active = self.index.get(usage.group, TANGLED) if slots else -1
        if used.bit_count() != len(slots) or any(slot.group != usage.group for slot in slots):
            return TANGLED, used or 1
        if active >= 0 and used >> len(self.groups[active].memory):
            return TANGLED, used
        return active, used

    def shown(self, usage: Usage) -> tuple[SlotView, ...]:
        """The slots of the group in use in listed order, with who has them; none while nobody is on the card, or where the pods
        there claim what cannot be true together."""
        active, _ = self.allocated(usage)
        if active < 0:
            return ()
        group = self.groups[active]
        holder = {
            device.slot.number: uid for uid, devices in usage.holders.items() for device in devices if device.slot is not None
        }
        whole, at, found = sum(group.memory), 0, []
        for number, (memory, charge, profile) in enumerate(zip(group.memory, group.charge, group.profiles, strict=True)):
            found.append(SlotView(profile, charge, at / whole, memory / whole, holder.get(number)))
            at += memory
        return tuple(found)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The MiB that a slot may have, ascending."""
        return tuple(sorted({memory for group in self.groups for memory in group.memory}))

    def room(self, active: int, used: int, size: int) -> int:
        """Return how many more slots of at least ``size`` MiB the card can give."""
        return max(self.groups[i].room(size, used) for i in self.candidates(active, used))

    def roomiest(self, active: int, used: int) -> int:
        """MiB of the largest free slot; 0 when there is none."""
        return next((size for size in reversed(self.sizes) if self.room(active, used, size)), 0)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Return where the states of each group begin in the numbering of ``state``; 0 is the empty card."""
        starts, at = [], 1
        for group in self.groups:
            starts.append(at)
            at += (1 << len(group.memory)) - 1
        return (*starts, at)

    @property
    def states(self) -> int:
        """Return how many numbers ``number_of`` gives."""
        return self.offsets[-1]

    def number_of(self, active: int, used: int) -> int:
        """A number below ``states`` for a state, 0 for an idle card; -2 where nothing can be said of it."""
        if not used:
            return 0
        return self.offsets[active] + used - 1 if active >= 0 else -2

    def state_of(self, number: int) -> tuple[int, int]:
        """The inverse of ``number_of``."""
        if not number:
            return -1, 0
        active = bisect_right(self.offsets, number) - 1
        return active, number - self.offsets[active] + 1


STATES = 1 << 22
"""Above every state number of one geometry: at most 16 slots a group, and few groups."""
TANGLED = -2
"""In place of an active group: the pods on the card claim one slot twice, or slots of two groups. Only foreign annotations
can; such a card takes no new pods until one of them has left."""


def mask_of(slots: Iterable[int]) -> int:
    """Slot numbers as a bit mask."""
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask


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
