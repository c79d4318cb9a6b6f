"""Reasons for which a device, a request or a claim could not be had. Reasons are values; the text is made for who reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pumice.claims.objects import Amount, DeviceID


class Rule(StrEnum):
    """The rule that a device failed."""

    IN_USE = "in use"
    SELECTOR = "selector"
    CAPACITY = "capacity"
    POLICY = "request policy"
    TAINT = "taint"
    COUNTER = "counter"
    CONSTRAINT = "constraint"


@dataclass(frozen=True, slots=True)
class FitError:
    """The reason for which one device was passed over: the rule, what it is about (a capacity, a taint, an attribute), and the
    numbers. ``beside``: what else it lacks by the same rule."""

    rule: Rule
    about: str = ""
    wanted: Amount | None = None
    best: Amount | None = None
    detail: str = ""
    beside: tuple[FitError, ...] = ()

    @property
    def text(self) -> str:
        return ", and ".join((self._alone, *(one.text for one in self.beside)))

    @property
    def _alone(self) -> str:
        named = f"{self.rule} {self.about}".strip()
        if self.detail:
            return f"{named}: {self.detail}"
        if self.wanted is not None and self.best is not None:
            return f"{named}: wants {shown(self.wanted)}, {shown(max(self.best, 0))} is free"
        return named


class Cause(StrEnum):
    """The part that has to change before a search can succeed."""

    NODE = "node"
    """These devices will not do: another node may."""
    CLAIM = "claim"
    """The claim, a class or a selector is at fault, on every node."""
    BUDGET = "budget"
    """The search was given up: later, or with more of a budget."""


@dataclass(frozen=True, slots=True)
class RequestReasons:
    """Of one request, or of one alternative: the devices that were looked at and did not do."""

    claim: str
    request: str
    wanted: int
    devices: Mapping[DeviceID, FitError] = field(default_factory=dict)

    @property
    def text(self) -> str:
        alike: dict[str, list[DeviceID]] = {}
        for device, fit_error in self.devices.items():
            alike.setdefault(fit_error.text, []).append(device)
        devices = "; ".join(f"{who}: {why}" for why, found in alike.items() for who in _named(found))
        return f"claim {self.claim}, request {self.request}: {self.wanted} wanted; {devices or 'no device is here'}"


ALIKE: Final = 4
"""Devices that failed alike and are told of in one: a chip has twenty."""


def _named(devices: Sequence[DeviceID]) -> list[str]:
    if len(devices) < ALIKE:
        return list(map(str, devices))
    return [f"{devices[0]} and {len(devices) - 1} others"]


@dataclass(frozen=True, slots=True)
class Unallocated:
    cause: Cause
    text: str
    requests: tuple[RequestReasons, ...] = ()

    @property
    def lines(self) -> list[str]:
        return [self.text, *(request.text for request in self.requests)]


_BINARY = tuple(zip("EPTGMK", range(60, 0, -10), strict=True))


def shown(amount: Amount) -> str:
    """A quantity as people read it, exactly: ``26Gi``, ``500m``, ``100``."""
    if amount.denominator == 1:
        whole = int(amount)
        unit = next((unit for unit, power in _BINARY if whole and whole % (1 << power) == 0), None)
        return f"{whole >> dict(_BINARY)[unit]}{unit}i" if unit else str(whole)
    for unit, power in (("m", 10**3), ("u", 10**6), ("n", 10**9)):
        if (amount * power).denominator == 1:
            return f"{int(amount * power)}{unit}"
    return str(float(amount))
