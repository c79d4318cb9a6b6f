"""Builders: the fixtures of HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pumice.devices.nvidia_vgpu.node.allocator import VgpuAllocator
from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.model.amount import MIB
from pumice.node.pods import NodePod
from pumice.ports.cards import CardFacts
from pumice.wire import names
from pumice.wire.nvidia_vgpu import parse_pod_devices
from pumice.wire.objects import convert
from pumice_lab.machine import MachineModel, machine_of
from pumice_lab.machine.model import CardModel


def facts(cards: Sequence[CardModel]) -> tuple[CardFacts, ...]:
    """Return what NVML would say about the cards of a model: one minor number per card, in the model's order."""
    return tuple(
        CardFacts(
            index=index,
            uuid=card.uuid,
            name=card.name,
            memory=card.memory * MIB,
            minor=index,
            mig=card.mig_mode,
            numa=card.numa,
            bus_id=card.pci,
            links=_links(index, cards),
        )
        for index, card in enumerate(cards)
    )


def _links(index: int, cards: Sequence[CardModel]) -> tuple[tuple[str, int], ...]:
    """Links by peer; -1 is a switch, over which cards meet with as many links as the lesser of them has."""
    mine = cards[index].nvlinks
    widths = [
        (card.uuid, mine.count(other) + min(mine.count(-1), card.nvlinks.count(-1))) for other, card in enumerate(cards)
    ]
    return tuple((uuid, width) for uuid, width in widths if width and uuid != cards[index].uuid)


NODE = "node-a"
A = "GPU-0a0a0a0a-0000-4000-8000-000000000001"
B = "GPU-0a0a0a0a-0000-4000-8000-000000000002"
UID = "7c1f4e0e-6a0b-4b0e-9f7e-3d3c1c2b1a00"


def card(index: int, uuid: str, name: str = "Tesla V100-SXM2-32GB", mib: int = 32768, **more: Any) -> CardFacts:
    return CardFacts(index, uuid, name, mib * MIB, minor=more.pop("minor", index), **more)


def two_cards(*, virtual_time: bool = False) -> MachineModel:
    """The machine of the fixtures: two V100, A and B."""
    model = machine_of("2xTesla-V100-SXM2-32GB", name=NODE, virtual_time=virtual_time)
    return replace(model, cards=tuple(replace(c, uuid=uuid) for c, uuid in zip(model.cards, (A, B), strict=True)))


CARDS = facts(two_cards().cards)


def container(name: str, number: int = 0, memory: int = 0, cores: int = 0, **more: Any) -> dict[str, Any]:
    limits = {names.VGPU_NUMBER: number, names.VGPU_MEMORY: memory, names.VGPU_CORES: cores}
    return {"name": name, "resources": {"limits": {key: str(value) for key, value in limits.items() if value}}, **more}


def pod_object(
    name: str,
    devices: str | None,
    *containers: dict[str, Any],
    left: str | None = None,
    time: int = 1760000000,
    phase: str = "Pending",
    uid: str = "",
    node: str = NODE,
    inits: tuple[dict[str, Any], ...] = (),
    annotations: dict[str, str] | None = None,
    **meta: Any,
) -> dict[str, Any]:
    """A bound pod as the scheduler leaves it; ``devices`` None: one that the scheduler never saw."""
    notes = {}
    if devices is not None:
        notes = {
            names.VGPU_NODE: node,
            names.VGPU_TIME: str(time),
            names.VGPU_IDS: devices,
            names.DEVICES_TO_ALLOCATE: devices if left is None else left,
            names.BIND_PHASE: "allocating",
            names.BIND_TIME: str(time),
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns1",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": "2026-08-20T10:00:00Z",
            "annotations": {**notes, **(annotations or {})},
            **meta,
        },
        "spec": {
            "nodeName": node,
            "containers": list(containers) or [asking("train", devices)],
            "initContainers": list(inits),
        },
        "status": {"phase": phase, "conditions": [] if devices is None else [{"type": "PodScheduled", "status": "True"}]},
    }


def asking(name: str, devices: str | None) -> dict[str, Any]:
    """A container that asks for what ``devices`` give it."""
    parts = parse_pod_devices(devices or "").containers
    if not parts or not parts[0]:
        return container(name, 1, 3000, 50)
    return container(name, len(parts[0]), parts[0][0].memory, parts[0][0].cores)


def pod(*args: Any, **named: Any) -> NodePod:
    return convert(NodePod, pod_object(*args, **named))


def allocator(sharing: Sharing | None = None, cards: tuple[CardFacts, ...] = CARDS, **response_options: Any) -> VgpuAllocator:
    return VgpuAllocator(NODE, sharing or Sharing(), ResponseOptions(**response_options), random.Random(1), cards)


def units_of(count: int) -> list[str]:
    """The ids of an Allocate call for so many devices, where it does not matter which."""
    return [f"id-{i}" for i in range(count)]


def gives(uuid: str, memory: int = 3000, cores: int = 50) -> str:
    return f"{uuid},NVIDIA,{memory},{cores}:"
