"""A polite guest: damaged regions, full disks, lost environments, forks and kills cost nobody anything but sharing."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.vgpu_kit import LIBRARY, MIB, PROGRAMS, Container, build, python, read_region
from kit.vgpu_talk import Tenant

from pumice.adapters.region.extension import read_extension
from pumice_lab import machine

OUT_OF_MEMORY = 2
LIMIT = {"CUDA_DEVICE_MEMORY_LIMIT": "3000m"}
MAGIC = (19920718).to_bytes(4, "little")
FILE_BYTES, WHOLE_BYTES, UPSTREAM_BYTES, LAYOUT_0_BYTES = 2342912, 2736128, 2008953, 1197897


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    directory = tmp_path_factory.mktemp("machine") / "m"
    machine.create(machine.machine_of("A100-SXM4-80GB"), directory)
    return directory


@pytest.fixture
def container(card: Path, tmp_path: Path) -> Container:
    return Container(card, tmp_path, LIMIT)


def is_limited(tenant: Tenant) -> bool:
    free, total = tenant.ask("info")
    return bool(total == 3000 * MIB and tenant.ask(f"alloc {free + 1}") == OUT_OF_MEMORY and tenant.ask("alloc 1") == 0)


# ---- bad input ------------------------------------------------------------------------------------------------------

UNREADABLE = {
    "zeros": bytes(FILE_BYTES),
    "garbage of the right size": b"\x5a" * WHOLE_BYTES,
    "garbage of the size of an earlier version": b"\x5a" * FILE_BYTES,
    "an upstream file that lost its magic": b"\x5a" * UPSTREAM_BYTES,
    "a head without a body": MAGIC + (1).to_bytes(4, "little") + (2).to_bytes(4, "little"),
    "a version of the future": MAGIC + (9).to_bytes(4, "little") + bytes(FILE_BYTES - 8),
    "layout 0": MAGIC + bytes(LAYOUT_0_BYTES - 4),
    "layout 1.1": MAGIC + (1).to_bytes(4, "little") * 2 + bytes(UPSTREAM_BYTES - 12),
}


LIES = {
    "garbage of the right size",
    "garbage of the size of an earlier version",
    "an upstream file that lost its magic",
    "a head without a body",
    "a version of the future",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_damaged_or_older_region_is_made_anew_and_limits_hold(container: Container, name: str) -> None:
    container.region.write_bytes(UNREADABLE[name])
    with Tenant(container, LIBCUDA_LOG_LEVEL="1") as tenant:
        assert is_limited(tenant)
        region = read_region(container.region)
        assert (region.version, region.size) == ((1, 2), WHOLE_BYTES)
        assert len(region.live) == 1
        lines = tenant.end().splitlines()
    assert len(lines) == (name in LIES)  # an older layout, or a creation cut short, is nothing to complain of
    assert not lines or f"{container.region}: its magic, version or size lies" in lines[0]


@pytest.mark.parametrize("kind", ["foreign file", "symbolic link", "directory", "fifo", "no folder"])
def test_what_cannot_be_a_region_costs_one_line_and_limits_hold(
    container: Container, tmp_path: Path, kind: str
) -> None:
    path = container.region
    if kind == "foreign file":
        path.write_text("a diary")
    elif kind == "symbolic link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path = tmp_path / "no/such/folder/region.cache"
    with Tenant(container, CUDA_DEVICE_MEMORY_SHARED_CACHE=str(path), LIBCUDA_LOG_LEVEL="1") as tenant:
        assert is_limited(tenant)
        (line,) = tenant.end().splitlines()
    assert str(path) in line
    assert "limits hold for this process alone" in line
    if kind == "foreign file":
        assert path.read_text() == "a diary"
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, too small for a region."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_costs_one_line_and_limits_hold(container: Container, small_disk: Path) -> None:
    region = str(small_disk / "r.cache")
    with Tenant(container, CUDA_DEVICE_MEMORY_SHARED_CACHE=region, LIBCUDA_LOG_LEVEL="1") as tenant:
        assert is_limited(tenant)
        (line,) = tenant.end().splitlines()
    assert "No space left on device" in line


def test_a_read_only_disk_costs_one_line_and_limits_hold(container: Container, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    region = str(small_disk / "r.cache")
    with Tenant(container, CUDA_DEVICE_MEMORY_SHARED_CACHE=region, LIBCUDA_LOG_LEVEL="1") as tenant:
        assert is_limited(tenant)
        (line,) = tenant.end().splitlines()
    assert "Read-only file system" in line


def as_nobody() -> None:
    os.setgid(65534)
    os.setuid(65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's file needs root to be made")
@pytest.mark.parametrize(("mode", "shared"), [(0o666, True), (0o600, False)])
def test_the_region_of_another_user_is_used_where_it_may_be(mode: int, shared: bool) -> None:
    folder = Path(f"/tmp/vgpu-owner-{os.getpid()}-{mode:o}")  # pytest's own folders are closed to other users
    folder.mkdir(mode=0o755)
    try:
        for file in (LIBRARY, PROGRAMS / "claim", *machine.library_dir().glob("lib*.so.1")):
            shutil.copy(file, folder)
        container = Container(folder / "m", folder, LIMIT)
        machine.create(machine.machine_of("A100-SXM4-80GB"), container.machine)
        with Tenant(container):
            os.chmod(container.region, mode)
            own = {"LD_PRELOAD": str(folder / "libvgpu.so"), "LD_LIBRARY_PATH": str(folder), "LIBCUDA_LOG_LEVEL": "1"}
            ran = subprocess.run(
                [folder / "claim", str(3000 * MIB), str(MIB)],
                env=container.environment(**own),
                preexec_fn=as_nobody,
                capture_output=True,
                text=True,
            )
            assert ran.stdout.split() == [str(OUT_OF_MEMORY), "0"], ran.stderr
            lines = ran.stderr.splitlines()
            assert len(lines) == (not shared)
            assert not lines or "Permission denied" in lines[0]
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("limits", "total_mib", "complaint"),
    [
        ({"CUDA_DEVICE_MEMORY_LIMIT": "3g"}, 3072, ""),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "-1", "CUDA_DEVICE_MEMORY_LIMIT_0": "2g"}, 2048, "CUDA_DEVICE_MEMORY_LIMIT=-1"),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_MEMORY_LIMIT_0": "3 GiB!"}, 2048, "_0=3 GiB!"),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_MEMORY_LIMIT_0": ""}, 2048, ""),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "2g", "CUDA_DEVICE_MEMORY_LIMIT_0": "1g"}, 1024, ""),
        ({"CUDA_DEVICE_MEMORY_LIMIT_1": "1g"}, 1024, ""),  # card 0 was not meant to be seen: it fails closed
        ({"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_SM_LIMIT": "lots"}, 1024, "CUDA_DEVICE_SM_LIMIT=lots"),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_SM_LIMIT": "-1"}, 1024, "CUDA_DEVICE_SM_LIMIT=-1"),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_SM_LIMIT": ""}, 1024, ""),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_SM_LIMIT": "101"}, 1024, ""),  # as good as none
    ],
)
def test_bad_limits_fail_closed_for_memory_and_open_for_cores(
    card: Path, tmp_path: Path, limits: dict[str, str], total_mib: int, complaint: str
) -> None:
    container = Container(card, tmp_path, limits)
    with Tenant(container, LIBCUDA_LOG_LEVEL="1") as tenant:
        assert tenant.ask("info")[1] == total_mib * MIB
        assert read_region(container.region).sm_limit[0] >= 100
        lines = tenant.end().splitlines()
    assert len(lines) == bool(complaint)
    assert not lines or complaint in lines[0]


@pytest.mark.parametrize("text", ["", "0"])
def test_a_memory_limit_that_says_nothing_is_none(card: Path, tmp_path: Path, text: str) -> None:
    with (
        Tenant(Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": text}), LIBCUDA_LOG_LEVEL="1") as tenant,
        Tenant(Container(card, tmp_path), LD_PRELOAD="<unset>") as native,
    ):
        assert tenant.ask("info")[1] == native.ask("info")[1]
        assert tenant.end() == ""


@pytest.mark.parametrize("text", ["-1", "3gg", "99999999999g"])
def test_a_memory_limit_that_nobody_can_read_gives_nothing_and_says_so(card: Path, tmp_path: Path, text: str) -> None:
    ran = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": text}).child("holder.py", LIBCUDA_LOG_LEVEL="1")
    assert ran.code != 0
    assert "cuDevicePrimaryCtxRetain: 2" in ran.err
    assert f"CUDA_DEVICE_MEMORY_LIMIT={text} is not a limit" in ran.err


def test_more_visible_cards_than_limits_leave_no_card_unlimited(tmp_path: Path) -> None:
    machine.create(machine.machine_of("2xA100-SXM4-40GB"), tmp_path / "m")
    container = Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT_0": "2g"})
    with Tenant(container, device=1, LIBCUDA_LOG_LEVEL="1") as tenant:
        free, total = tenant.ask("info")
        assert total == 2 << 30
        assert tenant.ask(f"alloc {free + 1}") == OUT_OF_MEMORY
        assert [first[0] for first in (tenant.ask("nvml 0")[0], tenant.ask("nvml 1")[0])] == [2 << 30] * 2


def test_a_region_that_cannot_be_had_does_not_stop_the_launches(card: Path, tmp_path: Path) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": "8g", "CUDA_DEVICE_SM_LIMIT": "90", "GPU_CORE_UTILIZATION_POLICY": "force"}
    container = Container(card, tmp_path, limits)
    container.region.mkdir()
    ran = container.run(PROGRAMS / "threads", str(8 << 30), LIBCUDA_LOG_LEVEL="1")
    assert ran.code == 0, ran.err
    (line,) = ran.err.splitlines()
    assert "limits hold for this process alone" in line


def test_a_later_environment_does_not_change_the_limit(container: Container) -> None:
    with Tenant(container), Tenant(container, CUDA_DEVICE_MEMORY_LIMIT="30g") as second:
        assert second.ask("info")[1] == 3000 * MIB
        (line,) = second.end().splitlines()
    assert "the region's memory limit" in line


# ---- a lost environment ---------------------------------------------------------------------------------------------


def test_a_process_without_environment_is_limited_by_the_region_beside_the_library(card: Path, tmp_path: Path) -> None:
    library = shutil.copy(LIBRARY, tmp_path / "libvgpu.so")
    container = Container(card, tmp_path, LIMIT)
    with Tenant(container):
        environment = container.environment()
        kept = {name: environment[name] for name in ("LD_LIBRARY_PATH", "PUMICE_MACHINE")}  # what a machine needs
        ran = subprocess.run(
            python("holder.py"),
            env={**kept, "LD_PRELOAD": str(library)},
            input="info\nexit\n",
            capture_output=True,
            text=True,
        )
        assert ran.stdout.splitlines()[1].endswith(f", {3000 * MIB}]"), ran.stderr
        assert ran.stderr == ""


def test_two_regions_beside_the_library_are_no_answer(card: Path, tmp_path: Path) -> None:
    library = shutil.copy(LIBRARY, tmp_path / "libvgpu.so")
    container = Container(card, tmp_path, LIMIT)
    common = Path("/tmp/cudevshr.cache")  # where a process without any hint keeps its region, as upstream's does
    was_there = common.exists()
    with Tenant(container):
        shutil.copy(container.region, tmp_path / "other.cache")
        with Tenant(
            container,
            LD_PRELOAD=str(library),
            CUDA_DEVICE_MEMORY_SHARED_CACHE="<unset>",
            CUDA_DEVICE_MEMORY_LIMIT="1g",
            LIBCUDA_LOG_LEVEL="0",
        ) as alone:
            assert alone.ask("info")[1] == 1 << 30
    if not was_there:
        common.unlink(missing_ok=True)


def test_who_makes_the_region_may_take_long_and_nobody_takes_the_limit_for_itself_meanwhile(container: Container) -> None:
    """A process without a processor, or a stopped one: after 50 ms each of the others had a share of its own."""
    with container.region.open("w+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, UPSTREAM_BYTES)
        waiting = [container.start(*python("holder.py"), LIBCUDA_LOG_LEVEL="1") for _ in range(2)]
        time.sleep(0.5)
    for process in waiting:
        assert process.stdout is not None
        assert process.stdout.readline() == '"ready"\n'
    live = {slot.pid for slot in read_region(container.region).live}
    said = [process.communicate("exit\n", timeout=60)[1] for process in waiting]
    assert (live, said) == ({process.pid for process in waiting}, ["", ""])


# ---- processes ------------------------------------------------------------------------------------------------------


def test_a_forked_child_does_not_touch_the_parents_slot(container: Container) -> None:
    with Tenant(container) as tenant:
        tenant.ask(f"alloc {100 * MIB}")
        before = read_region(container.region)
        child_init, child_alloc = tenant.ask("fork")
        assert tenant.hear() == "forked"
        assert child_alloc != 0  # the driver has no context in a forked child
        assert child_init in (0, 3, 999)
        after = read_region(container.region)
        assert after.total() == before.total()
        assert after.live[0] == before.live[0]
        assert tenant.ask("free") == 0
        assert is_limited(tenant)  # the refusal in it gives back the slot that the child left
        assert [slot.pid for slot in read_region(container.region).live] == [tenant.pid]


def test_an_exec_gives_the_slot_to_the_new_program(container: Container) -> None:
    with Tenant(container) as tenant:
        tenant.ask(f"alloc {500 * MIB}")
        assert tenant.ask("exec") == "ready"
        (slot,) = read_region(container.region).live
        assert slot.pid == tenant.pid
        assert slot.used[0][2] == 0
        assert is_limited(tenant)


def test_sixty_four_processes_start_at_once(card: Path, tmp_path: Path) -> None:
    container = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "38g"})  # room for the contexts of all
    children = [container.start(*python("holder.py")) for _ in range(64)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == '"ready"\n'
    region = read_region(container.region)
    assert sorted(slot.pid for slot in region.live) == sorted(child.pid for child in children)
    assert region.proc_num == 64
    for child in children:
        _, err = child.communicate("exit\n", timeout=60)
        assert (child.returncode, err) == (0, "")
    assert read_region(container.region).slots == ()


def test_kills_at_any_moment_lose_no_byte_and_leave_no_lock(container: Container) -> None:
    ran = container.run(PROGRAMS / "chaos", "2000", "4", timeout=60, LIBCUDA_LOG_LEVEL="0")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    rounds, longest_wait_ns, waits, given_up = ran.json()
    assert rounds >= 30
    assert waits > 0
    assert given_up <= rounds // 20  # on a busy machine one that is killed is not given the processor to die with
    extension = read_extension(container.region)  # as `pumice vgpu status` reads it
    assert extension is not None
    reported = extension.waits
    assert (reported.longest_ns, reported.count, reported.late) == (longest_wait_ns, waits, given_up)


def test_the_driver_failing_at_any_call_harms_nobody(container: Container) -> None:
    calls = ["cuInit", "cuDevicePrimaryCtxRetain", "cuMemAlloc", "cuMemGetInfo", "cuDeviceGetUuid", "nvmlInit"]
    with machine.open_machine(container.machine) as emulated:
        for call in calls:
            emulated.set_fault(machine.FaultModel(call=call, code=999, count=1))
            ran = container.run(*python("holder.py"), LIBCUDA_LOG_LEVEL="0")
            assert ran.code >= 0, call  # not ended by a signal
            emulated.clear_faults()
    with Tenant(container) as tenant:
        assert is_limited(tenant)


def test_signals_and_modes_of_the_program_are_left_alone(container: Container) -> None:
    ran = container.child("hygiene.py", LIBCUDA_LOG_LEVEL="0")
    assert ran.json() == {"umask": "0o27", "handlers": [], "threads": 2, "errno": 17, "slack": "unchanged"}
    assert ran.err == ""


def test_threads_may_do_everything_at_once(container: Container) -> None:
    ran = container.run(
        PROGRAMS / "threads",
        str(3000 * MIB),
        CUDA_DEVICE_SM_LIMIT="90",
        GPU_CORE_UTILIZATION_POLICY="force",
        LIBCUDA_LOG_LEVEL="0",
    )
    assert ran.code == 0, ran.err
    allocations, refusals = ran.json()
    assert allocations > 1000
    assert refusals > 0
    assert read_region(container.region).slots == ()


def test_a_killed_launcher_does_not_hold_up_the_others(card: Path, tmp_path: Path) -> None:
    limits = {"CUDA_DEVICE_SM_LIMIT": "50", "GPU_CORE_UTILIZATION_POLICY": "force", "CUDA_DEVICE_MEMORY_LIMIT": "8g"}
    container = Container(card, tmp_path, limits)
    survivor = container.start(PROGRAMS / "threads", str(8192 * MIB), LIBCUDA_LOG_LEVEL="0")
    killed = 0
    for _ in range(100):
        victim = container.start(PROGRAMS / "threads", str(8192 * MIB), "1", LIBCUDA_LOG_LEVEL="0")
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        assert victim.stdin is not None
        victim.stdin.write("go\n")
        victim.stdin.flush()
        time.sleep(killed / 1000)  # later in its work each time
        victim.kill()
        victim.communicate()
        killed += victim.returncode == -signal.SIGKILL  # a quick one has ended before
        if killed == 10:
            break
    assert killed == 10
    _, err = survivor.communicate(timeout=60)
    assert (survivor.returncode, err) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_a_process_of_another_pid_namespace_is_not_taken_for_dead(container: Container) -> None:
    with Tenant(container) as first:
        inner = container.start("unshare", "-pf", "--kill-child", *python("holder.py"), LIBCUDA_LOG_LEVEL="0")
        assert inner.stdin is not None
        assert inner.stdout is not None
        assert inner.stdout.readline() == '"ready"\n'
        inner.stdin.write(f"alloc {1000 * MIB}\n")
        inner.stdin.flush()
        assert inner.stdout.readline() == "0\n"
        before = read_region(container.region).total()
        assert first.ask(f"alloc {3000 * MIB}") == OUT_OF_MEMORY  # looks for the dead
        assert read_region(container.region).total() == before
        assert 1 in [slot.pid for slot in read_region(container.region).live]  # as it is called over there
        free, _ = first.ask("info")
        inner.kill()
        inner.communicate()
        # Its end is nobody's to wait for here: the pipe closes a little before the process is gone.
        answers = (time.sleep(0.01) or first.ask(f"alloc {free + 500 * MIB}") for _ in range(500))
        assert 0 in answers
