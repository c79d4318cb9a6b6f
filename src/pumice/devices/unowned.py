"""Shares of cards that no family of this configuration hands out.

A pod that asks for one is never bound: the node's plugin would look for a decision that nobody made and end the pod. Names that
only such plugins serve are refused as they are written; names that a configuration gave (``nvidia.com/gpu``, say) may be served
by another plugin elsewhere, and are refused on the nodes that share them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from pumice.devices.protocol import Family
from pumice.devices.registry import SWITCHES as ALL
from pumice.devices.registry import every_family
from pumice.devices.settings import Settings
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.objects import Pod

SWITCHES: Mapping[str, tuple[str, str]] = {
    name: (family.name, switch.key)
    for switch in ALL
    for family in switch.families(None, Settings())
    for name in sorted((family.resources() | family.parameters()) - family.served_elsewhere)
}
"""Resource to the family that owns it and the switch of that family."""
_PART_OF_AN_NPU = re.compile(r"huawei\.com/(npu-core|Ascend\w+-(memory|core))")
"""Asked for where NPUs are shared (Volcano pkg/scheduler/api/devices/ascend/hami, Volcano
pkg/scheduler/api/devices/ascend/mindcluster); whole ones are an ordinary resource of Huawei's plugin."""


def unowned(pod: Pod, families: Sequence[Family]) -> tuple[Refusal, ...]:
    """Return a refusal for each thing that the pod asks for and none of these families owns."""
    found: dict[str, Refusal] = {}
    served, owned = {family.name for family in families}, frozenset().union(*(family.resources() for family in families))
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for amounts in (container.resources.limits, container.resources.requests):
            for name, amount in amounts.items():
                if str(amount) == "0" or name in owned:
                    continue
                if name in SWITCHES and SWITCHES[name][0] not in served:
                    found[name] = Refusal(name, f"the scheduler's configuration does not share it; {_advice(name, served)}")
                elif name.startswith(names.HUAWEI) and _PART_OF_AN_NPU.fullmatch(name):
                    found[name] = Refusal(name, "no family of the scheduler's configuration shares it")
    return tuple(found.values())


def _advice(name: str, families: Collection[str]) -> str:
    meant = names.OTHER_SHARING.get(name)
    if meant and SWITCHES[meant][0] in families:
        return f"did you mean {meant!r}?"
    return f"{SWITCHES[name][1]}: true would"


def shared_by_register(config: DeviceConfig, families: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Annotation of a node to the resources that a node with it shares, where none of these families owns them."""
    found: dict[str, frozenset[str]] = {}
    for family in every_family(config):
        if family.register and family.name not in families:
            found[family.register] = family.resources()
    return found
