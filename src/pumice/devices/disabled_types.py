"""Shares of cards that no device type of this configuration hands out.

A pod that asks for one is never bound: the node's plugin would look for a decision that nobody made and end the pod. Names that
only such plugins serve are refused as they are written; names that a configuration gave (``nvidia.com/gpu``, say) may be served
by another plugin elsewhere, and are refused on the nodes that share them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from pumice.devices.protocol import DeviceSharing
from pumice.devices.registry import SWITCHES as ALL
from pumice.devices.registry import every_device_type
from pumice.devices.settings import Settings
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.objects import Pod

SWITCHES: Mapping[str, tuple[str, str]] = {
    name: (device_type.name, switch.key)
    for switch in ALL
    for device_type in switch.device_types(None, Settings())
    for name in sorted((device_type.resources() | device_type.parameters()) - device_type.served_elsewhere)
}
"""Resource to the device type that owns it and the switch of that device type."""
_PART_OF_AN_NPU = re.compile(r"huawei\.com/(npu-core|Ascend\w+-(memory|core))")
"""Asked for where NPUs are shared (Volcano pkg/scheduler/api/devices/ascend/hami, Volcano
pkg/scheduler/api/devices/ascend); whole ones are an ordinary resource of Huawei's plugin."""


def requests_of_disabled_types(pod: Pod, device_types: Sequence[DeviceSharing]) -> tuple[Refusal, ...]:
    """Return a refusal for each thing that the pod asks for and none of these device types owns."""
    found: dict[str, Refusal] = {}
    served, owned = (
        {device_type.name for device_type in device_types},
        frozenset().union(*(device_type.resources() for device_type in device_types)),
    )
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for amounts in (container.resources.limits, container.resources.requests):
            for name, amount in amounts.items():
                if str(amount) == "0" or name in owned:
                    continue
                if name in SWITCHES and SWITCHES[name][0] not in served:
                    found[name] = Refusal(name, f"the scheduler's configuration does not share it; {_advice(name, served)}")
                elif name.startswith(names.HUAWEI) and _PART_OF_AN_NPU.fullmatch(name):
                    found[name] = Refusal(name, "no device type of the scheduler's configuration shares it")
    return tuple(found.values())


def _advice(name: str, device_types: Collection[str]) -> str:
    meant = names.OTHER_SHARING.get(name)
    if meant and SWITCHES[meant][0] in device_types:
        return f"did you mean {meant!r}?"
    return f"{SWITCHES[name][1]}: true would"


def shared_by_register(config: DeviceConfig, device_types: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Annotation of a node to the resources that a node with it shares, where none of these device types owns them."""
    found: dict[str, frozenset[str]] = {}
    for device_type in every_device_type(config):
        if device_type.register and device_type.name not in device_types:
            found[device_type.register] = device_type.resources()
    return found
