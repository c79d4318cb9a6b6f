"""The layout of a machine's NPUs: a mirror of ``lab/native/include/machine/npu.h``.

``lab/tests/unit/machine/test_npu_layout.py`` compares it with the C compiler's.
"""

from __future__ import annotations

from ctypes import Structure, c_char, c_int32, c_uint32, c_uint64

from pumice_lab.machine.layout import words

MAGIC = 0x315355504E554E50
VERSION = 1
CHIPS = 16
TEMPLATES = 16
SLICES = 16
PROCESSES = 64
ERRORS = 8
FAULTS = 16
UNITS = 6

_u32 = c_uint32
_u64 = c_uint64


class NpuSize(Structure):
    _fields_ = [*words("cores cpus"), ("memory_mib", _u64), ("media", _u32 * UNITS)]


class NpuTemplate(Structure):
    _fields_ = [("name", c_char * 32), ("size", NpuSize)]


class NpuSlice(Structure):
    _fields_ = [*words("used id template group"), *words("container generation busy_until_ns busy_ns", _u64)]


class NpuProcess(Structure):
    _fields_ = [*words("pid slice"), *words("start_ticks bytes", _u64)]


class NpuChip(Structure):
    _fields_ = [
        *words("name product bus_id", c_char * 32),
        ("die", _u32 * 6),
        *words("card device physical groups slices_most hbm health gone share error_count"),
        ("errors", _u32 * ERRORS),
        *words("power_dw temperature"),
        ("size", NpuSize),
        *words("template_count grouped"),
        *words("generation busy_until_ns busy_ns", _u64),
        ("templates", NpuTemplate * TEMPLATES),
        ("slices", NpuSlice * SLICES),
        ("processes", NpuProcess * PROCESSES),
    ]


class NpuFault(Structure):
    _fields_ = [
        ("function", c_char * 64),
        ("used", _u32),
        ("code", c_int32),
        *words("first count calls", _u64),
        *words("crash reserved"),
    ]


class NpuState(Structure):
    _fields_ = [
        ("magic", _u64),
        *words("version chip_count"),
        ("size", _u64),
        ("driver_version", c_char * 32),
        ("faults", NpuFault * FAULTS),
        ("chips", NpuChip * CHIPS),
    ]


MIRRORED = {
    "npu_size": NpuSize, "npu_template": NpuTemplate, "npu_slice": NpuSlice, "npu_process": NpuProcess, "npu_chip": NpuChip,
    "npu_fault": NpuFault, "npu_state": NpuState,
}  # fmt: skip
