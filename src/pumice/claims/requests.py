"""The requests of a pod's claims, ready for the search: classes resolved, limits checked, alternatives in their order; and the
capacity of a device that a request consumes, by the policies that the device publishes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from pumice.claims.attributes import Constraining
from pumice.claims.objects import (
    RESULTS_MOST,
    Capacity,
    Device,
    DeviceClass,
    DeviceID,
    DeviceRequest,
    Request,
    ResourceClaim,
)
from pumice.claims.reasons import FitError, RequestReasons, Rule, shown
from pumice.claims.slices import PooledDevice


class Fault(Exception):
    """Something that no node can mend, and what it is: a class that is not there, a selector that fails."""


@dataclass(frozen=True, slots=True)
class Candidate:
    place: PooledDevice
    fault: Fault | None = None
    """The device is reached only if it is free; then the fault ends the search."""


@dataclass(slots=True)
class Ask:
    """One request, or one alternative of ``firstAvailable``."""

    claim: ResourceClaim
    claim_at: int
    request: str
    asked: DeviceRequest
    class_: DeviceClass
    candidates: list[Candidate] = field(default_factory=list)
    """Devices that would do if the pod had nothing yet, as far as they were looked for; of ``All`` the devices that it means."""
    rest: Iterator[Candidate | None] = field(default_factory=lambda: iter(()))
    """Those that were not looked at yet; None stands for one that would not do."""
    looked_through: bool = False
    """No device is left that was not looked at."""
    fit_errors: dict[DeviceID, FitError] = field(default_factory=dict)
    _shares: dict[DeviceID, dict[str, Fraction] | FitError] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As results name it: ``request`` or ``request/alternative``."""
        return f"{self.request}/{self.asked.name}" if self.asked.name else self.request

    @property
    def takes_all(self) -> bool:
        return self.asked.allocation_mode == "All"

    @property
    def count(self) -> int:
        if self.takes_all:
            return len(self.candidates)
        return 1 if self.asked.count is None else self.asked.count

    @property
    def expressions(self) -> Iterator[tuple[str, str]]:
        """The selectors, and whose they are."""
        for whose, selectors in (
            (f"class {self.class_.name}", self.class_.spec.selectors),
            (f"claim {self.claim}, request {self.name}", self.asked.selectors),
        ):
            for at, selector in enumerate(selectors):
                assert selector.cel is not None
                yield selector.cel.expression, f"{whose}, selector {at}"

    def shares_of(self, place: PooledDevice) -> dict[str, Fraction] | FitError:
        """Return what the request consumes of the device's capacities, or why the device can never give it."""
        if place.id not in self._shares:
            self._shares[place.id] = consumed(place.device, self.asked.capacity.requests)
        return self._shares[place.id]

    @property
    def cannot_be_met(self) -> bool:
        """Return whether no choice elsewhere can help: every device was looked at, and too few would do."""
        return self.looked_through and len(self.candidates) < max(self.count, 1)

    @property
    def reasons(self) -> RequestReasons:
        return RequestReasons(str(self.claim), self.name, self.count, dict(self.fit_errors))


@dataclass(slots=True)
class Claim:
    """A claim with its requests, each a list of alternatives."""

    claim: ResourceClaim
    requests: list[list[Ask]]
    constraints: list[Constraining]

    def check_size(self) -> None:
        """Raises Fault where the claim asks for more devices than its status can hold, whichever alternatives are taken."""
        if (number := least(self.requests)) > RESULTS_MOST:
            raise Fault(f"claim {self.claim}: {number} devices are asked for, a claim can hold {RESULTS_MOST}")


def least(requests: Iterable[Sequence[Ask]]) -> int:
    """Return how many devices requests come to at the least, whichever alternatives are taken."""
    return sum(min(ask.count for ask in asks) for asks in requests)


def prepared(claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> list[Claim]:
    """Return the claims with their classes. Raises Fault."""
    return [
        Claim(
            claim,
            [_asks(claim, at, request, classes) for request in claim.devices.requests],
            [Constraining(constraint) for constraint in claim.devices.constraints],
        )
        for at, claim in enumerate(claims)
    ]


def _asks(claim: ResourceClaim, at: int, request: Request, classes: Mapping[str, DeviceClass]) -> list[Ask]:
    found = []
    for asked in (request.exactly,) if request.exactly is not None else request.first_available:
        class_ = classes.get(asked.device_class_name)
        if class_ is None:
            raise Fault(f"claim {claim}, request {request.name}: there is no device class {asked.device_class_name}")
        found.append(Ask(claim, at, request.name, asked, class_))
    return found


# -- Capacity that a request consumes ----------------------------------------------------------------------------------


def consumed(device: Device, asked: Mapping[str, Fraction]) -> dict[str, Fraction] | FitError:
    """Return the share of each capacity that the request takes, or why the device can never give it.

    Of a device for one claim at a time nothing is consumed: there the same numbers only tell whether it is large enough."""
    for name in asked:
        if name not in device.capacity:
            return FitError(Rule.CAPACITY, name, wanted=asked[name], detail=_unknown_key(device, name))
    shares: dict[str, Fraction] = {}
    for name, capacity in device.capacity.items():
        share = _share(capacity, asked.get(name))
        if share is None:
            return FitError(
                Rule.POLICY,
                name,
                wanted=asked[name],
                best=capacity.value,
                detail=_policy_refuses(capacity, asked[name]),
            )
        if share > capacity.value:
            return FitError(Rule.CAPACITY, name, wanted=share, best=capacity.value, detail="the device has less in all")
        shares[name] = share
    return shares


def _share(capacity: Capacity, asked: Fraction | None) -> Fraction | None:
    """Return the asked value rounded up by the policy; without one the default, or else everything. None: the policy refuses."""
    policy = capacity.request_policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.valid_range is not None:
        span = policy.valid_range
        share = max(asked, span.min)
        if span.step:
            share = span.min + ceil((share - span.min) / span.step) * span.step
        return None if span.max is not None and share > span.max else share
    if policy.valid_values:
        return next((value for value in policy.valid_values if asked <= value), None)
    return asked


def _policy_refuses(capacity: Capacity, asked: Fraction) -> str:
    policy = capacity.request_policy
    assert policy is not None
    most = policy.valid_range.max if policy.valid_range else policy.valid_values[-1]
    return f"asks {shown(asked)}, its policy ends at {shown(most or capacity.value)}"


def _unknown_key(device: Device, name: str) -> str:
    own = name.rpartition("/")[2]
    near = next((key for key in device.capacity if key.rpartition("/")[2] == own), "")
    keys = ", ".join(sorted(device.capacity)) or "none"
    return f"no such capacity; the device has {keys}" + (f": write {near}" if near else "")
