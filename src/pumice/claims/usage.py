"""Devices, capacities and counters that allocated claims hold, and those that are still free.

Counters and capacities are kept by driver and pool. A device that is published no more keeps what it was seen to consume.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from pumice.claims.objects import Amount, CounterConsumption, DeviceID, Result, plain
from pumice.claims.slices import NodePool, Slices

Consumption = tuple[CounterConsumption, ...]
NONE = Fraction()


@dataclass(frozen=True, slots=True)
class Usage:
    """The state from all claims' allocations: written, decided and in flight alike. Results with adminAccess hold nothing."""

    exclusive: frozenset[DeviceID] = frozenset()
    shared: frozenset[DeviceID] = frozenset()
    consumed: Mapping[DeviceID, Mapping[str, Fraction]] = field(default_factory=dict)
    """The sum over all shares of a device."""
    remembered: Mapping[DeviceID, Consumption] = field(default_factory=dict)
    """Counters that devices in use were last seen to consume."""
    cards: Mapping[str, str] = field(default_factory=dict)
    """By UUID the cards that others than claims hold, and who; under the empty one those that hold nobody knows which."""
    sharers: Mapping[DeviceID, int] = field(default_factory=dict)
    """The number of shares of a device that are in use."""

    @property
    def devices(self) -> frozenset[DeviceID]:
        return self.exclusive | self.shared


def usage_of(results: Iterable[Result], slices: Slices, before: Usage | None = None) -> Usage:
    """Return what these results hold. ``before`` is the last such value: it remembers devices that are published no more."""
    exclusive: set[DeviceID] = set()
    consumed: dict[DeviceID, dict[str, Fraction]] = {}
    shared: set[DeviceID] = set()
    sharers: dict[DeviceID, int] = {}
    for result in results:
        id_ = DeviceID(result.driver, result.pool, result.device)
        if result.admin_access:
            continue
        if not result.share_id and not result.consumed_capacity:
            exclusive.add(id_)
            continue
        shared.add(id_)
        sharers[id_] = sharers.get(id_, 0) + 1
        sums = consumed.setdefault(id_, {})
        for name, amount in result.consumed_capacity.items():
            sums[name] = sums.get(name, NONE) + max(NONE, amount)  # whoever writes less than nothing frees nothing
    known = before.remembered if before is not None else {}
    remembered = {
        id_: consumption
        for id_ in exclusive | shared
        if (consumption := known.get(id_, slices.consumption_of(id_))) is not None
    }  # fmt: skip
    return Usage(frozenset(exclusive), frozenset(shared), consumed, remembered, sharers=sharers)


def free_counters(usage: Usage, pool: NodePool, slices: Slices) -> dict[tuple[str, str], Amount] | DeviceID:
    """Return what is free of each counter of the pool; or the device in use whose consumption nobody knows: then nothing that
    draws on counters can be given from this pool without a risk.

    A device that is published with other counters than it was seen with takes the larger ones of the two."""
    free = {(name, counter): plain(one.value) for name, counters in pool.counters.items() for counter, one in counters.items()}
    for id_ in usage.devices:
        if (id_.driver, id_.pool) != pool.id:
            continue
        published, remembered = slices.consumption_of(id_), usage.remembered.get(id_)
        if published is None and remembered is None:
            return id_
        first = amounts(published or ())
        second = first if remembered == published else amounts(remembered or ())
        for key in first if second is first else first.keys() | second.keys():
            if key in free:
                free[key] -= max(first.get(key, 0), second.get(key, 0))
    return free


def amounts(consumption: Consumption) -> dict[tuple[str, str], Amount]:
    """Return the counters of a device by set and name."""
    found: dict[tuple[str, str], Amount] = defaultdict(int)
    for one in consumption:
        for name, counter in one.counters.items():
            found[one.counter_set, name] += plain(counter.value)
    return found
