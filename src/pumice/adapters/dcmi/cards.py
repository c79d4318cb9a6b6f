"""Ascend chips through ``ports.cards.Cards``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pumice.adapters.dcmi.driver import ANY, Dcmi, Device
from pumice.model.amount import MIB
from pumice.ports.cards import LOST, CardEvent, CardFacts, CardReading, CardsUnavailable
from pumice.ports.slices import NpuRefused, Vnpu

HEALTH = ("OK", "Warning", "Alarm", "Critical")
"""npu-smi's words for the driver's numbers (Huawei's npu-smi reference)."""


class DcmiCards:
    """The chips of one type (empty: of any). Their health is asked for each time: the driver's library tells no events."""

    def __init__(self, place: str = "", chip: str = "") -> None:
        self._dcmi, self._chip = Dcmi(place), chip
        self._devices: dict[str, Device] = {}
        self._reported: dict[str, str] = {}
        self._unshared: dict[str, str] = {}

    def facts(self) -> tuple[CardFacts, ...]:
        try:
            found = [self._facts(device) for device in self._dcmi.devices()]
        except NpuRefused as error:
            raise CardsUnavailable(f"the Ascend driver does not answer: {error}") from None
        return tuple(card for card in found if self._chip in ("", card.name))

    def _facts(self, device: Device) -> CardFacts:
        info, uuid = self._dcmi.chip(device), self._dcmi.uuid(device)
        if info.type != b"Ascend":
            raise NpuRefused(f"chip type is {info.type.decode(errors='replace')!r} and not Ascend")
        if self._chip in ("", info.name.decode(errors="replace")):
            self._devices[uuid] = device
        size = max(self._dcmi.hbm(device)[1], self._dcmi.memory(device)[1])
        return CardFacts(self._dcmi.logic(device), uuid, info.name.decode(errors="replace"), size * MIB,
                         minor=self._dcmi.physical(device), bus_id=self._dcmi.bus_id(device))  # fmt: skip

    def products(self) -> dict[str, str]:
        """Product names by UUID, of the cards that were listed last."""
        return {uuid: self._dcmi.product(device) for uuid, device in self._devices.items()}

    def share(self) -> dict[str, str]:
        """Switch every chip to soft sharing; why some were not, by UUID. Those count as ill from then on."""
        self.facts()
        for uuid, device in self._devices.items():
            try:
                if not self._dcmi.shared(device):
                    self._dcmi.share(device, True)
            except NpuRefused as error:
                self._unshared[uuid] = f"it cannot be shared softly: {error}"
        return dict(self._unshared)

    def readings(self) -> tuple[CardReading, ...]:
        found = []
        for uuid, device in self._devices.items():
            with suppress(NpuRefused):
                used, total = max(self._dcmi.hbm(device), self._dcmi.memory(device), key=lambda pair: pair[1])
                load = self._dcmi.utilization(device)
                name = self._dcmi.chip(device).name.decode(errors="replace")
                found.append(CardReading(self._dcmi.logic(device), uuid, used * MIB, total * MIB, load, name=name))
        return tuple(found)

    def subscribe(self, uuids: Sequence[str]) -> dict[str, str]:
        return {uuid: text for uuid in uuids if (text := self._illness(uuid))}

    def events(self) -> tuple[CardEvent, ...]:
        """Those that are ill now, and were not, or otherwise, when asked last."""
        found = {uuid: self._illness(uuid) for uuid in self._devices}
        fresh = [CardEvent(uuid, LOST, text) for uuid, text in found.items() if text and self._reported.get(uuid) != text]
        self._reported = found
        return tuple(fresh)

    def answers(self, uuid: str) -> bool:
        return not self._illness(uuid)

    def close(self) -> None:
        return

    def _illness(self, uuid: str) -> str:
        device = self._devices.get(uuid)
        if uuid in self._unshared:
            return self._unshared[uuid]
        if device is None:
            return "the driver does not list the card"
        try:
            health = self._dcmi.health(device)
            if not health:
                return ""
            codes = ", ".join(f"0x{code:08X}" for code in self._dcmi.errors(device))
        except NpuRefused as error:
            return f"the driver has lost the card: {error}"
        return f"its health is {HEALTH[min(health, 3)]}" + (f", error codes {codes}" if codes else "")


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
