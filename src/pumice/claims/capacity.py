"""The capacity of a device that a request consumes, by the policies that the device publishes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from pumice.claims.objects import Capacity, Device
from pumice.claims.reasons import FitError, Rule, shown


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
