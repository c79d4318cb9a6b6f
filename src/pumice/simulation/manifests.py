"""Nodes and pods as the traces, the generator and added nodes write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pumice.devices.registry import every_device_type
from pumice.model.cards import Card
from pumice.wire import names
from pumice.wire.nvidia_vgpu import render_register

Json = dict[str, Any]

MODEL = "nvidia.com/gpu.product"
"""The label that names a node's cards, as NVIDIA's feature discovery writes it."""


def node(name: str, *, cpu: str, memory: str, model: str = "", cards: int = 0, mib: int = 0, shares: int = 10,
         pods: int = 110) -> Json:  # fmt: skip
    """A node with so many vGPUs of ``mib`` each, as its device plugin registers them."""
    have = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    notes: dict[str, str] = {}
    if cards:
        have |= {names.VGPU_NUMBER: str(cards * shares), names.VGPU_MEMORY: str(cards * mib), names.VGPU_CORES: str(cards * 100)}
        kind = model if model.startswith("NVIDIA") else f"NVIDIA-{model}"
        notes[names.NODE_VGPU_REGISTER] = render_register(
            Card(i, f"GPU-{name}-{i}", kind, mib, shares, healthy=True) for i in range(cards)
        )
    labels = {"kubernetes.io/hostname": name, **({MODEL: model} if model else {})}
    meta = {"name": name, "uid": f"node-{name}", "labels": labels, "annotations": notes}
    return {"metadata": meta, "status": {"allocatable": have, "capacity": dict(have)}}


def pod(asked: Mapping[str, str], *, models: Iterable[str] = (), queue: str = "") -> Json:
    """The template of a pod of one container. ``models``: only on nodes whose cards are one of these."""
    resources = {"limits": dict(asked), "requests": dict(asked)}
    spec: Json = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main", "resources": resources}]}
    if models := list(models):
        terms = [{"matchExpressions": [{"key": MODEL, "operator": "In", "values": models}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    notes = {names.QUEUE_NAME: queue} if queue else {}
    return {"metadata": {"annotations": notes}, "spec": spec, "status": {"phase": "Pending"}}


def unplaced(pod: Mapping[str, Any]) -> Json:
    """A pod as it was before it had a place."""
    given = {key for device_type in every_device_type() for key in device_type.allocation_keys}
    meta = pod["metadata"]
    notes = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in given}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": {**meta, "annotations": notes}, "spec": spec, "status": {"phase": "Pending"}}
