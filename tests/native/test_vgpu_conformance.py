"""Robustness of a library in every process of a container: races seen by the machine itself, faults, forks, captures."""

from __future__ import annotations

import os
import random
import re
import signal
import statistics
import time
from pathlib import Path

import pytest
from kit.native_build import NATIVE
from kit.vgpu_kit import LIBRARY, MIB, PROGRAMS, Container, build, hooks, patch_region, read_region
from kit.vgpu_kit import LIMIT as LIMIT_AT
from kit.vgpu_talk import Tenant

from pumice_lab import machine

OUT_OF_MEMORY = 2
BLOCK = 2 * MIB  # in which the driver takes memory from the card
LIMITS = {"CUDA_DEVICE_MEMORY_LIMIT": "3000m"}
DRIVERS = ["", "driver-12090", "driver-11080"]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    directory = tmp_path_factory.mktemp("machine") / "m"
    machine.create(machine.machine_of("A100-SXM4-40GB"), directory)
    return directory


@pytest.fixture
def container(card: Path, tmp_path: Path) -> Container:
    return Container(card, tmp_path, LIMITS)


# ---- interposition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_direct_call_of_every_hooked_name_is_ours(card: Path, tmp_path: Path, driver: str) -> None:
    ran = Container(card, tmp_path, driver=driver).run(PROGRAMS / "linked")
    assert (ran.code, ran.err) == (0, "")
    found = {name: (tenant, symbol) for _, name, tenant, symbol in (line.split() for line in ran.out.splitlines())}
    assert {found[hook.name] for hook in hooks()} == {("libvgpu.so", hook.name) for hook in hooks()}
    assert found["cuStreamCreate"] == ("libcuda.so.1", "cuStreamCreate")
    assert found["nvmlDeviceGetName"] == ("libnvidia-ml.so.1", "nvmlDeviceGetName")


def test_a_direct_call_of_what_the_driver_lacks_is_not_found(card: Path, tmp_path: Path) -> None:
    ran = Container(card, tmp_path, driver="driver-11080").run(PROGRAMS / "linked", "absent")
    assert (ran.code, ran.out.strip()) == (0, "500")  # CUDA_ERROR_NOT_FOUND, and no jump to nowhere


# ---- memory, as the machine itself counts it ------------------------------------------------------------------------


def test_many_processes_of_many_threads_never_hold_more_than_the_limit(container: Container) -> None:
    """By the machine's own count of the card, which knows nothing of the books; blocks of its granule count as they are.
    From the contexts, which nothing refuses, to the end of the last process: who ends counts until the driver has all back."""
    limit = 3000 * MIB
    programs = [
        container.start(PROGRAMS / "threads", str(limit), str(2 * MIB), LIBCUDA_LOG_LEVEL="0") for _ in range(3)
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    most, refusals = 0, 0
    with machine.open_machine(container.machine) as emulated:
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        while any(program.poll() is None for program in programs):
            most = max(most, used_by_the_living(emulated, limit))
            time.sleep(0.0005)  # the processor is theirs
    for program in programs:
        out, err = program.communicate(timeout=60)
        assert (program.returncode, err) == (0, "")  # every answer was granted or out of memory
        refusals += int(out.strip("[]\n").split(", ")[1])
    assert limit // 2 < most <= limit
    assert refusals > 0
    assert read_region(container.region).slots == ()


def used_by_the_living(emulated: machine.Machine, limit: int) -> int:
    """The one word in which the machine counts the card. The dead are taken out of it when somebody asks, so it is asked for
    again where somebody died between the two."""
    for _ in range(3):
        emulated.call("pumice_machine_reap")
        used: int = emulated.card(0).lanes[0].used_bytes
        if used <= limit:
            break
    return used


def test_what_is_told_of_memory_never_contradicts_itself(container: Container) -> None:
    """In every state, more in use than the limit included."""
    rng = random.Random(11)
    physical = machine.machine_of("A100-SXM4-40GB").cards[0].memory * MIB
    with Tenant(container) as tenant:
        held, limit = 0, 3000 * MIB
        for _ in range(150):
            before = tenant.ask("info")
            match rng.choice(["alloc", "alloc", "free", "limit"]):
                case "alloc":
                    size = rng.randrange(1, 1200 * MIB)
                    fits = -(-size // BLOCK) * BLOCK <= before[0]
                    assert tenant.ask(f"alloc {size}") == (0 if fits else OUT_OF_MEMORY)
                    held += fits
                    assert 0 <= before[0] - size * fits - tenant.ask("info")[0] < BLOCK
                case "free" if held:
                    assert tenant.ask("free") == 0
                    held -= 1
                case "limit":
                    limit = rng.choice([1000, 3000, 5000, 80_000]) * MIB
                    patch_region(container.region, LIMIT_AT, "<Q", limit)
            free, total = tenant.ask("info")
            (total1, free1, used1), (total2, free2, used2, reserved) = tenant.ask("nvml 0")
            assert total == tenant.ask("total 0") <= min(limit, physical)
            assert total1 == total2 == (total if limit < physical else total1) <= min(limit, physical)
            assert free == min(free1, free)
            assert free1 + used1 <= total1
            assert free2 + used2 + reserved <= total2
            assert 0 <= free <= total


def test_everything_given_back_leaves_what_was_there(container: Container) -> None:
    with Tenant(container) as tenant:
        before = read_region(container.region).total()
        for round_ in range(3):
            assert tenant.ask(f"fill {7 * MIB + round_}") > 300
            assert tenant.ask("freeall") == 0
            assert read_region(container.region).total() == before


# ---- the driver fails, or the process dies, at every call -------------------------------------------------------------


def driver_calls() -> list[str]:
    """The library's hooks and its own calls, by the names under which the machine injects faults."""
    needs = re.findall(r"^NEED\(\w+, (\w+),", (NATIVE / "vgpu/src/driver/needs.def").read_text(), re.M)
    names = {hook.name for hook in hooks()} | {name for name in needs if not name.startswith("pumice_")}
    return sorted({re.sub(r"(_v\d|_ptsz)+$", "", name) for name in names if "GetProcAddress" not in name})


@pytest.mark.parametrize("ending", ["answers an error", "kills the process"])
def test_whatever_call_fails_the_books_are_the_machines(card: Path, tmp_path: Path, ending: str) -> None:
    container = Container(
        card, tmp_path, {**LIMITS, "PUMICE_VGPU_RECONCILE_MS": "0"}
    )  # a call at a time of its own would be hit
    crash = ending == "kills the process"
    quiet = {"LIBCUDA_LOG_LEVEL": "0"}
    plain = container.child("faulty.py", **quiet).out
    assert int(plain) == read_context(container)
    with machine.open_machine(card) as emulated, Tenant(container, **quiet) as neighbour:
        before = read_region(container.region).total()
        for call in driver_calls():
            for first in (1, 2):
                emulated.set_fault(machine.FaultModel(call=call, code=999, first=first, count=1, crash=crash))
                ran = container.child("faulty.py", **quiet)
                emulated.clear_faults()
                assert ran.code in ((0, -signal.SIGKILL) if crash else (0,)), (call, ran.err)
                assert ran.err == "", call
        free, _ = neighbour.ask("info")
        assert neighbour.ask(f"alloc {free + 3000 * MIB}") == OUT_OF_MEMORY  # looks for the dead
        assert read_region(container.region).total() == before
        assert [slot.pid for slot in read_region(container.region).live] == [neighbour.pid]
        assert neighbour.ask(f"alloc {neighbour.ask('info')[0]}") == 0


def read_context(container: Container) -> int:
    """Return the memory of one context on this card."""
    with Tenant(container) as tenant:
        free, total = tenant.ask("info")
        return int(total - free)


# ---- forks ------------------------------------------------------------------------------------------------------------


def test_a_storm_of_forks_leaves_the_parent_and_the_region_alone(container: Container) -> None:
    ran = container.child("storm.py", LIBCUDA_LOG_LEVEL="0")
    assert ran.err == ""
    strange, descriptors, mappings = ran.json()
    assert (strange, descriptors) == (0, 0)
    assert mappings <= 1  # the ancestors' are gone, twenty generations deep
    assert read_region(container.region).slots == ()


# ---- compute ------------------------------------------------------------------------------------------------------------


def test_measuring_disturbs_no_capture_of_another_thread(card: Path, tmp_path: Path) -> None:
    limits = {"CUDA_DEVICE_SM_LIMIT": "90", "GPU_CORE_UTILIZATION_POLICY": "force"}
    container = Container(card, tmp_path, limits)
    assert container.child("capture.py", LIBCUDA_LOG_LEVEL="0").json() == {"codes": [0], "nodes": [20]}


# ---- hygiene ------------------------------------------------------------------------------------------------------------


def spawn_ms(preload: bool) -> float:
    environment = {"PATH": "/usr/bin:/bin", **({"LD_PRELOAD": str(LIBRARY)} if preload else {})}
    begun = time.perf_counter()
    pid = os.posix_spawn("/bin/true", ["true"], environment)
    os.waitpid(pid, 0)
    return 1000 * (time.perf_counter() - begun)


def test_a_program_without_a_gpu_starts_almost_as_quickly_under_the_preload() -> None:
    build()

    def added() -> float:
        pairs = [(spawn_ms(True), spawn_ms(False)) for _ in range(200)]
        return statistics.median(ours for ours, _ in pairs) - statistics.median(native for _, native in pairs)

    assert any(added() <= 0.3 for _ in range(5))  # beside other load a whole round may be slow


def test_the_first_use_of_cuda_makes_the_region_with_its_cards(container: Container) -> None:
    """A monitor labels by what is there: a program that has only called cuInit is seen already."""
    script = "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0; input()"
    program = container.start("python3", "-I", "-S", "-c", script)
    try:
        uuid = machine.machine_of("A100-SXM4-40GB").cards[0].uuid.encode()
        assert wait_for_region(container.region, uuid)
    finally:
        program.communicate("\n", timeout=60)
    assert read_region(container.region).slots == ()


def wait_for_region(path: Path, uuid: bytes) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.stat().st_size > 2008952 and read_region(path).uuids[0].startswith(uuid):
            return True
        time.sleep(0.005)
    return False


def test_a_look_up_of_a_driver_name_is_no_use_of_the_gpu(container: Container) -> None:
    ran = container.run(PROGRAMS / "symbols")
    assert ran.code == 0
    assert not container.region.exists()
