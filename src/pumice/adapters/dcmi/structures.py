"""The structures of ``libdcmi.so`` (spec ascend, appendix A), with their natural alignment."""

from __future__ import annotations

from ctypes import Structure, c_char, c_float, c_int, c_ubyte, c_uint, c_uint16, c_uint64


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
