"""``ports.vnpus.Vnpus`` by the driver."""

from __future__ import annotations

from pumice.adapters.dcmi.driver import ANY, Dcmi, Device
from pumice.ports.vnpus import NpuRefused, Vnpu


class DcmiVnpus:
    """The driver is asked for the chips' UUIDs once, and again for one that it did not have."""

    def __init__(self, place: str = "") -> None:
        self._dcmi = Dcmi(place)
        self._devices: dict[str, Device] = {}

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        found = []
        for one in self._dcmi.ones(self._device(chip)):
            info, has = one.info, one.info.computing
            found.append(Vnpu(
                one.id, info.name.decode(errors="replace"), info.group, bool(info.in_use), info.container, has.memory_total,
                round(has.aic), has.memory_total - has.memory_free, has.utilization,
            ))  # fmt: skip
        return tuple(found)

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        return int(self._dcmi.create(self._device(chip), template, ANY if ident is None else ident).id)

    def destroy(self, chip: str, ident: int) -> None:
        self._dcmi.destroy(self._device(chip), ident)

    def use(self, chip: str, ident: int, container: int) -> None:
        """The emulated driver's alone (``Dcmi.use``)."""
        self._dcmi.use(self._device(chip), ident, container)

    def chip_of(self, physical: int) -> str:
        """The UUID behind a physical id. Raises NpuRefused."""
        for device in self._dcmi.devices():
            if self._dcmi.physical(device) == physical:
                return self._dcmi.uuid(device)
        raise NpuRefused(f"no NPU has the physical id {physical}")

    def chips(self) -> tuple[str, ...]:
        self._devices = {self._dcmi.uuid(device): device for device in self._dcmi.devices()}
        return tuple(self._devices)

    def _device(self, chip: str) -> Device:
        if chip not in self._devices:
            self.chips()
        if chip not in self._devices:
            raise NpuRefused(f"the driver does not list card {chip}")
        return self._devices[chip]
