"""True if an assignment can be what a container was given: it is written on the pod, where the pod's owner can change it.

What the container's resources say cannot be changed afterwards, so the two are compared. Only numbers that the container
states itself count: defaults and the sizes of cards, which percentages are of, may be others today than they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from pumice.devices.nvidia_vgpu.device_request import UNSET, Asking, ContainerRequest, container_request
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


class Stated(Struct, frozen=True):
    """One container's own words on its devices: None where defaults or the card decide."""

    count: int | None
    memory: int | None
    cores: int | None


class Statement(Struct, frozen=True):
    """The containers of a pod that ask for devices, in the order of their parts; ``sure``: whether it must be given some."""

    sidecars: tuple[Stated, ...]
    containers: tuple[Stated, ...]
    sure: bool


def statement(spec: Containers, config: NvidiaConfig) -> Statement:
    """Return what a pod's containers say for themselves. Upstream's scheduler writes no parts for sidecars, ours does."""
    sidecars = [c for c in spec.init_containers if c.restart_policy == "Always"]
    later = _asking(spec.containers, config)
    return Statement(_asking(sidecars, config), later, any(stated.count is not None for stated in later))


def contradiction(said: Statement, decoded: PodDevices, known: Callable[[str], bool]) -> str:
    """Return why the pod's cards cannot be these; empty where they can, and where the pod asks for none that it must be given.

    ``known``: whether a card is one of the node's.
    """
    if not said.sure:
        return ""
    if decoded.doubts:
        return decoded.doubts[0].text
    asking = said.containers
    if said.sidecars and len(decoded.containers) == len(said.sidecars) + len(asking):
        asking = said.sidecars + asking
    if len(decoded.containers) != len(asking):
        return f"{names.VGPU_IDS} has {len(decoded.containers)} parts but {len(asking)} containers ask for vGPUs"
    for stated, devices in zip(asking, decoded.containers, strict=True):
        if reason := _unlike(stated, devices):
            return reason
    for devices in decoded.containers:
        for device in devices:
            if not known(device.uuid):
                return f"{names.VGPU_IDS} names {device.uuid[:100]!r}, which is no card of the node"
    return ""


def excess(device_request: ContainerRequest, devices: Sequence[PodDevice], total: Callable[[str], int]) -> str:
    """Return what these devices give beyond the request; empty when nothing. ``total``: memory units of a whole card.

    A slice of a card in MIG mode is as large as its place, whatever is written beside it.
    """
    if len(devices) > device_request.count:
        return f"{len(devices)} cards where it asks for {device_request.count}"
    whole = [device for device in devices if device.slot < 0]
    if len({device.uuid for device in whole}) < len(whole):
        return f"card {whole[0].uuid} more than once"
    for device in whole:
        if device.memory > device_request.need(total(device.uuid)):
            return f"memory {device.memory} of card {device.uuid} where it asks for {device_request.need(total(device.uuid))}"
        if device_request.cores and not 0 < device.cores <= device_request.cores:
            return f"cores {device.cores} of card {device.uuid} where it asks for {device_request.cores}"
    return ""


def _asking(containers: Sequence[Asking], config: NvidiaConfig) -> tuple[Stated, ...]:
    found = ((c, container_request("", c, config, partial=False)) for c in containers)
    return tuple(
        _stated(c, device_request, config)
        for c, device_request in found
        if device_request is not None and not isinstance(device_request, Refusal)
    )


def _stated(container: Asking, device_request: ContainerRequest, config: NvidiaConfig) -> Stated:
    limits = container.resources.limits
    return Stated(
        device_request.count if config.resource_count_name in limits else None,
        device_request.memory if config.resource_memory_name in limits and device_request.percent == UNSET else None,
        device_request.cores if config.resource_core_name in limits else None,
    )


def _unlike(stated: Stated, devices: Sequence[PodDevice]) -> str:
    if stated.count is not None and len(devices) != stated.count:
        return f"{names.VGPU_IDS} names {len(devices)} cards where {stated.count} were asked for"
    if len(devices) > 1:
        whole = [device.uuid for device in devices if device.slot < 0]
        if len(set(whole)) < len(whole):
            return f"{names.VGPU_IDS} names card {whole[0][:100]} more than once"
    for device in devices:
        if stated.memory is not None and device.memory != stated.memory:
            return f"{names.VGPU_IDS} gives memory {device.memory} where {stated.memory} was asked for"
        if stated.cores is not None and device.cores != stated.cores:
            return f"{names.VGPU_IDS} gives cores {device.cores} where {stated.cores} were asked for"
    return ""
