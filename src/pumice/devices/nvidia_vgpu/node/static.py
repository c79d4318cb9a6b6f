"""MIG slices that an administrator has cut, as resources of their own: ``--mig-strategy mixed`` (HAMi
volcano-vgpu-device-plugin pkg/plugin/vgpu).

They are handed out as NVIDIA's plugin does it: a device is a slice, its id the slice's UUID, and no scheduler of ours decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from pumice.node.device_list import Unit
from pumice.ports.slices import Slice
from pumice.wire import names


class StaticSlices:
    """The slices that were there when the plugin started, by resource. One that is divided further is left out."""

    def __init__(self, slices: Iterable[Slice] = ()) -> None:
        self._slices: dict[str, dict[str, Slice]] = {}
        for slice_ in slices:
            if slice_.uuid:
                self._slices.setdefault(resource_of(slice_.place.profile), {})[slice_.uuid] = slice_
        self._unhealthy: Mapping[str, str] = MappingProxyType({})

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(sorted(self._slices))

    def show(self, unhealthy: Mapping[str, str]) -> None:
        """Which cards take no pods."""
        self._unhealthy = unhealthy

    def units(self, resource: str) -> list[Unit]:
        return [Unit(uuid, slice_.place.card not in self._unhealthy) for uuid, slice_ in self._slices[resource].items()]

    def of(self, resource: str, ids: Sequence[str]) -> tuple[Slice, ...] | str:
        """The slices of these ids in the order of their places; or which of them is none."""
        known = self._slices[resource]
        if strange := next((uuid for uuid in ids if uuid not in known), ""):
            return f"{strange} is no slice of {resource} on this node; were its cards cut anew since the plugin started?"
        return tuple(sorted((known[uuid] for uuid in ids), key=lambda slice_: slice_.place))


def resource_of(profile: str) -> str:
    """``volcano.sh/mig-1g.10gb``; a name holds no plus sign."""
    return f"{names.DOMAIN}/mig-{profile.replace('+', '.')}"
