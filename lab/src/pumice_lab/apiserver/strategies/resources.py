"""Validation of a container's requests and limits, and the QoS class that follows from them.

Facts: "Resource Management for Pods and Containers", "Extended resources", "Configure Quality of Service for Pods".
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import FieldProblem, invalid_value, required
from pumice_lab.apiserver.names import bad_qualified
from pumice_lab.apiserver.schema.quantity import combined, larger

Json = dict[str, Any]
Problems = list[FieldProblem]
Amounts = dict[str, str]

STANDARD = frozenset(("cpu", "memory", "ephemeral-storage", "storage"))


def is_extended(name: str) -> bool:
    """``example.com/gpu``: a resource of one's own, counted in whole units."""
    return "/" in name and not name.startswith("requests.") and "kubernetes.io/" not in name


def may_overcommit(name: str) -> bool:
    """Return True if a request may be below its limit: not for whole things, such as devices and huge pages."""
    return not is_extended(name) and not name.startswith("hugepages-")


def _whole_pages(name: str, value: Fraction) -> bool:
    try:
        size = parse_quantity(name.removeprefix("hugepages-"))
    except ValueError:
        return True  # the name is told of elsewhere
    return size > 0 and (value / size).denominator == 1


def validate_resources(resources: Json, path: str) -> Problems:
    """Names, signs, integers, and requests against limits."""
    problems: Problems = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            where = f"{path}.{field}[{name}]"
            problems += _validate_resource_name(name, where)
            value = parse_quantity(text)
            if value < 0:
                problems.append(invalid_value(where, str(text), "must be greater than or equal to 0"))
            if is_extended(name) and value.denominator != 1:
                problems.append(invalid_value(where, str(text), "must be an integer"))
            if name.startswith("hugepages-") and not _whole_pages(name, value):
                detail = f"{text} is not positive integer multiple of {name}"
                problems.append(invalid_value(where, str(text), detail))
    huge = any(name.startswith("hugepages-") for name in (*limits, *requests))
    if huge and not {"cpu", "memory"} & (limits.keys() | requests.keys()):
        problems.append(FieldProblem("FieldValueForbidden", path, "HugePages require cpu or memory"))
    for name, text in requests.items():
        if name in limits:
            limit = parse_quantity(limits[name])
            if not may_overcommit(name) and parse_quantity(text) != limit:
                detail = f"must be equal to {name} limit of {limits[name]}"
                problems.append(invalid_value(f"{path}.requests", str(text), detail))
            elif parse_quantity(text) > limit:
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                problems.append(invalid_value(f"{path}.requests", str(text), detail))
        elif not may_overcommit(name):
            detail = "Limit must be set for non overcommitable resources"
            problems.append(required(f"{path}.limits", detail))
    return problems


def _validate_resource_name(name: str, path: str) -> Problems:
    if why := bad_qualified(name):
        return [invalid_value(path, name, why)]
    if "/" not in name and name not in STANDARD and not name.startswith(("hugepages-", "attachable-volumes-")):
        return [invalid_value(path, name, "must be a standard resource type or fully qualified")]
    return []


def sum_of_pod(spec: Json, field: str) -> Amounts:
    """All containers together, or those that start it where they need more; what the pod says itself counts instead."""
    total: Amounts = {}
    first: Amounts = {}
    beside: Amounts = {}
    for container in spec.get("containers") or ():
        total = summed(total, _amounts(container, field))
    for container in spec.get("initContainers") or ():
        own = _amounts(container, field)
        if container.get("restartPolicy") == "Always":
            total, beside = summed(total, own), summed(beside, own)
            own = beside
        else:
            own = summed(beside, own)
        first = {name: larger(first.get(name, "0"), own.get(name, "0")) for name in first.keys() | own.keys()}
    total = {name: larger(total.get(name, "0"), first.get(name, "0")) for name in total.keys() | first.keys()}
    return total | _amounts(spec, field)


def _amounts(value: Json, field: str) -> Amounts:
    return (value.get("resources") or {}).get(field) or {}


def summed(one: Amounts, other: Amounts, sign: int = 1) -> Amounts:
    """Each sum is written as its first part is."""
    return one | {name: combined(one.get(name, "0"), amount, sign) for name, amount in other.items()}


def quality(spec: Json) -> str:
    """The QoS class, from cpu and memory of all containers ("Configure Quality of Service for Pods")."""
    requests: dict[str, Any] = {}
    limits_everywhere = True
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        for name, text in {**(resources.get("requests") or {})}.items():
            if name in ("cpu", "memory") and parse_quantity(text) > 0:
                requests[name] = True
        for name in ("cpu", "memory"):
            limit = limits.get(name)
            if limit is None or parse_quantity(limit) == 0:
                limits_everywhere = False
            else:
                requests[name] = True
                asked = (resources.get("requests") or {}).get(name, limit)
                limits_everywhere = limits_everywhere and parse_quantity(asked) == parse_quantity(limit)
    if not requests:
        return "BestEffort"
    return "Guaranteed" if limits_everywhere else "Burstable"
