"""Where on its card the slice of an assignment lies: the plugin reads a group's slot as the scheduler means it (ADR 22)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.devices.nvidia_vgpu.mig_places import Places
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import PodDevice

if TYPE_CHECKING:
    from pumice.ports.slices import Place


def uncut(config: NvidiaConfig, card_type: str, mig: bool) -> str:
    """Why a card that is to be cut cannot be, as far as its model and the configuration tell; empty where it can."""
    if not mig:
        return "this node is to cut MIG slices, and the card's MIG mode is off; switch it on (nvidia-smi -mig 1)"
    geometry = _catalogue(config).of(card_type)
    if geometry is None:
        return f"it is in MIG mode, and no MIG geometry is known for {card_type}; switch MIG off"
    if geometry.free is None:
        return f"it is in MIG mode, and knownMigGeometries gives {card_type} groups that the hardware cannot be cut into"
    return ""


def place_of(config: NvidiaConfig, card_type: str, device: PodDevice) -> Place | str:
    """The place of a device that is a slice, or why there is none."""
    from pumice.ports.slices import (
        Place,  # here: what a machine without a cluster imports knows no slices that are to be cut
    )

    geometry = _catalogue(config).of(card_type)
    places = geometry.free if geometry is not None else None
    if not isinstance(places, Places):
        return f"no MIG geometry is known for {card_type}"
    if device.profile:
        if isinstance(found := places.outside(device.profile, device.slot), str):
            return found
        return Place(device.uuid, device.profile, device.slot)
    group = places.index.get(device.group)
    if group is None or device.slot >= len(places.homes[group]):
        return f"{card_type} has no slot {device.place}; was the ConfigMap changed since the pod was placed?"
    home = places.place(group, device.slot)
    return Place(device.uuid, home.profile, home.start)


@lru_cache(maxsize=4)
def _catalogue(config: NvidiaConfig) -> Catalogue:
    return Catalogue(config, anywhere=True)
