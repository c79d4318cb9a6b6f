"""The objects of ``resource.k8s.io/v1`` as far as allocation reads them, with Kubernetes' limits of length.

Keys that are not known here are ignored, as by every client of one version; where that could change what is meant, the object
is refused (a selector without CEL, a constraint of no known kind). So is what Kubernetes would not have stored: a BadInput names
the object and the place in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from pumice.model.errors import BadInput
from pumice.wire.quantity import parse_quantity

RESULTS_MOST: Final = 32
"""Devices that one claim may hold (AllocationResultsMaxSize)."""
DEVICES_MOST: Final = 128
DEVICES_MOST_WITH_MORE: Final = 64
"""Devices of a slice, and of one with taints or counters."""
ATTRIBUTES_MOST: Final = 32
"""Attributes and capacities of a device together."""

_Text = Annotated[str, Meta(max_length=64)]
_Name = Annotated[str, Meta(min_length=1, max_length=253)]
_Key = Annotated[str, Meta(min_length=1, max_length=96)]

Amount = int | Fraction


def plain(amount: Fraction) -> Amount:
    """Return the same amount, as an integer where it is one: Python counts with those quicker."""
    return amount.numerator if amount.denominator == 1 else amount


class DeviceID(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class Attribute(Struct, frozen=True, rename={"integer": "int", "boolean": "bool"}):
    """Exactly one of them is set."""

    integer: int | None = None
    boolean: bool | None = None
    string: _Text | None = None
    version: _Text | None = None

    @property
    def typed(self) -> tuple[str, Any]:
        """The type and the value: two attributes are alike where both agree (a version is compared as text)."""
        return next((name, value) for name in self.__struct_fields__ if (value := getattr(self, name)) is not None)


class ValidRange(Struct, frozen=True):
    min: Fraction
    max: Fraction | None = None
    step: Fraction | None = None


class RequestPolicy(Struct, frozen=True, rename="camel"):
    default: Fraction | None = None
    valid_values: Annotated[tuple[Fraction, ...], Meta(max_length=10)] = ()
    valid_range: ValidRange | None = None


class Capacity(Struct, frozen=True, rename="camel"):
    value: Fraction
    request_policy: RequestPolicy | None = None


class Counter(Struct, frozen=True):
    value: Fraction


Counters = Annotated[dict[_Key, Counter], Meta(max_length=32)]


class CounterSet(Struct, frozen=True):
    name: _Name
    counters: Counters


class CounterConsumption(Struct, frozen=True, rename="camel"):
    counter_set: _Name
    counters: Counters


class Taint(Struct, frozen=True):
    key: str
    effect: str
    value: str = ""


class Device(Struct, frozen=True, rename="camel", kw_only=True):
    name: _Name
    attributes: dict[_Key, Attribute] = {}
    capacity: dict[_Key, Capacity] = {}
    consumes_counters: Annotated[tuple[CounterConsumption, ...], Meta(max_length=2)] = ()
    node_name: str = ""
    node_selector: dict[str, Any] | None = None
    all_nodes: bool = False
    taints: Annotated[tuple[Taint, ...], Meta(max_length=16)] = ()
    binds_to_node: bool = False
    binding_conditions: Annotated[tuple[str, ...], Meta(max_length=4)] = ()
    binding_failure_conditions: Annotated[tuple[str, ...], Meta(max_length=4)] = ()
    allow_multiple_allocations: bool = False


class Pool(Struct, frozen=True, rename="camel"):
    name: _Name
    generation: int
    resource_slice_count: Annotated[int, Meta(gt=0)]


class SliceSpec(Struct, frozen=True, rename="camel", kw_only=True):
    driver: Annotated[str, Meta(min_length=1, max_length=63)]
    pool: Pool
    node_name: str = ""
    node_selector: dict[str, Any] | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: Annotated[tuple[Device, ...], Meta(max_length=DEVICES_MOST)] = ()
    shared_counters: Annotated[tuple[CounterSet, ...], Meta(max_length=8)] = ()


class ResourceSlice(Struct, frozen=True):
    name: str
    spec: SliceSpec

    @property
    def pool(self) -> tuple[str, str]:
        """The driver and the pool: two drivers may name theirs alike."""
        return self.spec.driver, self.spec.pool.name

    def id_of(self, device: Device) -> DeviceID:
        return DeviceID(*self.pool, device.name)


class CelSelector(Struct, frozen=True):
    expression: Annotated[str, Meta(max_length=10 << 10)]


class Selector(Struct, frozen=True):
    cel: CelSelector | None = None


Selectors = Annotated[tuple[Selector, ...], Meta(max_length=32)]


class Configuration(Struct, frozen=True):
    """Opaque parameters of a class or a claim; nobody but the driver reads them."""

    opaque: dict[str, Any] | None = None
    requests: Annotated[tuple[str, ...], Meta(max_length=32)] = ()


class ClassSpec(Struct, frozen=True, rename="camel"):
    selectors: Selectors = ()
    config: Annotated[tuple[Configuration, ...], Meta(max_length=32)] = ()
    extended_resource_name: str = ""


class DeviceClass(Struct, frozen=True):
    name: str
    spec: ClassSpec


class Toleration(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """An empty key stands for every key, an empty effect for every effect."""
        return (
            self.effect in ("", taint.effect)
            and self.key in ("", taint.key)
            and (self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value))
        )


class CapacityRequirements(Struct, frozen=True):
    requests: dict[str, Fraction] = {}


class DeviceRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """The fields that ``exactly`` and each alternative of ``firstAvailable`` have in common."""

    device_class_name: str = ""
    selectors: Selectors = ()
    allocation_mode: str = "ExactCount"
    count: Annotated[int, Meta(ge=0)] | None = None
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=16)] = ()
    capacity: CapacityRequirements = CapacityRequirements()
    admin_access: bool = False
    """Of ``exactly`` alone."""
    name: str = ""
    """Of an alternative alone."""


class Request(Struct, frozen=True, rename="camel"):
    name: _Name
    exactly: DeviceRequest | None = None
    first_available: Annotated[tuple[DeviceRequest, ...], Meta(max_length=8)] = ()


class Constraint(Struct, frozen=True, rename="camel"):
    requests: Annotated[tuple[str, ...], Meta(max_length=32)] = ()
    """None: all of them."""
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimDevices(Struct, frozen=True):
    requests: Annotated[tuple[Request, ...], Meta(max_length=32)] = ()
    constraints: Annotated[tuple[Constraint, ...], Meta(max_length=32)] = ()
    config: Annotated[tuple[Configuration, ...], Meta(max_length=32)] = ()


class ClaimSpec(Struct, frozen=True):
    devices: ClaimDevices = ClaimDevices()


class TemplateSpec(Struct, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class ResourceClaim(Struct, frozen=True):
    namespace: str
    name: str
    devices: ClaimDevices

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Result(Struct, frozen=True, rename="camel", kw_only=True):
    """One device of an allocated claim."""

    driver: str
    pool: str
    device: str
    request: str = ""
    admin_access: bool = False
    share_id: str = field(name="shareID", default="")
    consumed_capacity: dict[str, Fraction] = {}
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


# -- From the objects of the API server, or of a file, to values ----------------------------------------------------


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
