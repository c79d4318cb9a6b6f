"""vGPU of NVIDIA cards as a row of the registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pumice.devices.device_type import CardRow, CardTenant, DeviceType, PluginCommand, Switch
from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.settings import Settings
from pumice.model.cards import Allocation
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.nvidia_gpushare import parse_index
from pumice.wire.nvidia_vgpu import device_of, parse_pod_devices, parse_register
from pumice.wire.objects import Node, Pod
from pumice.wire.our_devices import VGPU
from pumice.wire.quantity import round_up

if TYPE_CHECKING:
    from pumice.devices.protocol import DeviceSharing


def card_rows(node: Node, pods: Sequence[Pod]) -> list[CardRow]:
    """The node's cards with what live pods hold of them by their annotations."""
    register = parse_register(node.metadata.annotations.get(names.NODE_VGPU_REGISTER, ""))
    cards = [CardRow(node.metadata.name, c.index, c.uuid, c.type, c.total, c.healthy) for c in register.cards]
    legacy = _legacy_cards(node) if not cards or any(names.GPU_INDEX in pod.metadata.annotations for pod in pods) else []
    for pod in pods:
        _charge_vgpu(pod, {card.uuid: card for card in cards}, _slices(node, pod))
        _charge_legacy(pod, {card.index: card for card in legacy})
    return legacy if any(card.holders for card in legacy) or not cards else cards


def _legacy_cards(node: Node) -> list[CardRow]:
    count = round_up(node.status.capacity.get(names.GPU_NUMBER, 0))
    memory = round_up(node.status.capacity.get(names.GPU_MEMORY, 0)) // count if count else 0
    return [CardRow(node.metadata.name, i, str(i), "by gpu-memory", memory) for i in range(count)]


def _slices(node: Node, pod: Pod) -> dict[str, int]:
    """By slice, as the pod's annotation names it, what it holds: the pod has all of it, whatever it asked for."""
    if "[" not in pod.metadata.annotations.get(names.VGPU_IDS, ""):
        return {}
    from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
    from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu  # only here: most clusters have no slices
    from pumice.devices.settings import Settings

    device_type = NvidiaVgpu(None, Settings(sections=(VgpuArguments(mig_off_group=True),)))
    known = device_type.inventory(node)
    allocation = device_type.replay(pod, node.metadata.name, known) if known is not None else None
    container_devices = allocation.container_devices if isinstance(allocation, Allocation) else ()
    return {
        device_of(container_device).id: container_device.memory
        for container_device in container_devices
        if container_device.slot is not None
    }


def _charge_vgpu(pod: Pod, cards: dict[str, CardRow], slices: Mapping[str, int]) -> None:
    for container in parse_pod_devices(pod.metadata.annotations.get(names.VGPU_IDS, "")).containers:
        for device in container:
            card = cards.get(device.uuid)
            if card is not None:
                memory = slices.get(device.id, device.memory)
                card.memory += memory
                card.cores += device.cores
                card.holders.append(CardTenant(pod.key, memory, device.cores))


def _charge_legacy(pod: Pod, cards: dict[int, CardRow]) -> None:
    requested = sum(round_up(c.resources.limits.get(names.GPU_MEMORY, 0)) for c in pod.spec.containers)
    for index in parse_index(pod.metadata.annotations.get(names.GPU_INDEX)) or ():
        if index in cards:
            cards[index].memory += requested
            cards[index].holders.append(CardTenant(pod.key, requested))


def device_types(config: DeviceConfig | None, settings: Settings) -> list[DeviceSharing]:
    from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu

    return [NvidiaVgpu(config, settings)]


NVIDIA_VGPU = DeviceType(
    (
        Switch(
            VGPU.switches[0], VGPU.resource, device_types,
            ("deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight", "deviceshare.GPUExclusiveRules", "pumice.MigPolicy",
             "deviceshare.KnownGeometriesCMName", "deviceshare.KnowGeometriesCMName"),
            aliases=("predicate.VGPUEnable",),
        ),
    ),
    VgpuArguments,
    PluginCommand("nvidia", "pumice.devices.nvidia_vgpu.plugin.command",
                  "pumice device-plugin nvidia --node-name n1 --device-split-count 4", upstream=True),
    PluginCommand("nvidia", "pumice.devices.nvidia_vgpu.plugin.command", "pumice dra-driver nvidia --node-name n1",
                  function="claims"),
    card_rows=card_rows,
    doctor="pumice.devices.nvidia_vgpu.node.doctor",
)  # fmt: skip
