"""Whether an assignment can be what a container was given: it is written on the pod, where the pod's owner can change it.

What the container's resources say cannot be changed afterwards, so the two are compared. Only numbers that the container
states itself count: defaults and the sizes of cards, which percentages are of, may be others today than they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pumice.families.nvidia_vgpu.ask import UNSET, Asking, ContainerAsk, container_ask
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import PodDevice, PodDevices


class Restarting(Asking, Protocol):
    """A container that may be a sidecar."""

    @property
    def restart_policy(self) -> str: ...


class Containers(Protocol):
    """A pod's spec as far as it tells what the pod asks for."""

    @property
    def init_containers(self) -> Sequence[Restarting]: ...
    @property
    def containers(self) -> Sequence[Asking]: ...


def contradiction(spec: Containers, decoded: PodDevices, config: NvidiaConfig, known: Callable[[str], bool]) -> str:
    """Why the pod's cards cannot be these; empty where they can, and where the pod asks for none that it must be given.

    Upstream's scheduler writes no parts for sidecars, ours does. ``known``: whether a card is one of the node's.
    """
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    later = _asking(spec.containers, config)
    if not any(config.resource_count_name in c.resources.limits for c, _ in later):
        return ""
    early = _asking(sidecars, config)
    if decoded.doubts:
        return decoded.doubts[0].text
    asking = early + later if len(decoded.containers) == len(early) + len(later) else later
    if len(decoded.containers) != len(asking):
        return f"{names.VGPU_IDS} has {len(decoded.containers)} parts but {len(asking)} containers ask for vGPUs"
    for (container, ask), devices in zip(asking, decoded.containers, strict=True):
        if reason := _unlike(container, ask, devices, config):
            return reason
    strange = next((d.uuid for devices in decoded.containers for d in devices if not known(d.uuid)), None)
    return "" if strange is None else f"{names.VGPU_IDS} names {strange[:100]!r}, which is no card of the node"


def excess(ask: ContainerAsk, devices: Sequence[PodDevice], total: Callable[[str], int]) -> str:
    """What these devices give beyond the request; empty when nothing. ``total``: memory units of a whole card.

    A slice of a card in MIG mode is as large as its place, whatever is written beside it.
    """
    if len(devices) > ask.count:
        return f"{len(devices)} cards where it asks for {ask.count}"
    whole = [device for device in devices if device.slot < 0]
    if len({device.uuid for device in whole}) < len(whole):
        return f"card {whole[0].uuid} more than once"
    for device in whole:
        if device.memory > ask.need(total(device.uuid)):
            return f"memory {device.memory} of card {device.uuid} where it asks for {ask.need(total(device.uuid))}"
        if ask.cores and not 0 < device.cores <= ask.cores:
            return f"cores {device.cores} of card {device.uuid} where it asks for {ask.cores}"
    return ""


def _asking(containers: Sequence[Asking], config: NvidiaConfig) -> list[tuple[Asking, ContainerAsk]]:
    found = ((c, container_ask("", c, config, partial=False)) for c in containers)
    return [(container, ask) for container, ask in found if ask is not None and not isinstance(ask, Refusal)]


def _unlike(container: Asking, ask: ContainerAsk, devices: Sequence[PodDevice], config: NvidiaConfig) -> str:
    limits = container.resources.limits
    if config.resource_count_name in limits and len(devices) != ask.count:
        return f"{names.VGPU_IDS} names {len(devices)} cards where {ask.count} were asked for"
    whole = [device.uuid for device in devices if device.slot < 0]
    if len(set(whole)) < len(whole):
        return f"{names.VGPU_IDS} names card {whole[0][:100]} more than once"
    for device in devices:
        if ask.percent == UNSET and config.resource_memory_name in limits and device.memory != ask.memory:
            return f"{names.VGPU_IDS} gives memory {device.memory} where {ask.memory} was asked for"
        if config.resource_core_name in limits and device.cores != ask.cores:
            return f"{names.VGPU_IDS} gives cores {device.cores} where {ask.cores} were asked for"
    return ""
