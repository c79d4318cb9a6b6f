"""Rules of Dynamic Resource Allocation's kinds, group resource.k8s.io (pkg/apis/resource/validation of Kubernetes 1.36).

Kept are the rules by which an object would be misread if it were stored. Names and patterns of attributes are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pumice.cel.values import CelError
from pumice.claims.selecting import program_of
from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import (
    FieldProblem,
    duplicate,
    forbidden_value,
    invalid_value,
    required,
    unsupported,
)
from pumice_lab.apiserver.names import bad_label, bad_subdomain
from pumice_lab.apiserver.strategies.base import Strategy, at

Json = dict[str, Any]
Problems = list[FieldProblem]
REQUESTS_MOST, ALTERNATIVES_MOST, CONSUMERS_MOST, SETS_MOST = 32, 8, 256, 8
DEVICES_MOST, DEVICES_MOST_WITH_MORE = 128, 64
EXPRESSION_MOST: Final = 10 << 10
_MODES = ("All", "ExactCount")
_WAYS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_WAY = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


class _FixedSpec(Strategy):
    def validate_update(self, value: Json, old: Json) -> Problems:
        if value.get("spec") != old.get("spec"):
            return [invalid_value("spec", value.get("spec"), "field is immutable")]
        return []


class ResourceClaimStrategy(_FixedSpec):
    def default(self, value: Json) -> None:
        _default_requests(at(value, "spec.devices.requests") or ())

    def prepare_create(self, value: Json) -> None:
        value["status"] = {}

    def prepare_update(self, value: Json, old: Json) -> None:
        value["status"] = old.get("status") or {}

    def prepare_status_update(self, value: Json, old: Json) -> None:
        """Remove the status of devices whose allocation is gone."""
        status = value.get("status") or {}
        gone = _allocated(old.get("status") or {}) - _allocated(status)
        if status.get("devices"):
            status["devices"] = [device for device in status["devices"] if _id(device) not in gone]
            if not status["devices"]:
                del status["devices"]

    def validate_create(self, value: Json) -> Problems:
        return [*_devices_of_claim(value.get("spec") or {}, "spec.devices")]

    def validate_again(self, value: Json, old: Json, *, narrow: bool) -> Problems:
        return [*_status(value, old)] if narrow else []


class ResourceClaimTemplateStrategy(_FixedSpec):
    def default(self, value: Json) -> None:
        _default_requests(at(value, "spec.spec.devices.requests") or ())

    def validate_create(self, value: Json) -> Problems:
        return [*_devices_of_claim(at(value, "spec.spec") or {}, "spec.spec.devices")]


class DeviceClassStrategy(Strategy):
    counts_generation = True

    def validate(self, value: Json) -> Problems:
        spec = value.get("spec") or {}
        return [*_selectors(spec.get("selectors") or (), "spec.selectors"), *_configs(spec, "spec", None)]


class ResourceSliceStrategy(Strategy):
    counts_generation = True
    selectable = frozenset(("metadata.name", "spec.nodeName", "spec.driver"))

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"spec.nodeName": at(value, "spec.nodeName", ""), "spec.driver": at(value, "spec.driver", "")}

    def validate(self, value: Json) -> Problems:
        return [*_slice(value.get("spec") or {})]

    def validate_update(self, value: Json, old: Json) -> Problems:
        return [
            invalid_value(f"spec.{path}", at(value, f"spec.{path}"), "field is immutable")
            for path in ("pool.name", "driver", "nodeName")
            if at(value, f"spec.{path}") != at(old, f"spec.{path}")
        ]


STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("resource.k8s.io", "ResourceClaim"): ResourceClaimStrategy(),
    ("resource.k8s.io", "ResourceClaimTemplate"): ResourceClaimTemplateStrategy(),
    ("resource.k8s.io", "DeviceClass"): DeviceClassStrategy(),
    ("resource.k8s.io", "ResourceSlice"): ResourceSliceStrategy(),
}


# -- A claim's spec --------------------------------------------------------------------------------------------------


def _default_requests(requests: Iterable[Json]) -> None:
    for request in requests:
        for ask in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if isinstance(ask, dict):
                ask.setdefault("allocationMode", "ExactCount")
                if ask["allocationMode"] == "ExactCount" and not ask.get("count"):
                    ask["count"] = 1


def _devices_of_claim(spec: Json, path: str) -> Iterator[FieldProblem]:
    devices = spec.get("devices") or {}
    names = _request_names(devices)
    yield from _set(devices.get("requests") or (), REQUESTS_MOST, f"{path}.requests", lambda one: one.get("name"), _request)
    few, too_many = _few(devices.get("constraints") or (), REQUESTS_MOST, f"{path}.constraints")
    yield from too_many
    for i, constraint in enumerate(few):
        where = f"{path}.constraints[{i}]"
        yield from _references(constraint, where, names)
        if not constraint.get("matchAttribute") and not constraint.get("distinctAttribute"):
            detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
            yield required(where, detail)
    yield from _configs(devices, path, names)


def _request(request: Json, path: str) -> Iterator[FieldProblem]:
    yield from _label(request.get("name") or "", f"{path}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or ()
    if exactly is None and not alternatives:
        yield required(path, _ONE_KIND)
    elif exactly is not None and alternatives:
        yield invalid_value(path, None, f"{_ONE_KIND}, but multiple fields are set")
    elif exactly is not None:
        yield from _ask(exactly, f"{path}.exactly")
    else:
        yield from _set(alternatives, ALTERNATIVES_MOST, f"{path}.firstAvailable", lambda one: one.get("name"), _alternative)


def _alternative(ask: Json, path: str) -> Iterator[FieldProblem]:
    yield from _label(ask.get("name") or "", f"{path}.name")
    yield from _ask(ask, path)


def _ask(ask: Json, path: str) -> Iterator[FieldProblem]:
    if not ask.get("deviceClassName"):
        yield required(f"{path}.deviceClassName")
    elif why := bad_subdomain(ask["deviceClassName"]):
        yield invalid_value(f"{path}.deviceClassName", ask["deviceClassName"], why)
    yield from _selectors(ask.get("selectors") or (), f"{path}.selectors")
    mode, count = ask.get("allocationMode"), ask.get("count") or 0
    if mode not in _MODES:
        yield unsupported(f"{path}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        yield invalid_value(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield invalid_value(f"{path}.count", count, "must be greater than zero")


def _selectors(selectors: Sequence[Json], path: str) -> Iterator[FieldProblem]:
    few, too_many = _few(selectors, REQUESTS_MOST, path)
    yield from too_many
    for i, selector in enumerate(few):
        where, cel = f"{path}[{i}].cel", selector.get("cel")
        if cel is None:
            yield required(where)
            continue
        expression = cel.get("expression") or ""
        if len(expression) > EXPRESSION_MOST:
            yield FieldProblem("FieldValueTooLong", f"{where}.expression", f"may not be more than {EXPRESSION_MOST} bytes", "")
            continue
        try:
            program_of(expression)
        except CelError as problem:
            yield invalid_value(f"{where}.expression", expression, str(problem))


def _configs(devices: Json, path: str, names: Mapping[str, frozenset[str]] | None) -> Iterator[FieldProblem]:
    few, too_many = _few(devices.get("config") or (), REQUESTS_MOST, f"{path}.config")
    yield from too_many
    for i, config in enumerate(few):
        where = f"{path}.config[{i}]"
        if names is not None:
            yield from _references(config, where, names)
        opaque = config.get("opaque")
        if opaque is None:
            yield required(f"{where}.opaque")
        elif not opaque.get("driver"):
            yield required(f"{where}.opaque.driver")
        elif opaque.get("parameters") is None:
            yield required(f"{where}.opaque.parameters")


def _request_names(devices: Json) -> dict[str, frozenset[str]]:
    return {str(request.get("name")): frozenset(str(one.get("name")) for one in request.get("firstAvailable") or ())
            for request in devices.get("requests") or ()}  # fmt: skip


def _references(holder: Json, path: str, names: Mapping[str, frozenset[str]]) -> Iterator[FieldProblem]:
    yield from _set(holder.get("requests") or (), REQUESTS_MOST, f"{path}.requests", str,
                    lambda name, where: _reference(name, where, names))  # fmt: skip


def _reference(name: str, path: str, names: Mapping[str, frozenset[str]]) -> Iterator[FieldProblem]:
    request, _, alternative = name.partition("/")
    if request not in names or (alternative and alternative not in names[request]):
        yield invalid_value(path, name, _NO_SUCH_REQUEST)


# -- A claim's status ------------------------------------------------------------------------------------------------


def _id(device: Json) -> tuple[str, ...]:
    return tuple(str(device.get(key) or "") for key in ("driver", "pool", "device", "shareID"))


def _allocated(status: Json) -> set[tuple[str, ...]]:
    return {_id(result) for result in at(status, "allocation.devices.results") or ()}


def _status(value: Json, old: Json) -> Iterator[FieldProblem]:
    status, before = value.get("status") or {}, old.get("status") or {}
    consumers = status.get("reservedFor") or ()
    yield from _set(consumers, CONSUMERS_MOST, "status.reservedFor", lambda one: one.get("uid"), _consumer)
    there = _allocated(status)
    for i, device in enumerate(status.get("devices") or ()):
        if _id(device) not in there:
            yield invalid_value(f"status.devices[{i}]", "/".join(_id(device)[:3]), "must be an allocated device in the claim")
    if consumers and not status.get("allocation"):
        yield forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set")
    elif value["metadata"].get("deletionTimestamp") and any(one not in (before.get("reservedFor") or ()) for one in consumers):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden_value("status.reservedFor", detail)
    if before.get("allocation") and status.get("allocation"):
        if before["allocation"] != status["allocation"]:
            yield invalid_value("status.allocation", status["allocation"], "field is immutable")
    elif status.get("allocation"):
        names = _request_names(at(value, "spec.devices") or {})
        results = at(status, "allocation.devices.results") or ()
        path = "status.allocation.devices.results"
        few, too_many = _few(results, REQUESTS_MOST, path)
        yield from too_many
        for i, result in enumerate(few):
            yield from _reference(result.get("request") or "", f"{path}[{i}].request", names)
            for key in ("driver", "pool", "device"):
                if not result.get(key):
                    yield required(f"{path}[{i}].{key}")


def _consumer(consumer: Json, path: str) -> Iterator[FieldProblem]:
    for key in ("resource", "name", "uid"):
        if not consumer.get(key):
            yield required(f"{path}.{key}")


# -- A slice ---------------------------------------------------------------------------------------------------------


def _slice(spec: Json) -> Iterator[FieldProblem]:
    if not spec.get("driver"):
        yield required("spec.driver")
    elif why := bad_subdomain(spec["driver"]):
        yield invalid_value("spec.driver", spec["driver"], why)
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        yield required("spec.pool.name")
    if int(pool.get("resourceSliceCount") or 0) <= 0:
        yield invalid_value("spec.pool.resourceSliceCount", pool.get("resourceSliceCount") or 0, "must be greater than zero")
    if int(pool.get("generation") or 0) < 0:
        yield invalid_value("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")
    ways = [way for way in _WAYS if spec.get(way)]
    if not ways:
        yield required("spec", _ONE_WAY)
    elif len(ways) > 1:
        named = ", ".join(f"`{way}`" for way in ways)
        yield invalid_value("spec", f"{{{named}}}", f"{_ONE_WAY}, but multiple fields are set")
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    if devices and sets:
        yield invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    more = any(device.get("taints") or device.get("consumesCounters") for device in devices or ())
    most = DEVICES_MOST_WITH_MORE if more else DEVICES_MOST
    yield from _set(devices or (), most, "spec.devices", lambda one: one.get("name"), _device)
    yield from _set(sets or (), SETS_MOST, "spec.sharedCounters", lambda one: one.get("name"), _counter_set)


def _counter_set(counters: Json, path: str) -> Iterator[FieldProblem]:
    yield from _label(counters.get("name") or "", f"{path}.name")
    if not counters.get("counters"):
        yield required(f"{path}.counters")


def _device(device: Json, path: str) -> Iterator[FieldProblem]:
    yield from _label(device.get("name") or "", f"{path}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (length := len(attributes) + len(capacity)) > REQUESTS_MOST:
        yield invalid_value(path, length, f"the total number of attributes and capacities must not exceed {REQUESTS_MOST}")
    for name, attribute in attributes.items():
        if sum(value is not None for value in attribute.values()) != 1:
            yield invalid_value(f"{path}.attributes[{name}]", "", "exactly one value must be specified")
    for name, one in capacity.items():
        if policy := one.get("requestPolicy"):
            where = f"{path}.capacity[{name}].requestPolicy"
            if device.get("allowMultipleAllocations"):
                yield from _policy(policy, parse_quantity(one.get("value", "0")), where)
            else:
                yield forbidden_value(where, "allowMultipleAllocations must be true")
    few, too_many = _few(device.get("taints") or (), 16, f"{path}.taints")
    yield from too_many
    for i, taint in enumerate(few):
        for key in ("key", "effect"):
            if not taint.get(key):
                yield required(f"{path}.taints[{i}].{key}")


def _policy(policy: Json, value: Any, path: str) -> Iterator[FieldProblem]:
    range_, values = policy.get("validRange"), policy.get("validValues")
    if range_ and values:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden_value(path, detail)
    if (range_ or values) and policy.get("default") is None:
        yield required(f"{path}.default", f"required when {'validRange' if range_ else 'validValues'} is defined")
    if not range_:
        return
    if range_.get("min") is None:
        yield required(f"{path}.validRange.min", "required when validRange is defined")
    elif parse_quantity(range_["min"]) > value:
        yield invalid_value(f"{path}.validRange.min", range_["min"], "min is larger than capacity value")


# -- Lists -----------------------------------------------------------------------------------------------------------


def _few(items: Sequence[Any], most: int, path: str) -> tuple[Sequence[Any], Problems]:
    """Return the items and no problem; of a list that is too long none, and the problem."""
    if len(items) <= most:
        return items, []
    return (), [FieldProblem("FieldValueTooMany", path, f"must have at most {most} items", len(items))]


def _set(
    items: Sequence[Any], most: int, path: str, key: Callable[[Any], Any], each: Callable[[Any, str], Iterable[FieldProblem]]
) -> Iterator[FieldProblem]:
    seen: set[Any] = set()
    few, too_many = _few(items, most, path)
    yield from too_many
    for i, item in enumerate(few):
        yield from each(item, f"{path}[{i}]")
        if key(item) in seen:
            yield duplicate(f"{path}[{i}]", key(item))
        seen.add(key(item))


def _label(name: str, path: str) -> Iterator[FieldProblem]:
    if not name:
        yield required(path)
    elif why := bad_label(name):
        yield invalid_value(path, name, why)
