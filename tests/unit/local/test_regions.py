"""Regions made, changed and explained from outside the library."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pumice.adapters.native import vgpu_library
from pumice.adapters.region import read_region
from pumice.adapters.region.extension import FILE_BYTES, OFFSET, live_slots, read_extension
from pumice.adapters.region.writer import create_region, set_limits
from pumice.local.shares import gate, idle, stories
from pumice.model.errors import Unavailable
from pumice.ports.region import BadRegion, DeviceUse, RegionDevice, RegionProcess, RegionSnapshot
from pumice_lab import machine
from pumice_lab.machine import machine_of

MIB = 1 << 20
LIBRARY = vgpu_library()
UUID = "GPU-0a0a0a0a-0000-4000-8000-000000000000"


def burn(directory: Path, region: Path, *arguments: str) -> str:
    """A program under the library whose region is that one; its JSON report."""
    if not (directory / "state").exists():
        machine.create(machine_of("1xTesla-T4"), directory).close()
    done = subprocess.run(
        [sys.executable, "-m", "pumice.cli.burn", *arguments, "-o", "json"], capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"], "PUMICE_MACHINE": str(directory), "LD_LIBRARY_PATH": str(machine.library_dir()),
             "LD_PRELOAD": str(LIBRARY), "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
             "CUDA_DEVICE_MEMORY_LIMIT": "3000m", "CUDA_DEVICE_SM_LIMIT": "50", "CUDA_TASK_PRIORITY": "0"},
    )  # fmt: skip
    assert "error" not in done.stderr
    return done.stdout


def test_a_region_made_here_is_the_one_that_the_library_makes(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.cache", tmp_path / "ours" / "vgpu.cache"
    burn(tmp_path / "machine", theirs, "--kernels", "0")
    create_region(ours, {0: (3000 * MIB, 50)}, priority=0)
    made, expected = bytearray(ours.read_bytes()), bytearray(theirs.read_bytes()[:FILE_BYTES])
    assert len(made) == FILE_BYTES == len(expected), "what lies behind it is added by who joins"
    for raw in (made, expected):
        raw[56:1600] = bytes(1544)  # the cards, which the first process enters
        raw[1856:2008900] = bytes(2008900 - 1856)  # its slot
        raw[2008912:2008920] = bytes(8)  # when it launched
        raw[OFFSET + 256 :] = bytes(len(raw) - OFFSET - 256)
    assert made == expected


def test_the_library_joins_a_region_made_here(tmp_path: Path) -> None:
    region = tmp_path / "r1" / "vgpu.cache"
    create_region(region, {0: (1000 * MIB, 0)})
    got = json.loads(burn(tmp_path / "machine", region, "--memory", "800", "--block", "1"))
    assert (got["error"], got["granted_bytes"]) == (None, 800 * MIB)
    assert got["total_bytes"] == 1000 * MIB  # the region's limit, not the environment's 3000


def test_changed_limits_hold_for_whoever_joins_later(tmp_path: Path) -> None:
    region = tmp_path / "r1" / "vgpu.cache"
    create_region(region, {0: (3000 * MIB, 50)})
    set_limits(region, {0: (700 * MIB, 0)})
    got = json.loads(burn(tmp_path / "machine", region, "--memory", "800", "--block", "1"))
    assert got["error"]["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    (device,) = read_region(region).devices
    assert (device.limit, device.sm_limit) == (700 * MIB, 100)


def test_a_file_that_is_no_region_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "vgpu.cache"
    path.write_bytes(b"letters" * 400000)
    with pytest.raises(BadRegion):
        set_limits(path, {0: (1, 1)})
    assert path.read_bytes() == b"letters" * 400000


def test_a_folder_that_is_there_already_is_not_reused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="File exists"):
        create_region(tmp_path / "vgpu.cache", {0: (MIB, 10)})


@pytest.mark.parametrize("content", [b"", b"\0" * 100, struct.pack("<3I", 19920718, 1, 2) + bytes(2008941)])
def test_damaged_files_have_no_extension_and_nobody_lives_in_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(content)
    assert read_extension(path) is None
    assert live_slots(path) == {}


# ---- why the limiter stands idle

NOW = 1_800_000_000.0


def region(sm_limit: int = 50, switch: int = 1, recent: int = 2, last: int = int(NOW), version: str = "1.2") -> RegionSnapshot:
    use = {0: DeviceUse(total=MIB, sm=30)}
    return RegionSnapshot(version, (RegionDevice(0, UUID, 3000 * MIB, sm_limit),),
                          (RegionProcess(0, 7, 0, 1, use), RegionProcess(1, 8, 0, 1, use)), 1, recent, switch, last)  # fmt: skip


@pytest.mark.parametrize(
    ("snapshot", "policy", "words"),
    [
        (region(), "", ""),
        (region(sm_limit=100), "", "no core limit is set"),
        (region(sm_limit=0), "", "no core limit is set"),
        (region(), "disable", "switched off by GPU_CORE_UTILIZATION_POLICY=disable"),
        (region(switch=0), "", "alone on its cards; GPU_CORE_UTILIZATION_POLICY=force keeps it on"),
        (region(switch=0), "force", ""),
        (region(last=int(NOW) - 60), "", "no kernel was launched for 60 s"),
        (region(last=int(NOW) + 3600), "", ""),  # the clock was set back meanwhile
        (region(last=0), "", "no kernel was launched yet"),
        (region(last=0, version="0"), "", ""),
    ],
)
def test_the_reason_is_told(snapshot: RegionSnapshot, policy: str, words: str) -> None:
    why = idle(snapshot, snapshot.devices[0], {0: 7}, {7: policy}, NOW)
    assert why.endswith(words)
    assert bool(why) == bool(words)


def test_the_dead_use_nothing() -> None:
    (story,) = stories(region(), {1: 8}, (), {}, NOW)
    assert story.use == DeviceUse(total=MIB, sm=30)
    assert idle(region(), region().devices[0], {}, {}, NOW) == "no living process uses the region"


def test_blocked_launches_are_told() -> None:
    assert "launches wait" in gate(region(recent=-1))
    assert gate(region()) == "launches pass"
