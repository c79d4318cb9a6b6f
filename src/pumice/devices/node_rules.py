"""Changes beside devices that would let a pod in: less of a resource that nodes count, a toleration, a rule of placement less."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pumice.devices.offers import Change, WhatIf
from pumice.wire.kubernetes import AILING_TAINTS, in_domain
from pumice.wire.objects import Container, Pod, Quantities, Resources, Taint, Toleration
from pumice.wire.quantity import parse_quantity

UNITS = {"cpu": 1000, "memory": 1 / 2**20, "ephemeral-storage": 1 / 2**20}
"""Units of one when a minimum is searched: thousandths of a core, MiB; of everything else whole ones."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def by_nodes_rules(pod: Pod, devices: Collection[str], what_if: WhatIf) -> Iterator[Change]:
    """Changes of what the pod asks of nodes. ``devices``: names that are changed by other offers."""
    yield from _less_resources(pod, devices, what_if)
    yield from _tolerated(pod, what_if)
    yield from _freed(pod, what_if)


# -- less of a resource -------------------------------------------------------------------------------------------


def _less_resources(pod: Pod, devices: Collection[str], what_if: WhatIf) -> Iterator[Change]:
    """For each resource the largest amount that fits if no container asks for more of it."""
    for name in sorted(_named(pod) - set(devices)):
        unit = UNITS.get(name, 1)
        wanted = max((_requested(container, name) * unit for container in _containers(pod)), default=0)
        high = int(-(-wanted // 1))
        node = what_if.fits(capped(pod, name, 0)) if high else ""
        if not node:
            continue
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            found = what_if.fits(capped(pod, name, middle))
            low, high, node = (middle, high, found) if found else (low, middle, node)
        smaller = capped(pod, name, high)
        if what_if.fits(smaller):
            continue  # less is no help, or only where the amount was beyond any range
        asking = [container for container in _containers(pod) if _requested(container, name) * unit > low]
        each = "in each container " if len(asking) > 1 else ""
        text = f"ask for {name} {written(name, low)} {each}instead of {written(name, int(wanted))}"
        yield Change("request", text, node, capped(pod, name, low), int(wanted), low, (smaller,))


def _named(pod: Pod) -> set[str]:
    lists = [each for container in _containers(pod) for each in (container.resources.limits, container.resources.requests)]
    return {name for each in lists for name in each if "/" not in name or not in_domain(name)}


def _containers(pod: Pod) -> list[Container]:
    return [*pod.spec.init_containers, *pod.spec.containers]


def _requested(container: Container, name: str) -> float:
    found = container.resources.requests.get(name, container.resources.limits.get(name, 0))
    try:
        return float(parse_quantity(found))
    except ValueError:
        return 0.0


def written(name: str, units: int) -> str:
    """An amount in units of searching as it is written into a pod."""
    match UNITS.get(name, 1):
        case 1000:
            return f"{units}m" if units % 1000 else str(units // 1000)
        case 1:
            return str(units)
    return f"{units}Mi"


def capped(pod: Pod, name: str, units: int) -> Pod:
    """The pod with no container that asks for more than so much; what may be used beyond the request stays a limit."""

    def less(amounts: Quantities) -> Quantities:
        return {**amounts, name: written(name, units)}

    def changed(container: Container) -> Container:
        if _requested(container, name) * UNITS.get(name, 1) <= units:
            return container
        found = container.resources
        beyond = name in UNITS  # of all others, requests and limits are the same
        limits = found.limits if beyond or name not in found.limits else less(found.limits)
        return replace(container, resources=Resources(limits, less(found.requests)))

    early, late = ([changed(each) for each in some] for some in (pod.spec.init_containers, pod.spec.containers))
    return replace(pod, spec=replace(pod.spec, init_containers=early, containers=late))


# -- a toleration --------------------------------------------------------------------------------------------------


def _tolerated(pod: Pod, what_if: WhatIf) -> Iterator[Change]:
    """The fewest taints of one node that would have to be tolerated; those that say what ails a node are none to tolerate."""
    offers = [taints for taints in what_if.taints(pod) if not any(taint.key.startswith(AILING_TAINTS) for taint in taints)]
    for taints in sorted(offers, key=lambda some: (len(some), [(t.key, t.value, t.effect) for t in some])):
        changed = _tolerating(pod, taints)
        node = what_if.fits(changed)
        if node:
            words = " and ".join(f"{t.key}{f'={t.value}' if t.value else ''}:{t.effect}" for t in taints)
            fewer = tuple(_tolerating(pod, [other for other in taints if other is not each]) for each in taints)
            noun = "taint" if len(taints) == 1 else "taints"
            yield Change("toleration", f"tolerate the {noun} {words}", node, changed, smaller=fewer)
            return


def _tolerating(pod: Pod, taints: Sequence[Taint]) -> Pod:
    added = [Toleration(t.key, "Equal" if t.value else "Exists", t.value, t.effect) for t in taints]
    return replace(pod, spec=replace(pod.spec, tolerations=[*pod.spec.tolerations, *added]))


# -- a rule less ---------------------------------------------------------------------------------------------------


def _freed(pod: Pod, what_if: WhatIf) -> Iterator[Change]:
    for text, change in RULES:
        changed, what = change(pod)
        node = what_if.fits(changed) if changed is not None else ""
        if node and changed is not None:
            yield Change("constraint", text % what, node, changed, smaller=(pod,))


Freed = tuple[Pod | None, str]
"""The pod without the rule (None: it has none), and what the rule said."""


def _anywhere(pod: Pod) -> Freed:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(pod.spec.node_selector.items()))
    return (replace(pod, spec=replace(pod.spec, node_selector={})) if labels else None), labels


def _without_affinity(kind: str) -> Callable[[Pod], Freed]:
    def free(pod: Pod) -> Freed:
        affinity: Mapping[str, Any] = pod.spec.affinity or {}
        if not (affinity.get(kind) or {}).get(REQUIRED):
            return None, ""
        kept = {key: value for key, value in affinity[kind].items() if key != REQUIRED}
        return replace(pod, spec=replace(pod.spec, affinity={**affinity, kind: kept})), f"{kind}.{REQUIRED}"

    return free


def _unspread(pod: Pod) -> Freed:
    spread = pod.spec.topology_spread_constraints
    kept = [each for each in spread if each.get("whenUnsatisfiable", "DoNotSchedule") != "DoNotSchedule"]
    keys = ", ".join(sorted({str(each.get("topologyKey", "")) for each in spread if each not in kept}))
    return (replace(pod, spec=replace(pod.spec, topology_spread_constraints=kept)) if keys else None), keys


def _without_ports(pod: Pod) -> Freed:
    def closed(container: Container) -> Container:
        return replace(container, ports=[replace(port, host_port=0) for port in container.ports])

    ports = sorted({port.host_port for container in _containers(pod) for port in container.ports if port.host_port})
    early, late = ([closed(each) for each in some] for some in (pod.spec.init_containers, pod.spec.containers))
    changed = replace(pod, spec=replace(pod.spec, init_containers=early, containers=late)) if ports else None
    return changed, ", ".join(map(str, ports))


RULES: Sequence[tuple[str, Callable[[Pod], Freed]]] = (
    ("drop the nodeSelector %s", _anywhere),
    ("drop affinity.%s", _without_affinity("nodeAffinity")),
    ("drop affinity.%s", _without_affinity("podAffinity")),
    ("drop affinity.%s", _without_affinity("podAntiAffinity")),
    ("let it be spread unevenly over %s (whenUnsatisfiable: ScheduleAnyway)", _unspread),
    ("drop the hostPort %s", _without_ports),
)
