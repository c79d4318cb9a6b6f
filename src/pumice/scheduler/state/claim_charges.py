"""The amounts that a queue is charged for claims of devices, under Volcano's keys (Volcano pkg/scheduler/plugins/capacity):
``deviceclass/<class>`` counts devices, ``<capacity>.deviceclass/<class>`` what is consumed of a capacity of shared ones.

Of a shared device what its share consumes is counted, defaults and rounding included; of a device for one claim at a time what
is asked of it, as upstream does. Devices with adminAccess consume nothing. Capacities are whole units, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from pumice.claims.objects import ClaimDevices, DeviceRequest, Result
from pumice.scheduler.state.resources import CLASS_CAPACITY, CLASS_COUNT, HUGE, NOTHING, Vector

Part = tuple[str, tuple[tuple[str, int], ...]]
"""A claim that several pods may use, by its uid, and its amounts."""


class ClaimCharge(NamedTuple):
    """Of one pod: its own claims, and those that a queue pays once however many of its pods use them."""

    own: Vector = NOTHING
    shared: tuple[Part, ...] = ()


def charged_for(devices: ClaimDevices, results: Iterable[Result]) -> Vector:
    """Return the amounts of a claim that has these devices. Devices of requests that it does not name count nothing."""
    asked = {name: request for name, request, _ in _asked(devices)}
    total: Vector = {}
    for result in results:
        request = asked.get(result.request)
        if request is None or result.admin_access:
            continue
        shared = bool(result.share_id or result.consumed_capacity)
        _add(total, request.device_class_name, 1, result.consumed_capacity if shared else request.capacity.requests)
    return total


def least_for(devices: ClaimDevices) -> Vector:
    """Return what such a claim comes to at least, whichever devices it gets. Of alternatives nothing is certain."""
    total: Vector = {}
    for _, request, sure in _asked(devices):
        if sure and not request.admin_access:
            count = 1 if request.allocation_mode == "All" or request.count is None else request.count
            _add(total, request.device_class_name, count, request.capacity.requests)
    return total


def _asked(devices: ClaimDevices) -> Iterator[tuple[str, DeviceRequest, bool]]:
    """Yield each request, or alternative, by the name that results have, and whether it is served for certain."""
    for request in devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly, True
        for each in request.first_available:
            yield f"{request.name}/{each.name}", each, False


def _add(total: Vector, class_: str, count: int, capacities: Mapping[str, Fraction]) -> None:
    amounts = {f"{CLASS_COUNT}{class_}": 1000 * count}
    for name, value in capacities.items():
        amounts[f"{name}{CLASS_CAPACITY}{class_}"] = count * max(0, ceil(value))
    for name, amount in amounts.items():
        total[name] = min(HUGE, total.get(name, 0) + amount)
