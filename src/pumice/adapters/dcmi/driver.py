"""``libdcmi.so`` as Python calls: a code below zero becomes an ``NpuRefused`` with its meaning."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import Structure, c_char, c_float, c_int, c_ubyte, c_uint, c_uint16, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pumice.ports.cards import CardsUnavailable
from pumice.ports.slices import NpuRefused

S = TypeVar("S", bound="ctypes.Structure | ctypes.c_int")
ANY: Final = 0xFFFFFFFF
FOLDERS: Final = ("", "/usr/local/Ascend/driver/lib64/", "/usr/local/Ascend/driver/lib64/driver/",
                  "/usr/local/Ascend/driver/lib64/common/")  # fmt: skip
"""Where the library is looked for: the loader's own places, then the driver's."""
SLICES: Final = 52
SHARE: Final = 0x8001
MEANINGS: Final = {
    -8001: "bad parameter", -8002: "operation not permitted", -8005: "internal error", -8007: "invalid device id",
    -8008: "no such device", -8012: "the device is not ready", -8020: "the resource is busy", -8255: "not supported",
    -99998: "the library has no such function",
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """One chip by the driver's two numbers of it."""

    card: int
    device: int


class Dcmi:
    """The library, initialised. ``place``: its file or folder, empty for the system's. Raises CardsUnavailable."""

    def __init__(self, place: str = "") -> None:
        self._library = _load(place)
        try:
            self._call("dcmi_init")
        except NpuRefused as error:
            raise CardsUnavailable(f"the Ascend driver does not answer: {error}") from None

    # -- which devices ---------------------------------------------------------------------------------------------------

    def devices(self) -> list[Device]:
        """In the order of their logic ids. Raises NpuRefused."""
        count, cards = ctypes.c_int(), (ctypes.c_int * 64)()
        self._call("dcmi_get_card_list", ctypes.byref(count), cards, 64)
        found = [Device(card, number) for card in cards[: count.value] for number in range(self._devices_of(card))]
        return sorted((device for device in found if self._number("dcmi_get_device_type", device) == 0), key=self.logic)

    def _devices_of(self, card: int) -> int:
        count = ctypes.c_int()
        self._call("dcmi_get_device_num_in_card", card, ctypes.byref(count))
        return count.value

    def logic(self, device: Device) -> int:
        logic = ctypes.c_int()
        self._call("dcmi_get_device_logic_id", ctypes.byref(logic), device.card, device.device)
        return logic.value

    def physical(self, device: Device) -> int:
        physical = ctypes.c_uint()
        self._call("dcmi_get_device_phyid_from_logicid", ctypes.c_uint(self.logic(device)), ctypes.byref(physical))
        return physical.value

    def uuid(self, device: Device) -> str:
        """Five words of the virtual die id (Volcano pkg/scheduler/api/devices/ascend/hami)."""
        die = (ctypes.c_uint * 5)()
        self._call("dcmi_get_device_die_v2", device.card, device.device, 1, die)
        return "-".join(f"{word:08X}" for word in die)

    def chip(self, device: Device) -> ChipInfo:
        return self._fill("dcmi_get_device_chip_info_v2", device, ChipInfo())

    def product(self, device: Device) -> str:
        """The product name; empty where the driver does not report it."""
        text = ctypes.create_string_buffer(64)
        try:
            self._call("dcmi_get_product_type", device.card, device.device, text, ctypes.c_int(64))
        except NpuRefused:
            return ""
        return text.value.decode(errors="replace")

    def bus_id(self, device: Device) -> str:
        info = self._fill("dcmi_get_device_pcie_info_v2", device, PcieInfo())
        return f"{info.domain:04X}:{info.bus:02X}:{info.slot:02X}.{info.function:X}"

    def version(self) -> str:
        text = ctypes.create_string_buffer(64)
        self._call("dcmi_get_dcmi_version", text, ctypes.c_uint(64))
        return text.value.decode(errors="replace")

    # -- what they measure -------------------------------------------------------------------------------------------------

    def health(self, device: Device) -> int:
        return self._number("dcmi_get_device_health", device)

    def errors(self, device: Device) -> list[int]:
        count, codes = ctypes.c_int(), (ctypes.c_uint * 128)()
        self._call("dcmi_get_device_errorcode_v2", device.card, device.device, ctypes.byref(count), codes, ctypes.c_uint(128))
        return list(codes[: count.value])

    def utilization(self, device: Device) -> int:
        """Of the AI cores, in per cent."""
        rate = ctypes.c_uint()
        self._call("dcmi_get_device_utilization_rate", device.card, device.device, 2, ctypes.byref(rate))
        return rate.value

    def memory(self, device: Device) -> tuple[int, int]:
        """(used, total) MB beside HBM; zeros where there is none."""
        info = self._fill("dcmi_get_device_memory_info_v3", device, MemoryInfo())
        return info.size - info.available, info.size

    def hbm(self, device: Device) -> tuple[int, int]:
        """(used, total) MB of HBM; zeros where there is none."""
        try:
            info = self._fill("dcmi_get_device_hbm_info", device, HbmInfo())
        except NpuRefused:
            return 0, 0
        return info.used, info.size

    def temperature(self, device: Device) -> int:
        return self._number("dcmi_get_device_temperature", device)

    def power(self, device: Device) -> float:
        """Watts."""
        return self._number("dcmi_get_device_power_info", device) / 10

    # -- slices ------------------------------------------------------------------------------------------------------------

    def totals(self, device: Device) -> Totals:
        return self._info(device, 1, Totals())

    def available(self, device: Device) -> Free:
        return self._info(device, 2, Free())

    def one(self, device: Device, ident: int) -> One:
        return self._info(device, 0, One(id=ident))

    def ones(self, device: Device) -> Iterator[One]:
        totals = self.totals(device)
        for ident in sorted(totals.ids[: totals.count]):
            try:
                yield self.one(device, ident)
            except NpuRefused as error:
                if error.code != -8001:  # it went meanwhile
                    raise

    def create(self, device: Device, template: str, ident: int = ANY, group: int = ANY) -> CreateOut:
        made = CreateOut()
        wanted = CreateIn(id=ident, group=group, template=template.encode()[:31])
        try:
            self._call("dcmi_create_vdevice", device.card, device.device, ctypes.byref(wanted), ctypes.byref(made))
        except NpuRefused as error:
            raise NpuRefused(self._refusal() or str(error), error.code) from None
        return made

    def destroy(self, device: Device, ident: int) -> None:
        self._call("dcmi_set_destroy_vdevice", device.card, device.device, ctypes.c_uint(ident))

    def use(self, device: Device, ident: int, container: int) -> None:
        """The emulated driver's alone: a container has opened the slice, or has ended (0)."""
        self._call("pumice_npu_use", device.card, device.device, ctypes.c_uint(ident), ctypes.c_uint64(container))

    def share(self, device: Device, on: bool) -> None:
        """Soft sharing of the chip by several containers (``device-share``)."""
        flag, zero, size = ctypes.c_uint(on), ctypes.c_uint(0), ctypes.c_uint(4)
        self._call("dcmi_set_device_info", device.card, device.device, SHARE, zero, ctypes.byref(flag), size)

    def shared(self, device: Device) -> bool:
        flag, zero, size = ctypes.c_uint(), ctypes.c_uint(0), ctypes.c_uint(4)
        self._call("dcmi_get_device_info", device.card, device.device, SHARE, zero, ctypes.byref(flag), ctypes.byref(size))
        return bool(flag.value)

    def _refusal(self) -> str:
        """Return why the emulated driver refused; a real one writes it into its log."""
        try:
            reported = self._library.pumice_npu_refusal
        except AttributeError:
            return ""
        reported.restype = ctypes.c_char_p
        return str(reported().decode())

    def _info(self, device: Device, sub: int, out: S) -> S:
        size, number = ctypes.c_uint(ctypes.sizeof(out)), ctypes.c_uint(sub)
        self._call("dcmi_get_device_info", device.card, device.device, SLICES, number, ctypes.byref(out), ctypes.byref(size))
        return out

    def _fill(self, name: str, device: Device, out: S) -> S:
        self._call(name, device.card, device.device, ctypes.byref(out))
        return out

    def _number(self, name: str, device: Device) -> int:
        return int(self._fill(name, device, ctypes.c_int()).value)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError:
            code = -99998
        if code:
            raise NpuRefused(f"{name}: {MEANINGS.get(code, 'refused')} ({code})", code)


def _load(place: str) -> ctypes.CDLL:
    if place and Path(place).is_dir():
        place = os.path.join(place, "libdcmi.so")
    for path in (place,) if place else tuple(folder + "libdcmi.so" for folder in FOLDERS):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reason = str(error)
    raise CardsUnavailable(f"the Ascend driver's library is not there: {reason}")


# -- The structures of ``libdcmi.so`` (Huawei's DCMI API reference), with their natural alignment -------------------------


def _fields(names: str, kind: type) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class ChipInfo(Structure):
    _fields_ = [*_fields("type name version", c_char * 32), ("cores", c_uint), ("npu", c_char * 32)]


class PcieInfo(Structure):
    _fields_ = [
        *_fields("device_id vendor_id subvendor_id subdevice_id", c_uint),
        ("domain", c_int),
        *_fields("bus slot function", c_uint),
        ("reserve", c_ubyte * 32),
    ]


class MemoryInfo(Structure):
    _fields_ = [
        *_fields("size available", c_uint64),
        ("frequency", c_uint),
        *_fields("huge_page_kib huge_pages huge_pages_free", c_uint64),
        ("utilization", c_uint),
        ("reserve", c_ubyte * 60),
    ]


class HbmInfo(Structure):
    _fields_ = [("size", c_uint64), ("frequency", c_uint), ("used", c_uint64), ("temperature", c_int), ("bandwidth", c_uint)]


class CreateIn(Structure):
    _fields_ = [*_fields("id group", c_uint), ("template", c_char * 32), ("reserved", c_ubyte * 64)]


class CreateOut(Structure):
    _fields_ = [*_fields("id bus device function group", c_uint), ("reserved", c_ubyte * 32)]


class Base(Structure):
    _fields_ = [
        *_fields("token token_max task_timeout", c_uint64),
        ("group", c_uint),
        ("mode", c_ubyte),
        ("reserved", c_ubyte * 31),
    ]


class Computing(Structure):
    _fields_ = [
        *_fields("aic aiv", c_float),
        *_fields("dsa rtsq acsq cdqm c_core ffts sdma pcie_dma", c_uint16),
        ("memory", c_uint64),
        *_fields("event notify stream model", c_uint),
        *_fields("topic_aicpu host_ctrl host_aicpu device_aicpu topic_slot", c_uint16),
        ("utilization", c_uint),
        *_fields("memory_total memory_free", c_uint64),
        ("reserved", c_ubyte * 12),
    ]


class Media(Structure):
    _fields_ = [*_fields("jpegd jpege vpc vdec pngd venc", c_float), ("reserved", c_ubyte * 32)]


class SliceInfo(Structure):
    _fields_ = [
        ("name", c_char * 16),
        *_fields("status in_use vfid group", c_uint),
        ("container", c_uint64),
        ("base", Base),
        ("computing", Computing),
        ("media", Media),
    ]


class One(Structure):
    _fields_ = [("id", c_uint), ("info", SliceInfo)]


class Totals(Structure):
    _fields_ = [
        ("count", c_uint),
        ("ids", c_uint * 32),
        *_fields("group_count group_bitmap", c_uint),
        ("base", Base),
        ("computing", Computing),
        ("media", Media),
    ]


class Free(Structure):
    _fields_ = [
        *_fields("group_count group_bitmap", c_uint),
        ("base", Base),
        ("computing", Computing),
        ("media", Media),
    ]
