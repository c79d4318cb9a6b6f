"""The parts of cards that claims hold, read off what our drivers publish and what the claims' status says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pumice.claims.attributes import attribute_of
from pumice.claims.objects import Device, ResourceSlice, Result, devices_held
from pumice.model.hardware.npu import shipped_chips
from pumice.wire.held_shares import Share
from pumice.wire.names import HUAWEI
from pumice.wire.our_devices import CLAIM_DRIVERS

Json = Mapping[str, Any]
Pool = tuple[str, str]
"""Driver and pool: the drivers of a node name theirs alike."""


@dataclass(slots=True)
class Published:
    """The devices of our drivers and their counter sets, by pool and name. A device that its pool publishes no more stays known,
    for claims may hold it still; with the last slice of a pool (the node is gone) all of it goes."""

    _devices: dict[tuple[Pool, str], Device] = field(default_factory=dict)
    _sets: dict[tuple[Pool, str], Mapping[str, Fraction]] = field(default_factory=dict)
    _pools: dict[str, Pool] = field(default_factory=dict)
    """Name of a slice to its pool."""

    def put(self, slice_: ResourceSlice) -> None:
        self._pools[slice_.name] = pool = slice_.pool
        self._devices |= {(pool, device.name): device for device in slice_.spec.devices}
        self._sets |= {(pool, one.name): {name: counter.value for name, counter in one.counters.items()}
                       for one in slice_.spec.shared_counters}  # fmt: skip

    def drop(self, name: str) -> None:
        """Take note that a slice was deleted."""
        pool = self._pools.pop(name, None)
        if pool is not None and pool not in self._pools.values():
            self._devices = {key: device for key, device in self._devices.items() if key[0] != pool}
            self._sets = {key: counters for key, counters in self._sets.items() if key[0] != pool}

    def shares_of(self, claim: Json) -> tuple[Share, ...] | None:
        """Return what an allocated claim holds; None while one of its devices is not known."""
        found: dict[tuple[str, str], list[float]] = {}
        for held in held_of(claim):
            device = self._devices.get(((held.driver, held.pool), held.device))
            if device is None:
                return None
            kind, memory, cores = self._parts(device, held)
            sums = found.setdefault((_model(device, held.driver), kind), [0, 0.0, 0.0])
            for at, part in enumerate((1, memory, cores)):
                sums[at] += part
        return tuple(Share(*key, round(count), memory, cores, memory, cores) for key, (count, memory, cores) in found.items())

    def _parts(self, device: Device, held: Result) -> tuple[str, float, float]:
        """Kind, and the parts of its card's memory and cores."""
        if device.allow_multiple_allocations:
            memory, cores = (
                _part(held.consumed_capacity.get(name), device.capacity[name].value) if name in device.capacity else 1.0
                for name in ("memory", "cores")
            )
            return "vgpu", memory, cores
        driver = CLAIM_DRIVERS[held.driver]
        if driver.whole and attribute_of(device, held.driver, f"{held.driver}/profile") is None:
            return driver.whole, 1.0, 1.0
        return driver.part, *self._drawn(device, held, "memory", driver.cores)

    def _drawn(self, device: Device, held: Result, *counters: str) -> tuple[float, float]:
        """The parts of its card by what it draws of the card's counters, of memory and of cores."""
        drawn: Mapping[str, Fraction] = {}
        whole: Mapping[str, Fraction] = {}
        for one in device.consumes_counters:
            drawn = {name: counter.value for name, counter in one.counters.items()}
            whole = self._sets.get(((held.driver, held.pool), one.counter_set), {})
        memory, cores = (_part(drawn.get(name), whole.get(name, Fraction())) for name in counters)
        return memory, cores


def _model(device: Device, driver: str) -> str:
    """The name of its model as nodes register it for annotated shares."""
    product = attribute_of(device, driver, f"{driver}/productName")
    if product is None:
        return driver
    word = next((chip.word for chip in shipped_chips(HUAWEI) if chip.name == product[1]), "")
    return word or f"{CLAIM_DRIVERS[driver].maker}{product[1]}"


def held_of(claim: Json) -> Iterator[Result]:
    """The devices of our drivers that a claim holds."""
    return (one for one in devices_held(claim) if one.driver in CLAIM_DRIVERS and not one.admin_access)


def _part(amount: Fraction | None, whole: Fraction) -> float:
    """All of it where nobody says how much: a status has many writers."""
    return float(min(max(amount, Fraction()), whole) / whole) if amount is not None and whole > 0 else 1.0
