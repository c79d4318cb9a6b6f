"""The part of a pod's assignment for each of its containers (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu).

Parts exist only for containers that ask. Our scheduler books sidecars, too: their parts come before those of the containers.
Upstream's books none, so the number of parts tells which of the two wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pumice.node.pods import Container, NodePod
from pumice.wire import names, variables
from pumice.wire.nvidia_vgpu import PodDevice, parse_pod_devices


@dataclass(frozen=True, slots=True)
class ContainerPart:
    """One container in the order in which the kubelet asks. ``part`` is None for an init container that has none: it
    borrows the devices of a later one."""

    container: Container
    part: int | None


def container_parts(pod: NodePod, parts: int, number: str, memory: str) -> list[ContainerPart] | str:
    """Every container that asks for cards, init containers first; or why the number of parts does not fit the pod."""
    asking = [c for c in pod.spec.containers if c.wants_cards(number, memory)]
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always" and c.wants_cards(number, memory)]
    booked = sidecars if parts == len(asking) + len(sidecars) else []
    if parts != len(asking) + len(booked):
        return f"{names.VGPU_IDS} has {parts} parts but {len(asking)} containers ask for vGPUs"
    found, part = [], 0
    for container in pod.spec.init_containers:
        if any(container is sidecar for sidecar in booked):
            found.append(ContainerPart(container, part))
            part += 1
        elif container.requested(number):
            found.append(ContainerPart(container, None))
    return [*found, *(ContainerPart(container, part + i) for i, container in enumerate(asking))]


def granted(
    pod: NodePod, node: str, number: str = names.VGPU_NUMBER, memory: str = names.VGPU_MEMORY, handed: str = ""
) -> dict[str, tuple[PodDevice, ...]]:
    """Container name to devices; empty when the assignment is not for this node or does not fit the pod.

    ``handed``: what the node's plugin says that it handed out, which the pod's owner cannot change; it counts first.
    """
    if not handed and pod.annotations.get(names.VGPU_NODE) != node:
        return {}
    parts = parse_pod_devices(handed or pod.annotations.get(names.VGPU_IDS, "")).containers
    found = container_parts(pod, len(parts), number, memory)
    if isinstance(found, str):
        return {}
    return {mine.container.name: parts[mine.part] for mine in found if mine.part is not None}


def goes_first(pod: NodePod, container: Container) -> bool:
    """True if its launches may make those of less important pods wait: its variable asks for it (HAMi
    volcano-vgpu-device-plugin pkg/plugin/vgpu),
    and a PriorityClass above 0 grants it, for whoever writes a pod writes the variable as well."""
    return (container.env_value(variables.TASK_PRIORITY) or "").strip() == "0" and pod.priority > 0
