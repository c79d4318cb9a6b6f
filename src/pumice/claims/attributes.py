"""Constraints over the devices of one claim: attributes that must be alike, or all different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.claims.objects import Constraint, Device
from pumice.claims.reasons import FitError, Rule


def attribute_of(device: Device, driver: str, name: str) -> tuple[str, Any] | None:
    """Return type and value of an attribute by its full name; the driver's own may be published without their domain."""
    found = device.attributes.get(name)
    domain, slash, own = name.partition("/")
    if found is None and slash and domain == driver:
        found = device.attributes.get(own)
    return None if found is None else found.typed


def cards_of(device: Device, driver: str) -> tuple[str, ...]:
    """Return the UUIDs by which a device says which card it is, or which one it is a part of; and the name by which others count
    its chip."""
    found = (attribute_of(device, driver, f"{driver}/{name}") for name in ("uuid", "parentUUID", "chipName"))
    return tuple(str(one[1]) for one in found if one is not None and one[0] == "string")


@dataclass(slots=True)
class Constraining:
    """A constraint of a claim, and the values of the devices that were taken so far."""

    constraint: Constraint
    values: list[tuple[str, Any]] = field(default_factory=list)

    def concerns(self, names: Sequence[str]) -> bool:
        """``names``: of the request, and of the alternative as ``request/alternative``."""
        return not self.constraint.requests or any(name in self.constraint.requests for name in names)

    def fit_error(self, device: Device, driver: str) -> FitError | None:
        alike = self.constraint.match_attribute
        name = alike or self.constraint.distinct_attribute or ""
        value = attribute_of(device, driver, name)
        if value is None:
            return FitError(Rule.CONSTRAINT, name, detail="the device has no such attribute")
        if alike and self.values and self.values[0] != value:
            return FitError(Rule.CONSTRAINT, name, detail=f"{value[1]} does not match {self.values[0][1]}")
        if not alike and value in self.values:
            return FitError(Rule.CONSTRAINT, name, detail=f"another device has {value[1]}, too")
        return None

    def add(self, device: Device, driver: str) -> None:
        value = attribute_of(
            device, driver, self.constraint.match_attribute or self.constraint.distinct_attribute or ""
        )
        assert value is not None
        self.values.append(value)

    def remove(self) -> None:
        """Take back the device that was added last: the search goes back the way that it came."""
        self.values.pop()
