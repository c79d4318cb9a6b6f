"""The places at which Python reads and writes a region are those that the C compiler gives to region.h."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.native_build import compiled

from pumice.adapters.region import extension, reader
from pumice.adapters.region.reader import V12
from pumice.adapters.region.writer import PULSE
from pumice.ports.region import MAX_DEVICES, MAX_SLOTS

HEADER = Path(__file__).parents[4] / "native/vgpu/include/vgpu/region.h"
MIRROR = {
    "REGION_MAGIC": reader.MAGIC,
    "REGION_DEVICES": MAX_DEVICES,
    "REGION_SLOTS": MAX_SLOTS,
    "REGION_UUID_BYTES": reader.UUID_BYTES,
    "REGION_V1_BYTES": reader.V1_BYTES,
    "REGION_MAJOR * 10 + REGION_MINOR": int(V12.version.replace(".", "")),
    "offsetof(struct region, device_num)": V12.device_num,
    "offsetof(struct region, uuids)": V12.uuids,
    "offsetof(struct region, limit)": V12.limits,
    "offsetof(struct region, sm_limit)": V12.sm_limits,
    "offsetof(struct region, procs)": V12.slots,
    "offsetof(struct region, proc_num)": V12.trailer,
    "offsetof(struct region, utilization_switch)": V12.trailer + 4,
    "offsetof(struct region, recent_kernel)": V12.trailer + 8,
    "offsetof(struct region, priority)": V12.trailer + 12,
    "offsetof(struct region, last_kernel_time)": V12.last_kernel,
    "sizeof(struct region_slot)": V12.slot_bytes,
    "offsetof(struct region_slot, used)": 8,  # reader._use
    "sizeof(struct device_memory)": V12.use,
    "offsetof(struct device_memory, total)": 32,  # the fifth number that reader._use takes
    "offsetof(struct region_slot, device_util)": V12.util_at,
    "sizeof(struct device_util)": V12.util,
    "offsetof(struct device_util, sm_util)": 16,  # reader._use
    "offsetof(struct region_slot, status)": V12.status,
    "offsetof(struct region_slot, seqlock)": V12.sequence,
    "EXT_MAGIC": extension.MAGIC,
    "EXT_VERSION": extension.VERSION,
    "REGION_EXT_OFFSET": extension.OFFSET,
    "REGION_EXT_BYTES": extension.BYTES,
    "REGION_FILE_BYTES": extension.FILE_BYTES,
    "REGION_EXT_OFFSET + offsetof(struct region_ext, waits)": extension.WAITS_AT,
    "sizeof(struct ext_waits)": extension._WAITS.size,
    "REGION_EXT_OFFSET + offsetof(struct region_ext, devices)": extension.DEVICES_AT,
    "sizeof(struct ext_device)": extension._DEVICE.size,
    "offsetof(struct ext_device, charged_ns)": 24,  # the fifth field of extension._DEVICE
    "offsetof(struct ext_device, samples)": 56,  # the ninth
    "REGION_EXT_OFFSET + offsetof(struct region_ext, made_limit)": extension.MADE_LIMITS_AT,
    "REGION_EXT_OFFSET + offsetof(struct region_ext, slots)": extension.SLOTS_AT,
    "sizeof(struct ext_slot)": extension.SLOT_BYTES,
    "offsetof(struct ext_slot, flags)": extension._SLOT.size - 4,
    "EXT_SLOT_ALIVE_LOCK": extension.ALIVE_LOCK,
    "LOCK_ALIVE(3)": extension.SLOTS_AT + 3 * extension.SLOT_BYTES,
    "offsetof(struct region_ext, pulse)": 16,  # behind the head that writer.write_pulse checks
    "sizeof(((struct region_ext *)0)->pulse)": PULSE.size,
}
"""C expression to what Python takes it for. A bare number stands where Python has it inside a format string."""


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return compiled(HEADER, "vgpu/region.h", MIRROR, tmp_path_factory.mktemp("layout"))


@pytest.mark.parametrize("expression", list(MIRROR))
def test_a_place_of_the_region_is_where_the_compiler_puts_it(laid_out: dict[str, int], expression: str) -> None:
    assert MIRROR[expression] == laid_out[expression]
