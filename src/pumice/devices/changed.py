"""A pod as it would be with another amount or annotation: the material of what ``explain`` tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pumice.wire.objects import Container, Pod, Quantities
from pumice.wire.quantity import parse_quantity


def amount_of(container: Container, name: str) -> int | None:
    """The container's limit as a whole number; None where there is none, or no number."""
    text = container.resources.limits.get(name) if name else None
    try:
        return None if text is None else int(parse_quantity(text))
    except ValueError:
        return None


def with_amount(pod: Pod, name: str, value: int, containers: Sequence[int]) -> Pod:
    """The pod with another limit (and request) in some containers."""
    changed = list(pod.spec.containers)
    for at in containers:
        resources = changed[at].resources
        limits = {**resources.limits, name: value}
        requests = {**resources.requests, name: value} if name in resources.requests else resources.requests
        changed[at] = msgspec.structs.replace(
            changed[at], resources=msgspec.structs.replace(resources, limits=limits, requests=requests)
        )
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=changed))


def renamed(pod: Pod, names: Mapping[str, str]) -> Pod:
    """The pod with resources under other names, wherever it has no amount under those yet."""

    def changed(container: Container) -> Container:
        found = container.resources
        limits, requests = _renamed(found.limits, names), _renamed(found.requests, names)
        return msgspec.structs.replace(container, resources=msgspec.structs.replace(found, limits=limits, requests=requests))

    containers = [changed(container) for container in pod.spec.containers]
    early = [changed(container) for container in pod.spec.init_containers]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers, init_containers=early))


def _renamed(amounts: Quantities, names: Mapping[str, str]) -> Quantities:
    return {names.get(name, name) if names.get(name) not in amounts else name: amount for name, amount in amounts.items()}


def annotated(pod: Pod, notes: dict[str, str]) -> Pod:
    """The pod with these annotations and no others."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes))
