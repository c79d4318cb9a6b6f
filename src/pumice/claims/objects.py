"""The objects of ``resource.k8s.io/v1`` as far as allocation reads them, with Kubernetes' limits of length.

Keys that are not known here are ignored, as by every client of one version; where that could change what is meant, ``reading``
refuses (a selector without CEL, a constraint of no known kind).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct, field

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
