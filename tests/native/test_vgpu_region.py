"""A live region as the ecosystem's monitors read it, and the library on older drivers and without NVML."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kit.vgpu_kit import LIBRARY, MIB, PROGRAMS, Container, build, read_region
from kit.vgpu_talk import Tenant

from pumice_lab import machine

LIMIT = {"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "CUDA_DEVICE_SM_LIMIT": "40", "CUDA_TASK_PRIORITY": "0"}
OUT_OF_MEMORY = 2


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    directory = tmp_path_factory.mktemp("machine") / "m"
    machine.create(machine.machine_of("2xTesla-V100-SXM2-16GB"), directory)
    return directory


@pytest.fixture
def container(card: Path, tmp_path: Path) -> Container:
    return Container(card, tmp_path, LIMIT)


def test_a_monitor_finds_every_field_where_it_looks(container: Container) -> None:
    cards = machine.machine_of("2xTesla-V100-SXM2-16GB").cards
    with Tenant(container, device=1) as tenant:
        tenant.ask(f"alloc {10 * MIB}")
        region = read_region(container.region)
        assert (region.magic, region.version) == (19920718, (1, 2))
        assert region.device_num == 2
        # The whole field is a key for the monitors: what is behind the name must be zero in every container.
        assert region.uuids == tuple((c.uuid.encode() + bytes(96))[:96] for c in cards) + (bytes(96),) * 14
        assert region.limit == (3000 * MIB,) * 16
        assert region.sm_limit == (40,) * 16
        assert (region.priority, region.utilization_switch, region.recent_kernel) == (0, 1, 2)
        (slot,) = region.slots
        assert (slot.pid, slot.status, region.proc_num) == (tenant.pid, 1, 1)
        context, module, data, offset, total = slot.used[1]
        assert (module, data, offset, total) == (0, 10 * MIB, 0, context + 10 * MIB)
        assert all(not any(used) for index, used in enumerate(slot.used) if index != 1)
    assert [path.name for path in container.directory.iterdir()] == ["container.cache"]  # a monitor bears no third file


def test_slots_of_the_dead_are_all_zero_after_the_next_look(container: Container) -> None:
    with Tenant(container) as first, Tenant(container) as second:
        first.ask(f"alloc {MIB}")
        first.kill()
        assert second.ask(f"alloc {4000 * MIB}") == OUT_OF_MEMORY
        assert [slot.pid for slot in read_region(container.region).slots] == [second.pid]


def test_the_share_used_is_published(card: Path, tmp_path: Path) -> None:
    subprocess.run(
        [str(PROGRAMS / "conduct"), str(LIBRARY), str(tmp_path), "1400", "limit=40,kernel=1000000"],
        env={**os.environ, "PUMICE_MACHINE": str(card), "LD_LIBRARY_PATH": str(machine.library_dir())},
        check=True,
        capture_output=True,
        timeout=100,
    )
    (slot,) = read_region(tmp_path / "t.cache").slots  # the worker ended without cleaning up
    assert 30 <= slot.sm_util[0] <= 50


@pytest.mark.parametrize("driver", ["driver-12090", "driver-11080"])
def test_the_limit_holds_on_older_drivers(card: Path, tmp_path: Path, driver: str) -> None:
    with Tenant(Container(card, tmp_path, LIMIT, driver)) as tenant:
        free, total = tenant.ask("info")
        assert total == 3000 * MIB
        assert tenant.ask(f"alloc {free + 1}") == OUT_OF_MEMORY
        assert tenant.ask(f"alloc {free}") == 0


def test_the_limit_holds_without_nvml(card: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cuda-only"
    folder.mkdir()
    shutil.copy(machine.library_dir() / "libcuda.so.1", folder)
    container = Container(card, tmp_path, LIMIT)
    with Tenant(container, LD_LIBRARY_PATH=str(folder)) as tenant:
        free, total = tenant.ask("info")
        assert total - free == 300 * MIB  # nothing measures the context, so it is taken to be this large
        assert tenant.ask(f"alloc {free + 1}") == OUT_OF_MEMORY
        assert tenant.ask(f"alloc {free}") == 0
        region = read_region(container.region)
        assert region.device_num == 2
        assert [uuid.rstrip(b"\0").decode() for uuid in region.uuids[:2]] == [
            c.uuid for c in machine.machine_of("2xTesla-V100-SXM2-16GB").cards
        ]
