"""Resource vectors of the core: what a pod requests and what nodes and queues hold.

Units: cpu in thousandths, memory in bytes, every other resource in thousandths, only ``pods`` in whole units. Values are exact
integers, clamped to ``HUGE`` so that no arithmetic overflows 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import repeat
from math import ceil
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pumice.wire import kubernetes
from pumice.wire.objects import Container, ContainerStatus, Pod, Quantities, Resources
from pumice.wire.quantity import parse_quantity

Vector = dict[str, int]
"""Resource name to amount; a missing name means 0."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
# What the pod asks for, or the defaults by which Kubernetes spreads pods that ask for nothing (nodeorder only).
SPREAD_CPU: Final = "~cpu"
SPREAD_MEMORY: Final = "~memory"
DEFAULT_SPREAD_CPU: Final = 100
DEFAULT_SPREAD_MEMORY: Final = 200 * 1024 * 1024

_NOTHING: Final[Vector] = {}

CLASS_COUNT: Final = "deviceclass/"
CLASS_CAPACITY: Final = ".deviceclass/"
"""Before the name of a DeviceClass: devices of claims, and after that of a capacity what is consumed of it (Volcano
pkg/scheduler/plugins/capacity)."""

HUGE: Final = 2**58
"""Larger than any cluster and small enough that a sum of 16 stays inside 63 bits."""


class Request(Struct, frozen=True, cache_hash=True):
    """The request of one pod to its node.

    ``items`` are the requested dimensions (always with ``pods``); ``charge`` adds the spread defaults, which count as
    used but are never compared. ``refused`` is a sentence when the request can never be honoured.
    """

    items: tuple[tuple[str, int], ...]
    spread: tuple[int, int] = (DEFAULT_SPREAD_CPU, DEFAULT_SPREAD_MEMORY)
    refused: str = ""

    @property
    def charge(self) -> tuple[tuple[str, int], ...]:
        return (*self.items, (SPREAD_CPU, self.spread[0]), (SPREAD_MEMORY, self.spread[1]))

    @property
    def best_effort(self) -> bool:
        """Nothing requested but a place: such a pod is placed by backfill (Volcano pkg/scheduler/api/resource_info.go)."""
        return len(self.items) == 1

    def amounts(self) -> Vector:
        return dict(self.items)


@lru_cache(maxsize=8192)  # nodes and pods repeat each other's quantities
def amount(name: str, quantity: str | int | float) -> int:
    """One quantity in the core's unit, clamped to ±HUGE. Raises ValueError when it is no quantity."""
    value = parse_quantity(quantity)
    scaled = ceil(value) if in_whole_units(name) else ceil(value * 1000)
    return max(-HUGE, min(HUGE, scaled))


def of_claims(name: str) -> bool:
    """Return whether an amount is one of devices that are had by claim: no node says how many there are."""
    return CLASS_COUNT in name and (name.startswith(CLASS_COUNT) or CLASS_CAPACITY in name)


def in_whole_units(name: str) -> bool:
    return name in (MEMORY, PODS) or CLASS_CAPACITY in name


def counted(name: str) -> bool:
    """Return whether a resource name is part of the vector at all (Volcano pkg/scheduler/api/resource_info.go)."""
    if name in (CPU, MEMORY, PODS, "ephemeral-storage") or name.startswith(("hugepages-", "attachable-volumes-")):
        return True
    if "/" not in name or name.startswith(("requests.", "limits.", "count/")):
        return False
    return not kubernetes.in_domain(name)


def vector(quantities: Mapping[str, str | int | float]) -> Vector:
    """A resource list as a vector; unreadable quantities count as absent, negative ones as 0, uncounted names are skipped."""
    found: Vector = {}
    for name, quantity in quantities.items():
        if counted(name):
            try:
                found[name] = max(0, amount(name, quantity))
            except ValueError:
                continue
    return found


def pod_request(pod: Pod, parameters: frozenset[str] = frozenset()) -> Request:
    """The pod's request by the rule of Volcano pkg/scheduler/api/pod_info.go. ``parameters`` are names that are no resources
    (D-40)."""
    try:
        total = _combine(pod)
    except ValueError as error:
        return Request(((PODS, 1),), refused=str(error))
    for name, value in total.items():
        if value < 0:
            return Request(((PODS, 1),), refused=f"request of {name} is negative")
    named = {n: v for n, v in total.items() if v > 0 and n != PODS and counted(n) and n not in parameters}
    items = (*((n, named[n]) for n in sorted(named, key=dimension_order)), (PODS, 1))
    spread = _combine(pod, {CPU: DEFAULT_SPREAD_CPU, MEMORY: DEFAULT_SPREAD_MEMORY})
    return Request(items, (min(HUGE, spread.get(CPU, 0)), min(HUGE, spread.get(MEMORY, 0))))


def dimension_order(name: str) -> tuple[int, str]:
    """cpu, memory, then the others by name: the order in which a shortage is named."""
    return (0 if name == CPU else 1 if name == MEMORY else 2, name)


def _combine(pod: Pod, missing: Vector = _NOTHING) -> Vector:
    """The request of all containers together; ``missing`` is what one that says nothing counts as asking for."""
    spec = pod.spec
    total: Vector = {}
    for container in spec.containers:
        add(total, _requests(container, missing).items())
    if spec.init_containers:
        sidecars: Vector = {}
        peak: Vector = {}
        for container in spec.init_containers:
            wanted = _requests(container, missing)
            if container.restart_policy == "Always":
                add(sidecars, wanted.items())
                raise_to(peak, sidecars)
            else:
                add(wanted, sidecars.items())
                raise_to(peak, wanted)
        add(total, sidecars.items())
        raise_to(total, peak)
    if spec.resources is not None:  # pod-level resources override where present
        total.update({n: amount(n, q) for n, q in {**spec.resources.limits, **spec.resources.requests}.items()})
    add(total, {n: amount(n, q) for n, q in spec.overhead.items()}.items())
    return total


def _requests(container: Container, missing: Vector) -> Vector:
    """Requests; an extended resource given only as a limit is requested too, as the API server fills it in."""
    found = dict(missing)
    for name, quantity in container.resources.limits.items():
        found[name] = amount(name, quantity)
    for name, quantity in container.resources.requests.items():
        found[name] = amount(name, quantity)
    return found


def add(into: Vector, items: Iterable[tuple[str, int]]) -> None:
    for name, value in items:
        into[name] = into.get(name, 0) + value


def subtract(into: Vector, items: Iterable[tuple[str, int]]) -> None:
    for name, value in items:
        left = into.get(name, 0) - value
        if left:
            into[name] = left
        else:
            into.pop(name, None)


_SHARED_KEPT = 20_000
_shared: dict[tuple[tuple[str, int], ...], Vector] = {}


def shared(vector: Vector) -> Vector:
    """The one object that stands for all vectors equal to this; nobody may change it in place."""
    key = tuple(vector.items())
    found = _shared.get(key)
    if found is None:
        if len(_shared) >= _SHARED_KEPT:
            _shared.clear()
        found = _shared[key] = vector
    return found


def raise_to(into: Vector, other: Mapping[str, int]) -> None:
    for name, value in other.items():
        if into.get(name, 0) < value:
            into[name] = value


def exceeded(left: Mapping[str, int], right: Mapping[str, int]) -> Vector:
    """max(left - right, 0) per dimension; zero dimensions are left out."""
    return {n: v - right.get(n, 0) for n, v in left.items() if v > right.get(n, 0)}


def lacking(wanted: Mapping[str, int], limit: Mapping[str, int], *, missing: int = 0) -> list[str]:
    """Requested dimensions (``pods`` apart) in which ``wanted`` is above ``limit``, in naming order."""
    short = [n for n, v in wanted.items() if v > 0 and n != PODS and v > limit.get(n, missing)]
    return sorted(short, key=dimension_order)


def unit(name: str) -> int:
    """Return what divides an amount into the numbers that programs are told: thousandths of a core, bytes, whole pods and
    devices."""
    return 1 if name == CPU or in_whole_units(name) else 1000


def amount_text(name: str, value: int) -> str:
    """One amount as people write it: memory in Mi."""
    mib = name == MEMORY or (CLASS_CAPACITY in name and value and not value % 2**20)
    return f"{value / 2**20:.0f}Mi" if mib else str(render({name: value})[name])


def render(vector: Mapping[str, int]) -> Quantities:
    """A vector as a resource list of the API (Volcano pkg/scheduler/framework/job_updater.go)."""
    out: Quantities = {}
    for name in sorted(vector, key=dimension_order):
        value = vector[name]
        if in_whole_units(name):
            out[name] = str(value)
        elif name == CPU:
            out[name] = f"{value}m" if value % 1000 else str(value // 1000)
        else:
            out[name] = str(value // 1000) if value % 1000 == 0 else f"{value}m"
    return out


# -- vectors shared by thousands of jobs: nobody may change them in place ----------------------------------------------


NOTHING: dict[str, Any] = {}
nothing: Callable[[], dict[str, Any]] = repeat(NOTHING).__next__
"""Gives ``NOTHING``, six times for each job that is made: a function of Python's own would take three times as long."""


_SPARES_KEPT = 4096
_spares: dict[int, tuple[Vector, Vector]] = {}


def spare(allocated: Vector, least: Vector | None) -> Vector:
    """Return what is held beyond the minimum, pods apart. Without a minimum it is the same for all that hold the same."""
    known = _spares.get(id(allocated)) if least is None else None
    if known is not None and known[0] is allocated:
        return known[1]
    beyond = exceeded(allocated, least or {})
    beyond.pop("pods", None)
    beyond = shared(beyond)
    if least is None:
        if len(_spares) >= _SPARES_KEPT:
            _spares.clear()
        _spares[id(allocated)] = allocated, beyond
    return beyond


def changed(usage: Vector, amounts: Vector, sign: int) -> Vector:
    """``usage`` with one task's demand more or less, as a shared vector."""
    if sign > 0 and not usage:
        return amounts
    if sign < 0 and usage == amounts:
        return NOTHING
    new = dict(usage)
    (add if sign > 0 else subtract)(new, amounts.items())
    return shared(new)


def repack(table: dict[Any, Any]) -> None:
    """Give back the room of what was deleted: a dict keeps its place, and doubles when these are used up."""
    kept = dict(table)
    table.clear()
    table.update(kept)


# -- requests of a pod that is resized in place: the larger of wanted and held (Kubernetes' ``PodRequests``) -----------


RESIZE_PENDING, INFEASIBLE = "PodResizePending", "Infeasible"


def while_resized(pod: Pod) -> Pod:
    """The pod with the requests that count for it; itself where spec and status agree, which is nearly always."""
    status, spec = pod.status, pod.spec
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return pod
    refused = any(c.type == RESIZE_PENDING and c.status == "True" and c.reason == INFEASIBLE for c in status.conditions)
    containers = [_larger(c, status.container_statuses, refused) for c in spec.containers]
    sidecars = [
        _larger(c, status.init_container_statuses, refused) if c.restart_policy == "Always" else c
        for c in spec.init_containers
    ]
    whole = spec.resources
    if whole is not None and status.resources is not None:
        whole = _counted(whole, status.resources, status.allocated_resources, refused)
    changed = [*containers, *sidecars, whole]
    if all(new is old for new, old in zip(changed, [*spec.containers, *spec.init_containers, spec.resources], strict=True)):
        return pod
    return replace(pod, spec=replace(spec, containers=containers, init_containers=sidecars, resources=whole))


def _larger(container: Container, statuses: Iterable[ContainerStatus], refused: bool) -> Container:
    for status in statuses:
        if status.name == container.name and status.resources is not None:
            found = _counted(container.resources, status.resources, status.allocated_resources, refused)
            return container if found is container.resources else replace(container, resources=found)
    return container


def _counted(wanted: Resources, usage: Resources, admitted: Quantities, refused: bool) -> Resources:
    """``wanted`` itself where nothing else is larger. A resize that the node refused for good is not wanted any more."""
    if (usage.requests or admitted) == wanted.requests and (admitted or usage.requests) == wanted.requests:
        return wanted
    counted = {} if refused else dict(wanted.requests)
    for source in (usage.requests, admitted):
        for name, quantity in source.items():
            try:
                if name not in counted or amount(name, quantity) > amount(name, counted[name]):
                    counted[name] = quantity
            except ValueError:
                continue  # it is no quantity: what is wanted counts
    return wanted if counted == wanted.requests else replace(wanted, requests=counted)
