"""What a pod takes while it is resized in place: the larger of what it shall have and what it has.

The spec says what somebody wants; until the kubelet has done it, the status says what the container holds
(``resources``) and what was admitted for it (``allocatedResources``). Rule: component-helpers of Kubernetes 1.36, ``PodRequests``
with the resources of the status, as kube-scheduler's and the kubelet's books use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pumice.engine.state.resources import amount
from pumice.wire.objects import Container, ContainerStatus, Pod, Quantities, Resources

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


def _counted(wanted: Resources, held: Resources, admitted: Quantities, refused: bool) -> Resources:
    """``wanted`` itself where nothing else is larger. A resize that the node refused for good is not wanted any more."""
    if (held.requests or admitted) == wanted.requests and (admitted or held.requests) == wanted.requests:
        return wanted
    counted = {} if refused else dict(wanted.requests)
    for source in (held.requests, admitted):
        for name, quantity in source.items():
            try:
                if name not in counted or amount(name, quantity) > amount(name, counted[name]):
                    counted[name] = quantity
            except ValueError:
                continue  # it is no quantity: what is wanted counts
    return wanted if counted == wanted.requests else replace(wanted, requests=counted)
