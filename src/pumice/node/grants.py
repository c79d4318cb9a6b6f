"""What the containers of a pod were given, by its annotations: the k-th part belongs to the k-th asking container."""

from __future__ import annotations

from pumice.node.pods import NodePod
from pumice.wire import names
from pumice.wire.nvidia_vgpu import PodDevice, parse_pod_devices


def granted(
    pod: NodePod, node: str, number: str = names.VGPU_NUMBER, memory: str = names.VGPU_MEMORY
) -> dict[str, tuple[PodDevice, ...]]:
    """Container name to devices; empty when the assignment is not for this node or does not fit the pod."""
    if pod.annotations.get(names.VGPU_NODE) != node:
        return {}
    parts = parse_pod_devices(pod.annotations.get(names.VGPU_IDS, "")).containers
    asking = [c.name for c in pod.spec.containers if c.wants_cards(number, memory)]
    return dict(zip(asking, parts, strict=True)) if len(parts) == len(asking) else {}
