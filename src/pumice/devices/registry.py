"""The device types that there are, a row each, and what one scheduler configuration makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from pumice.devices.ascend_hami.device_type import ASCEND_HAMI
from pumice.devices.ascend_mindcluster.device_type import ASCEND_MINDCLUSTER
from pumice.devices.device_type import CardRow, DeviceType
from pumice.devices.nvidia_gpushare.device_type import NVIDIA_GPUSHARE
from pumice.devices.nvidia_vgpu.device_type import NVIDIA_VGPU
from pumice.devices.settings import Argument, Settings, declared, read_settings
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.objects import Node, Pod

if TYPE_CHECKING:
    from pumice.devices.protocol import DeviceSharing
    from pumice.node.findings import Check

DEVICE_TYPES: tuple[DeviceType, ...] = (NVIDIA_VGPU, NVIDIA_GPUSHARE, ASCEND_HAMI, ASCEND_MINDCLUSTER)

POLICY = "deviceshare.SchedulePolicy"
SWITCHES = tuple(switch for found in DEVICE_TYPES for switch in found.switches)
SECTIONS = tuple(found.section for found in DEVICE_TYPES if found.section is not None)
ARGUMENTS: Mapping[str, Argument] = {
    found.key: found
    for found in (
        *(switch.argument for switch in SWITCHES),
        *declared(Settings).values(),
        *(argument for section in SECTIONS for argument in declared(section).values()),
    )
    if not found.key.startswith(names.INIT_PARAMS)
}
"""The arguments of plugin ``deviceshare`` by their names; what stands in ``init-params`` is no argument of a plugin."""
ALIASES: Mapping[str, str] = {alias: found.key for found in ARGUMENTS.values() for alias in found.aliases}


def settings_from(arguments: Mapping[str, object]) -> Settings | Refusal:
    """Read the arguments. Unknown or unreadable ones are warnings; only switches that exclude each other are a refusal."""
    settings = read_settings(arguments, [switch.argument for switch in SWITCHES], SECTIONS)
    for switch in reversed(SWITCHES) if len(settings.on) > 1 else ():
        for other, reason in switch.excludes.items() if switch.key in settings.on else ():
            if other in settings.on:
                return Refusal(switch.key, reason.format(key=switch.key))
    return settings


def device_types_from(settings: Settings, device_config: DeviceConfig | None = None) -> list[DeviceSharing]:
    """The device types that the arguments of plugin ``deviceshare`` ask for."""
    return [
        device_type
        for switch in SWITCHES
        if switch.key in settings.on
        for device_type in switch.device_types(device_config, settings)
    ]


def every_device_type(device_config: DeviceConfig | None = None) -> list[DeviceSharing]:
    """One of each, as it is without any settings: what they call things."""
    return [device_type for switch in SWITCHES for device_type in switch.device_types(device_config, Settings())]


def all_card_rows(nodes: Sequence[Node], pods: Sequence[Pod]) -> list[CardRow]:
    """The cards of all nodes with the live pods on them: GPUs first, then the others node by node."""
    here: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.status.phase not in ("Succeeded", "Failed"):
            here.setdefault(pod.spec.node_name, []).append(pod)
    first, *rest = DEVICE_TYPES
    found = [*((first, node) for node in nodes), *((other, node) for node in nodes for other in rest)]
    return [row for kind, node in found for row in kind.card_rows(node, here.get(node.metadata.name, []))]


def remarks_on(settings: Settings, device_config: DeviceConfig | None) -> tuple[str, ...]:
    """Return a sentence on each thing that is switched on and not configured."""
    return tuple(text for found in DEVICE_TYPES for text in found.remarks(settings, device_config))


def node_checks() -> list[Check]:
    """Return the checks of ``pumice doctor node``, of all device types."""
    return [check for found in DEVICE_TYPES if found.doctor for check in import_module(found.doctor).CHECKS]
