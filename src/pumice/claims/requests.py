"""The requests of a pod's claims, ready for the search: classes resolved, limits checked, alternatives in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pumice.claims.attributes import Constraining
from pumice.claims.capacity import consumed
from pumice.claims.objects import RESULTS_MOST, DeviceClass, DeviceID, DeviceRequest, Request, ResourceClaim
from pumice.claims.reasons import FitError, RequestReasons
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
