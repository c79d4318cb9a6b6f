"""Claims of pods that ask for extended resources in whose place a DeviceClass stands (Kubernetes KEP-5004).

One claim per pod, with a request for each container and resource. Init containers that end before the others begin use their
devices again: of what they need beyond them only the largest part is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""The resource that stands for a class by its name alone."""
ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""On the claim that was made for such a pod."""
NAME: Final = "<extended-resources>"
"""The claim as reasons name it, for it has no name before it is written."""
ClassFor = Callable[[str], str | None]
"""Says which class stands for a resource."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One container: the amounts that it asks for, and whether it ends before the next one begins."""

    name: str
    amounts: Mapping[str, int | None]
    short: bool = False


class Served(Struct, frozen=True):
    """The request of the claim that serves a container's resource."""

    container: str
    resource: str
    request: str

    def as_json(self) -> dict[str, str]:
        return {"containerName": self.container, "resourceName": self.resource, "requestName": self.request}


@dataclass(slots=True)
class _Request:
    name: str
    class_: str
    count: int


class ByResource(Struct, frozen=True):
    """The things that such a pod asks of a claim: its requests, the mappings, and by resource the names of its requests."""

    requests: tuple[tuple[str, str, int], ...]
    """Name, class and count."""
    mappings: tuple[Served, ...]
    parts: tuple[tuple[str, frozenset[str]], ...]

    def spec(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return ``spec`` of the claim, with these of its requests."""
        chosen = None if names is None else frozenset(names)
        return {"devices": {"requests": [
            {"name": name, "exactly": {"deviceClassName": class_, "allocationMode": "ExactCount", "count": count}}
            for name, class_, count in self.requests if chosen is None or name in chosen
        ]}}  # fmt: skip


def by_resource(containers: Sequence[Asking], class_for: ClassFor) -> ByResource | None:
    """Return what the containers (init containers first) ask of a claim; None where no class stands for anything of it."""
    requests: list[_Request] = []
    mappings: list[Served] = []
    parts: dict[str, frozenset[str]] = {}
    for resource in sorted({name for one in containers for name, amount in one.amounts.items() if amount}):
        class_ = class_for(resource)
        if class_ is None:
            continue
        lasting: dict[int, _Request] = {}
        mine: list[Served] = []
        for at, one in enumerate(containers):
            if not one.short:
                mine += _asked(at, one, resource, class_, (), lasting)
        extra: dict[int, _Request] = {}
        theirs: list[Served] = []
        for at, one in enumerate(containers):
            if one.short:
                theirs += _asked(at, one, resource, class_, [held for place, held in lasting.items() if place >= at], extra)
        largest = max(extra.values(), key=lambda one: one.count, default=None)
        others = {one.name for one in extra.values() if one is not largest}
        if largest is not None:
            requests.append(largest)
            theirs = [_replaced(one, largest.name) if one.request in others else one for one in theirs]
        requests += lasting.values()
        mappings += [*mine, *theirs]
        parts[resource] = frozenset(one.request for one in (*mine, *theirs))
    if not requests:
        return None
    listed = sorted((one.name, one.class_, one.count) for one in requests)
    return ByResource(tuple(listed), tuple(mappings), tuple(parts.items()))


def _asked(
    at: int, one: Asking, resource: str, class_: str, again: Iterable[_Request], into: dict[int, _Request]
) -> Iterator[Served]:
    """Yield by which requests a container is served, those that it uses ``again`` first; a new one is put down for the rest."""
    wanted, served = one.amounts.get(resource) or 0, 0
    if wanted <= 0:
        return
    for held in again:
        served += held.count
        yield Served(one.name, resource, held.name)
        if served >= wanted:
            return
    name = f"container-{at}-request-{sorted(one.amounts).index(resource)}"
    into[at] = _Request(name, class_, wanted - served)
    yield Served(one.name, resource, name)


def _replaced(one: Served, request: str) -> Served:
    return Served(one.container, one.resource, request)


def name_for(pod: str, uid: str) -> str:
    """Return the name of the claim for a pod: as Kubernetes makes them, and the same at each try."""
    return f"{f'{pod}-extended-resources-'[:58]}{sha256(uid.encode()).hexdigest()[:5]}"
