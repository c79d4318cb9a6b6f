"""From the objects of the API server, or of a file, to values. What Kubernetes would not have stored is BadInput that names the
object and the place in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeVar

import msgspec

from pumice.claims.objects import (
    ATTRIBUTES_MOST,
    DEVICES_MOST_WITH_MORE,
    Capacity,
    ClaimDevices,
    ClaimSpec,
    ClassSpec,
    Device,
    DeviceClass,
    DeviceRequest,
    Request,
    ResourceClaim,
    ResourceSlice,
    Result,
    SliceSpec,
    TemplateSpec,
)
from pumice.model.errors import BadInput
from pumice.wire.quantity import parse_quantity

T = TypeVar("T")


def slice_of(object_: Mapping[str, Any]) -> ResourceSlice:
    """Return a ResourceSlice. Raises BadInput."""
    spec = _convert("ResourceSlice", object_, object_.get("spec"), SliceSpec)
    _refuse("ResourceSlice", object_, _problems_of_slice(spec))
    return ResourceSlice(_name(object_), spec)


def class_of(object_: Mapping[str, Any]) -> DeviceClass:
    """Return a DeviceClass. Raises BadInput."""
    spec = _convert("DeviceClass", object_, object_.get("spec") or {}, ClassSpec)
    _refuse(
        "DeviceClass",
        object_,
        (f"selector {at} has no cel" for at, one in enumerate(spec.selectors) if one.cel is None),
    )
    return DeviceClass(_name(object_), spec)


def claim_of(object_: Mapping[str, Any]) -> ResourceClaim:
    """Return a ResourceClaim, or what a ResourceClaimTemplate makes. Raises BadInput."""
    kind = str(object_.get("kind") or "ResourceClaim")
    spec = object_.get("spec") or {}
    if kind == "ResourceClaimTemplate":
        devices = _convert(kind, object_, spec, TemplateSpec).spec.devices
    else:
        devices = _convert(kind, object_, spec, ClaimSpec).devices
    _refuse(kind, object_, _problems_of_claim(devices))
    namespace = (object_.get("metadata") or {}).get("namespace") or "default"
    return ResourceClaim(str(namespace), _name(object_), devices)


def _results(object_: Mapping[str, Any]) -> Any:
    found: Any = object_
    for key in ("status", "allocation", "devices", "results"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def results_of(object_: Mapping[str, Any]) -> tuple[Result, ...]:
    """Return the devices that a claim's status holds; none of a claim that is not allocated. Raises BadInput."""
    return _convert("ResourceClaim", object_, _results(object_) or (), tuple[Result, ...], at="status.allocation.devices.results")


def devices_held(object_: Mapping[str, Any]) -> tuple[Result, ...]:
    """Return the devices that the status of a claim names, as far as it can be read: one whose share cannot be is held whole."""
    found, held = _results(object_), []
    for one in found if isinstance(found, list | tuple) else ():
        if not isinstance(one, Mapping):
            continue
        try:
            held.append(msgspec.convert(one, Result, dec_hook=_quantity))
        except (msgspec.ValidationError, ValueError):
            driver, pool, device = (one.get(key) for key in ("driver", "pool", "device"))
            if isinstance(driver, str) and isinstance(pool, str) and isinstance(device, str):
                held.append(Result(driver=driver, pool=pool, device=device))
    return tuple(held)


def _name(object_: Mapping[str, Any]) -> str:
    return str((object_.get("metadata") or {}).get("name") or "")


def _convert(kind: str, object_: Mapping[str, Any], value: Any, into: type[T], at: str = "spec") -> T:
    try:
        return msgspec.convert(value, into, dec_hook=_quantity)
    except msgspec.ValidationError as problem:
        said = str(problem).replace("`$", f"`{at}")
        raise BadInput(f"{kind} {_name(object_)}: {said}") from None


def _quantity(kind: type, value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a quantity")
    return parse_quantity(value)


def _refuse(kind: str, object_: Mapping[str, Any], problems: Iterator[str]) -> None:
    problem = next(problems, None)
    if problem is not None:
        raise BadInput(f"{kind} {_name(object_)}: {problem}")


def _problems_of_slice(spec: SliceSpec) -> Iterator[str]:
    ways = (spec.node_name, spec.node_selector, spec.all_nodes, spec.per_device_node_selection)
    if sum(map(_is_set, ways)) != 1:
        yield "exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection must be set"
    if spec.devices and spec.shared_counters:
        yield "either devices or sharedCounters, not both"
    most = DEVICES_MOST_WITH_MORE if any(one.taints or one.consumes_counters for one in spec.devices) else None
    if most and len(spec.devices) > most:
        yield f"{len(spec.devices)} devices; with taints or counters at most {most}"
    for device in spec.devices:
        yield from (f"device {device.name}: {problem}" for problem in _problems_of_device(spec, device))


def _problems_of_device(spec: SliceSpec, device: Device) -> Iterator[str]:
    if len(device.attributes) + len(device.capacity) > ATTRIBUTES_MOST:
        yield f"more than {ATTRIBUTES_MOST} attributes and capacities"
    for name, attribute in device.attributes.items():
        kinds = (attribute.integer, attribute.boolean, attribute.string, attribute.version)
        if kinds.count(None) != len(kinds) - 1:
            yield f"attribute {name}: exactly one of int, bool, string and version must be set"
    own = sum(map(_is_set, (device.node_name, device.node_selector, device.all_nodes)))
    if own != spec.per_device_node_selection:
        yield "nodeName, nodeSelector or allNodes: one of them with perDeviceNodeSelection, none without"
    for name, capacity in device.capacity.items():
        if capacity.request_policy is not None:
            yield from (f"capacity {name}: {problem}" for problem in _problems_of_policy(device, capacity))


def _problems_of_policy(device: Device, capacity: Capacity) -> Iterator[str]:
    policy = capacity.request_policy
    assert policy is not None
    if not device.allow_multiple_allocations:
        yield "a requestPolicy is for devices that allow multiple allocations"
    if policy.valid_values and policy.valid_range:
        yield "either validValues or validRange, not both"
    if (policy.valid_values or policy.valid_range) and policy.default is None:
        yield "validValues and validRange need a default"
    if policy.valid_range is not None and policy.valid_range.step is not None and policy.valid_range.step <= 0:
        yield "a step must be above 0"


def _is_set(value: Any) -> bool:
    return value is not None and value not in (False, "")


def _problems_of_claim(devices: ClaimDevices) -> Iterator[str]:
    names = [request.name for request in devices.requests]
    if len(set(names)) != len(names):
        yield "two requests have one name"
    for request in devices.requests:
        yield from (f"request {request.name}: {problem}" for problem in _problems_of_request(request))
    for at, constraint in enumerate(devices.constraints):
        if (constraint.match_attribute is None) == (constraint.distinct_attribute is None):
            yield f"constraint {at}: exactly one of matchAttribute and distinctAttribute must be set"


def _problems_of_request(request: Request) -> Iterator[str]:
    if (request.exactly is None) == (not request.first_available):
        yield "exactly one of exactly and firstAvailable must be set"
    if request.exactly is not None:
        yield from _problems_of_ask(request.exactly)
    for alternative in request.first_available:
        if not alternative.name:
            yield "an alternative has no name"
        if alternative.admin_access:
            yield f"alternative {alternative.name}: adminAccess is for exactly"
        yield from (f"alternative {alternative.name}: {problem}" for problem in _problems_of_ask(alternative))


def _problems_of_ask(ask: DeviceRequest) -> Iterator[str]:
    if not ask.device_class_name:
        yield "deviceClassName is missing"
    if ask.allocation_mode not in ("ExactCount", "All"):
        yield f"allocationMode {ask.allocation_mode!r} is neither ExactCount nor All"
    for at, selector in enumerate(ask.selectors):
        if selector.cel is None:
            yield f"selector {at} has no cel"
