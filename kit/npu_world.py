"""Nodes with Ascend NPUs and pods that ask for them: builders hide what does not matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.devices.ascend_hami.scheduling import AscendHami
from pumice.devices.settings import Settings
from pumice.model.hardware.npu import NpuChip
from pumice.wire.ascend_hami import RegisteredNpu, register_key, render_npu_register
from pumice.wire.npu_config import shipped
from pumice.wire.objects import Node, Pod, convert

Json = dict[str, Any]


def chip(name: str) -> NpuChip:
    """By the driver's name, as shipped."""
    return next(chip for chip in shipped().chips if chip.name == name)


def npu_device_type(name: str = "310P3", policy: str = "", *, soft: bool = False) -> AscendHami:
    return AscendHami(chip(name), Settings(policy=policy), soft=soft)


def npu_cards(kind: NpuChip, count: int, *, unhealthy: tuple[int, ...] = (), prefix: str = "U") -> list[RegisteredNpu]:
    """Cards U1, U2, … of one type, in rings of four where the type has them."""
    ringed = kind.word.startswith("Ascend910")
    return [
        RegisteredNpu(f"{prefix}{at + 1}", at, kind.shares, kind.memory, kind.cores, kind.word, at not in unhealthy,
                      ring=(0 if kind.word == "Ascend910C" else at // 4) if ringed else None)
        for at in range(count)
    ]  # fmt: skip


def npu_node_object(
    name: str, kind: NpuChip, count: int = 1, *, unhealthy: tuple[int, ...] = (), soft: bool | None = None
) -> Json:
    """A node whose plugin has registered so many cards."""
    notes = {register_key(kind.word): render_npu_register(npu_cards(kind, count, unhealthy=unhealthy, prefix=f"{name}-"))}
    if soft is not None:
        notes["hami-vnpu-core"] = str(soft).lower()
    room = {kind.resource: str(kind.shares * count), "cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": notes, "labels": {}},
        "spec": {}, "status": {"allocatable": room, "capacity": room},
    }  # fmt: skip


def npu_node(name: str, kind: NpuChip, count: int = 1, *, unhealthy: tuple[int, ...] = (), soft: bool | None = None,
             allocatable: int | None = None) -> Node:  # fmt: skip
    """The same as a value, its cards called U1, U2, …"""
    found = npu_node_object(name, kind, count, unhealthy=unhealthy, soft=soft)
    found["metadata"]["annotations"][register_key(kind.word)] = render_npu_register(npu_cards(kind, count, unhealthy=unhealthy))
    if allocatable is not None:
        found["status"]["allocatable"][kind.resource] = str(allocatable)
    return convert(Node, found)


def npu_limits(kind: NpuChip, count: Any = 1, memory: Any = None, cores: Any = None) -> dict[str, Any]:
    """Container limits; what is None is left out."""
    named = {kind.resource: count, kind.memory_resource: memory, kind.core_resource: cores}
    return {name: value for name, value in named.items() if value is not None}


def npu_pod(name: str, *containers: Mapping[str, Any], soft: bool = False, annotations: Mapping[str, str] | None = None,
            init: tuple[Json, ...] = (), node: str = "", status: Mapping[str, Any] | None = None) -> Pod:  # fmt: skip
    """A pod whose containers have these limits."""
    notes = {**({"huawei.com/vnpu-mode": "hami-core"} if soft else {}), **(annotations or {})}
    return convert(Pod, {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes},
        "spec": {
            "nodeName": node,
            "containers": [{"name": f"c{at}", "resources": {"limits": dict(c)}} for at, c in enumerate(containers)],
            "initContainers": [{"name": f"i{at}", "resources": {"limits": dict(c)}} for at, c in enumerate(init)],
        },
        "status": dict(status or {}),
    })  # fmt: skip
