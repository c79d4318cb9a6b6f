"""The order in which a node's devices are tried where somebody would rather have some than others: packed, or spread.

Without one it is the order in which drivers publish them, as Kubernetes keeps it. The search is exhaustive, so that an order
decides which devices a claim gets, and never whether it gets any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pumice.claims.objects import Amount, Counter, Device
from pumice.claims.slices import NodePool, PooledDevice, PoolID, Slices
from pumice.claims.usage import NONE, Usage, amounts

WHOLE: Final = 1_000_000
"""Parts of a card's memory that are told apart."""
Rank = Callable[[int, int, int, int], int]
"""(memory in use, shares, per cent of cores in use, all memory) of a card: the greatest is tried first."""


class InUse(NamedTuple):
    """The use of the card that a device is, or is a part of: of its memory in ``WHOLE`` parts, and per cent of its cores."""

    memory: int = 0
    shares: int = 0
    cores: int = 0


def packs(rank: Rank) -> bool:
    """Return whether a card in use is rather taken than an idle one."""
    return rank(1, 1, 1, WHOLE) > rank(0, 0, 0, WHOLE)


@dataclass(slots=True)
class Filling:
    """The measure of how full the cards of a node are, by what is in use of its devices and of its counter sets."""

    usage: Usage
    _sets: dict[PoolID, dict[str, InUse]] = field(default_factory=dict)

    def in_order(self, pools: Sequence[NodePool], rank: Rank, slices: Slices) -> list[PooledDevice]:
        """Return the devices of these pools: those without binding conditions first, as ever. Of devices for one claim, such as
        partitions, the smaller one wastes less. Among partitions of one size where cards are packed: one of a card in use, then
        the one that leaves most for larger ones, as by ``pumice.MigPolicy: tightest``; else the rank decides between cards, and
        that within them. Of what is alike the rank decides."""
        packed, nothing = packs(rank), -rank(0, 0, 0, WHOLE)
        found: list[tuple[tuple[Any, ...], PooledDevice]] = []
        for pool in pools:
            partitioned = slices.partitioned_pool(pool.id)
            mine = (id_ for id_ in self.usage.devices if (id_.driver, id_.pool) == pool.id)
            states = partitioned.states(mine, self.usage.remembered) if partitioned.places else {}
            cards = {
                set_: (-rank(use.memory, use.shares, use.cores, WHOLE), state.is_idle, state.layout.lost(state))
                for set_, state in states.items()
                for use in (self._set(pool, set_),)
            }
            first = pool.has_binding_conditions
            for place in pool.devices:
                if (at := partitioned.places.get(place.id.device)) is not None:
                    by_rank, idle, losses = cards[at[0]]
                    lost = losses[at[1]]
                    lost = inf if lost is None else lost
                    key = (first, place.size, idle, lost, by_rank) if packed else (first, place.size, by_rank, lost)
                else:
                    device = place.device
                    if device.allow_multiple_allocations or device.consumes_counters:
                        use = self.of(pool, place)
                        own = -rank(use.memory, use.shares, use.cores, WHOLE)
                    else:
                        own = nothing
                    key = (first, place.size, False, 0.0, own) if packed else (first, place.size, own, 0.0)
                found.append((key, place))
        found.sort(key=itemgetter(0))  # stable: what is alike stays in the order of its slices
        return [place for _, place in found]

    def of(self, pool: NodePool, place: PooledDevice) -> InUse:
        """Return the use of the device's card: the fullest of the counter sets that it draws on, or its own."""
        own = consumed_of(place.device, self.usage.consumed.get(place.id, {}), self.usage.sharers.get(place.id, 0))
        if not place.device.consumes_counters:
            return own
        most = max(self._set(pool, one.counter_set) for one in place.device.consumes_counters)
        return InUse(max(own.memory, most.memory) if own.shares == 0 else own.memory, max(own.shares, most.shares), own.cores)

    def _set(self, pool: NodePool, set_: str) -> InUse:
        if pool.id not in self._sets:
            self._sets[pool.id] = self._count(pool)
        return self._sets[pool.id].get(set_, InUse())

    def _count(self, pool: NodePool) -> dict[str, InUse]:
        drawn: dict[tuple[str, str], Amount] = {}
        holders: dict[str, int] = {}
        for id_ in self.usage.devices:
            if (id_.driver, id_.pool) != pool.id:
                continue
            consumption = self.usage.remembered.get(id_, ())
            for key, amount in amounts(consumption).items():
                drawn[key] = drawn.get(key, 0) + amount
            for set_ in {one.counter_set for one in consumption}:
                holders[set_] = holders.get(set_, 0) + 1
        return {
            set_: InUse(_drawn_part(drawn, set_, counters), holders.get(set_, 0)) for set_, counters in pool.counters.items()
        }  # fmt: skip


def fullness(pool: PoolID, usage: Usage, slices: Slices) -> tuple[float, int]:
    """Return how many cards of a pool are in use, parts of cards included, and how many there are. A card is a counter set, or a
    device that draws on none."""
    number, sets = slices.cards_in(pool)
    used, drawn = 0.0, dict[tuple[str, str], Amount]()
    for id_ in usage.devices:
        if (id_.driver, id_.pool) != pool:
            continue
        consumption = usage.remembered.get(id_)
        if consumption:
            for key, amount in amounts(consumption).items():
                drawn[key] = drawn.get(key, 0) + amount
        elif id_ in usage.exclusive or (device := slices.device_of(id_)) is None:
            used += 1.0
        else:
            use = consumed_of(device, usage.consumed.get(id_, {}), 1)
            used += max(use.memory / WHOLE, use.cores / 100)
    for set_, counters in sets.items():
        used += _drawn_part(drawn, set_, counters) / WHOLE
    return min(used, float(number)), number


def _drawn_part(drawn: Mapping[tuple[str, str], Amount], set_: str, counters: Mapping[str, Counter]) -> int:
    """Return the part of a card that is drawn: of its memory where it counts that, else of what is scarcest. One memory slice of
    a card in MIG mode is drawn whole by the smallest partition."""
    counted = {"memory": counters["memory"]} if "memory" in counters else counters
    return max((_part(drawn.get((set_, name), 0), one.value) for name, one in counted.items()), default=0)


def consumed_of(device: Device, consumed: Mapping[str, Fraction], shares: int) -> InUse:
    """Return the use of a shared device: by its capacities memory and cores where it has them, else by the scarcest one."""
    parts = {name.rpartition("/")[2]: _part(consumed.get(name, NONE), one.value) for name, one in device.capacity.items()}
    if "memory" not in parts and "cores" not in parts:
        return InUse(max(parts.values(), default=0), shares)
    return InUse(parts.get("memory", 0), shares, parts.get("cores", 0) * 100 // WHOLE)


def _part(used: Amount, whole: Fraction) -> int:
    return int(min(max(used, 0), whole) * WHOLE / whole) if whole > 0 else 0
