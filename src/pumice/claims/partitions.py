"""Cards that are partitioned for claims: what a place there would leave for larger ones (``pumice.model.cards``).

A card is a counter set, and a place is a device that draws on it for one claim alone. Cards with equal counters and places are
one ``Layout``, whatever their devices are called: what was found for one of them holds for all. Layouts of drivers that count
otherwise than in slices can be too much to look through; of their places none is better than another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Final, NamedTuple

from pumice.claims.objects import Amount, Counter, CounterConsumption, Device, DeviceID, ResourceSlice, plain
from pumice.model.cards import remaining

STEPS: Final = 20_000
"""Places that are tried to value those of one state, at most; an idle card of NVIDIA's models takes a quarter of it."""
KEPT: Final = 20_000
"""Values kept of one layout."""
Amounts = tuple[Amount, ...]


class Place(NamedTuple):
    """A kind of place: the memory of its devices, what they draw of each counter, and how many there are."""

    size: Amount
    draws: Amounts
    number: int


class State(NamedTuple):
    """A card as it is: what is free of its counters, and how many of each kind of place are taken; 0 of those that the counters
    tell of."""

    layout: Layout
    free: Amounts
    taken: tuple[int, ...]

    @property
    def is_idle(self) -> bool:
        return self.free == self.layout.totals


@dataclass(eq=False)
class Layout:
    totals: Amounts
    places: tuple[Place, ...]
    sample: tuple[tuple[ResourceSlice, Device], ...] = ()
    """A device of each kind of place, as it was last published."""
    _rooms: dict[tuple[Amount, Amounts, tuple[int, ...]], int] = field(default_factory=dict)
    _lost: dict[tuple[Amounts, tuple[int, ...]], tuple[float | None, ...]] = field(default_factory=dict)
    _steps: int = STEPS
    _is_too_much: bool = False

    def __getstate__(self) -> dict[str, object]:
        """Values are found again where they are asked for."""
        found = {name: self.__dict__[name] for name in self.__dataclass_fields__}
        return {**found, "_rooms": {}, "_lost": {}}

    @cached_property
    def idle(self) -> State:
        return State(self, self.totals, (0,) * len(self.places))

    @cached_property
    def largest(self) -> Amount:
        return max(place.size for place in self.places)

    @cached_property
    def excludes_itself(self) -> tuple[bool, ...]:
        """By kind of place whether the counters let no two of it be taken."""
        return tuple(not self._go_together(place, place) for place in self.places)

    @cached_property
    def _least(self) -> dict[Amount, tuple[int, ...]]:
        """By size the kinds of places of at least that size, without those in whose stead another one does, always."""
        sizes = sorted({place.size for place in self.places})
        return {size: tuple(at for at, place in enumerate(self.places) if place.size >= size
                            and not any(self._does_for(other, at, size) for other in range(len(self.places))))
                for size in sizes}  # fmt: skip

    def _does_for(self, other: int, at: int, size: Amount) -> bool:
        """It draws no more, and both cannot be taken: wherever the one is taken, the other could be in its place."""
        one, place = self.places[other], self.places[at]
        return (
            other != at and one.size >= size and (one.draws != place.draws or other < at)
            and all(less <= more for less, more in zip(one.draws, place.draws, strict=True)) and not self._go_together(one, place)
        )  # fmt: skip

    def _go_together(self, one: Place, other: Place) -> bool:
        return all(a + b <= total for a, b, total in zip(one.draws, other.draws, self.totals, strict=True))

    def lost(self, state: State) -> tuple[float | None, ...]:
        """Return by kind of place which part of the largest one the card could serve less once it is taken; None where it cannot
        be."""
        key = state.free, state.taken
        found = self._lost.get(key)
        if found is None:
            if len(self._lost) + len(self._rooms) > KEPT:
                self._lost.clear()
                self._rooms.clear()
            after, self._steps = [self._after(at, *key) for at in range(len(self.places))], STEPS
            before = self._value(*key)
            values = [None if then is None else self._value(*then) for then in after]
            found = self._lost[key] = tuple(
                None if value is None else 0.0 if self._is_too_much else (before - value) / float(self.largest)
                for value in values
            )
        return found

    def _after(self, at: int, free: Amounts, taken: tuple[int, ...]) -> tuple[Amounts, tuple[int, ...]] | None:
        place = self.places[at]
        if taken[at] >= place.number:
            return None
        left = tuple([have - draw for have, draw in zip(free, place.draws, strict=True)])
        if min(left) < 0:
            return None
        return left, taken if self.excludes_itself[at] else (*taken[:at], taken[at] + 1, *taken[at + 1 :])

    def _value(self, free: Amounts, taken: tuple[int, ...]) -> float:
        """Return the memory that the card can still serve: as ``remaining_value`` of slices by annotation."""
        if self._is_too_much:
            return 0.0
        sizes = ((size, float(size), 1.0 / float(size)) for size in self._least)
        return remaining(sizes, lambda size: self._room(size, free, taken))

    def _room(self, size: Amount, free: Amounts, taken: tuple[int, ...]) -> int:
        """Return how many places of at least that size can be taken side by side."""
        known = self._rooms.get((size, free, taken))
        if known is None:
            known = 0
            for at in self._least[size]:
                self._steps -= 1
                self._is_too_much = self._is_too_much or self._steps < 0
                if not self._is_too_much and (then := self._after(at, free, taken)) is not None:
                    known = max(known, 1 + self._room(size, *then))
            self._rooms[size, free, taken] = known
        return known


@dataclass(slots=True)
class PartitionedPool:
    """The cards of a pool that are partitioned: the layout of each, and the kind of place that each device is."""

    layouts: dict[str, Layout] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    counters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the counters of each set, in the order of ``Layout.totals``."""
    idle: frozenset[State] = frozenset()
    """The cards as they are with nothing in use."""

    def states(
        self, devices: Iterable[DeviceID], remembered: Mapping[DeviceID, Iterable[CounterConsumption]]
    ) -> dict[str, State]:
        """Return the cards as they are, with these of the pool's devices in use."""
        free = {set_: list(layout.totals) for set_, layout in self.layouts.items()}
        taken = {set_: [0] * len(layout.places) for set_, layout in self.layouts.items()}
        for id_ in devices:
            place = self.places.get(id_.device)
            if place is not None:
                set_, at = place
                layout = self.layouts[set_]
                free[set_] = [have - draw for have, draw in zip(free[set_], layout.places[at].draws, strict=True)]
                taken[set_][at] += not layout.excludes_itself[at]
                continue
            for one in remembered.get(id_, ()):  # shared, or published no more
                for column, name in enumerate(self.counters.get(one.counter_set, ())):
                    if name in one.counters:
                        free[one.counter_set][column] -= plain(one.counters[name].value)
        return {set_: State(layout, tuple(free[set_]), tuple(taken[set_])) for set_, layout in self.layouts.items()}


NOTHING: Final = PartitionedPool()


def partitioned_pool(
    slices: Iterable[ResourceSlice], sets: Mapping[str, Mapping[str, Counter]],
    known: dict[tuple[Amounts, tuple[Place, ...]], Layout],
) -> PartitionedPool:  # fmt: skip
    """Return how these slices of a pool partition its cards. ``known``: the layouts of all pools."""
    found: dict[str, dict[tuple[Amount, Amounts], list[tuple[ResourceSlice, Device]]]] = {}
    counters = {set_: tuple(sorted(of)) for set_, of in sets.items()}
    for slice_ in slices:
        for device in slice_.spec.devices:
            if device.allow_multiple_allocations or len(device.consumes_counters) != 1 or not (size := plain(size_of(device))):
                continue
            (one,) = device.consumes_counters
            if one.counters.keys() - sets.get(one.counter_set, {}).keys():
                continue
            drawn = one.counters
            draws = tuple([plain(drawn[name].value) if name in drawn else 0 for name in counters[one.counter_set]])
            found.setdefault(one.counter_set, {}).setdefault((size, draws), []).append((slice_, device))
    if not found:
        return NOTHING
    pool = PartitionedPool()
    for set_, kinds in found.items():
        key = (tuple(plain(sets[set_][name].value) for name in counters[set_]),
               tuple(Place(size, draws, len(devices)) for (size, draws), devices in kinds.items()))  # fmt: skip
        layout = known.get(key)
        if layout is None:
            layout = known[key] = Layout(*key)
        layout.sample = tuple(devices[0] for devices in kinds.values())
        pool.layouts[set_], pool.counters[set_] = layout, counters[set_]
        pool.places.update((device.name, (set_, at)) for at, devices in enumerate(kinds.values()) for _, device in devices)
    pool.idle = frozenset(layout.idle for layout in pool.layouts.values())
    return pool


def size_of(device: Device) -> Fraction:
    """Return the memory of a device by its capacities, or by the counters that it draws; 0 where it names none."""
    own = [one.value for name, one in device.capacity.items() if name.rpartition("/")[2] == "memory"]
    drawn = [one.counters["memory"].value for one in device.consumes_counters if "memory" in one.counters]
    return max(own + drawn, default=Fraction())
