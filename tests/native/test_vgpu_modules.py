"""Device memory outside allocations: modules, and what grows inside the driver.

A module's image says what it needs, so one that does not fit is refused before it is loaded; the rest is noticed by comparing the
books with NVML's figure for the process or, where NVML shows none, with what the card lost. All of it is in the region as memory
of modules, apart from data and contexts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.vgpu_kit import LIMIT as LIMIT_AT
from kit.vgpu_kit import MIB, Container, build, patch_region, read_region
from kit.vgpu_talk import Tenant

from pumice_lab import machine
from tests.native.vgpu_modules import booked, seen_by_machine, silent_variable, variable

LIMIT, CONTEXT = 3000, 414
OUT_OF_MEMORY = 2
BLOCK = 2 * MIB
STACK, MALLOC_HEAP, DEFAULT_HEAP = 0, 2, 8 * MIB
OFTEN = {"PUMICE_VGPU_RECONCILE_MS": "20"}
NEVER = {"PUMICE_VGPU_RECONCILE_MS": "0"}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    directory = tmp_path_factory.mktemp("machine")
    machine.create(machine.machine_of("A100-SXM4-40GB"), directory / "m")
    return directory / "m"


@pytest.fixture
def container(card: Path, tmp_path: Path) -> Container:
    return Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT}m"})


def eventually(true: Callable[[], bool], patience: float = 20.0) -> bool:
    end = time.monotonic() + patience
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def peak(container: Container, tenant: Tenant) -> int:
    """The most that the process ever held, by the machine's own account."""
    share = machine.open_machine(container.machine).witness().of(tenant.pid)
    assert share is not None
    return share.peak


def test_a_module_is_charged_when_it_is_loaded_and_given_back_when_it_is_unloaded(container: Container) -> None:
    with Tenant(container, **NEVER) as tenant:
        assert tenant.ask(f"module {variable(100 * MIB)}") == 0
        assert booked(container) == (CONTEXT * MIB, 100 * MIB, 0)
        assert tenant.ask("info")[0] == (LIMIT - CONTEXT - 100) * MIB
        assert seen_by_machine(container, tenant) == read_region(container.region).total()
        assert tenant.ask("unload") == 0
        assert booked(container) == (CONTEXT * MIB, 0, 0)


@pytest.mark.parametrize("image", [variable, silent_variable])
def test_a_module_above_the_limit_is_refused_and_leaves_no_trace(
    container: Container, image: Callable[[int], str]
) -> None:
    with Tenant(container, **NEVER) as tenant:
        free, _ = tenant.ask("info")
        assert tenant.ask(f"module {image(free + BLOCK)}") == OUT_OF_MEMORY
        assert tenant.ask("info")[0] == free
        assert seen_by_machine(container, tenant) == CONTEXT * MIB
        assert tenant.ask(f"module {image(free)}") == 0
        assert tenant.ask("alloc 1") == OUT_OF_MEMORY


@pytest.mark.parametrize("over", [1, BLOCK, 1 << 40])
def test_a_module_above_the_limit_is_never_on_the_card(container: Container, over: int) -> None:
    with Tenant(container, **NEVER) as tenant:
        free, _ = tenant.ask("info")
        assert tenant.ask(f"module {variable(free + over)}") == OUT_OF_MEMORY
        assert peak(container, tenant) == CONTEXT * MIB
        assert tenant.ask(f"module {variable(free)}") == 0
        assert peak(container, tenant) == LIMIT * MIB


def test_a_module_that_takes_less_than_its_image_said_costs_what_it_takes(container: Container) -> None:
    """Its second small variable shares the block of the first."""
    with Tenant(container, **NEVER) as tenant:
        for _ in range(2):
            assert tenant.ask(f"module {variable(MIB // 2)}") == 0
        assert booked(container) == (CONTEXT * MIB, BLOCK, 0)
        assert seen_by_machine(container, tenant) == read_region(container.region).total()


def test_a_module_that_the_driver_refuses_costs_nothing(container: Container) -> None:
    with Tenant(container, **NEVER) as tenant, machine.open_machine(container.machine) as emulated:
        emulated.set_fault(machine.FaultModel(call="cuModuleLoadData", code=200, count=1))
        assert tenant.ask(f"module {variable(100 * MIB)}") == 200
        emulated.clear_faults()
        assert booked(container) == (CONTEXT * MIB, 0, 0)


def test_code_that_is_loaded_at_once_has_its_room_before(container: Container) -> None:
    kernel = ".version,8.0,.target,sm_80,.address_size,64,.entry,k(){ret;}"
    with Tenant(container, CUDA_MODULE_LOADING="EAGER", **NEVER) as tenant:
        free, _ = tenant.ask("info")
        assert tenant.ask(f"alloc {free - MIB}") == 0
        assert tenant.ask(f"module {kernel}") == OUT_OF_MEMORY
        assert peak(container, tenant) <= LIMIT * MIB
        assert tenant.ask("free") == 0
        assert tenant.ask(f"module {kernel}") == 0
        assert booked(container)[1] == BLOCK


def test_modules_of_two_processes_share_one_limit(container: Container) -> None:
    with Tenant(container, **NEVER) as first, Tenant(container, **NEVER) as second:
        free, _ = second.ask("info")
        assert first.ask(f"module {variable(free - BLOCK)}") == 0
        assert second.ask(f"module {variable(2 * BLOCK)}") == OUT_OF_MEMORY
        assert second.ask(f"module {variable(BLOCK)}") == 0
        assert first.ask("unload") == 0
        assert second.ask(f"module {variable(free - BLOCK)}") == 0


def test_code_that_is_loaded_with_its_first_use_is_charged_then(container: Container) -> None:
    with Tenant(container, **NEVER) as tenant:
        assert tenant.ask(f"module pumice-kernel,name=k,ns=1000,code={5 * MIB}") == 0
        assert booked(container)[1] == 0
        assert tenant.ask("function k") == 0
        assert booked(container)[1] == 3 * BLOCK
        assert tenant.ask("function k") == 0
        assert booked(container)[1] == 3 * BLOCK


def test_code_that_is_loaded_at_once_is_charged_at_once(container: Container) -> None:
    with Tenant(container, CUDA_MODULE_LOADING="EAGER", **NEVER) as tenant:
        assert tenant.ask(f"module pumice-kernel,name=k,ns=1000,code={5 * MIB}") == 0
        assert booked(container)[1] == 3 * BLOCK
        assert tenant.ask("unload") == 0
        assert booked(container)[1] == 0


def test_a_context_takes_its_modules_with_it(container: Container) -> None:
    with Tenant(container, **NEVER) as tenant:
        assert tenant.ask(f"module {variable(100 * MIB)}") == 0
        assert tenant.ask("reset") == 0
        assert booked(container) == (0, 0, 0)


def test_a_larger_heap_is_charged_at_once_and_a_smaller_one_too(container: Container) -> None:
    with Tenant(container, **NEVER) as tenant:
        assert tenant.ask(f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP + 500 * MIB}") == 0
        assert booked(container) == (CONTEXT * MIB, 500 * MIB, 0)
        assert tenant.ask("info")[0] == (LIMIT - CONTEXT - 500) * MIB
        assert seen_by_machine(container, tenant) == read_region(container.region).total()
        assert tenant.ask(f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP}") == 0
        assert booked(container) == (CONTEXT * MIB, 0, 0)


@pytest.mark.parametrize(("limit", "value"), [(MALLOC_HEAP, 1 << 32), (STACK, 1 << 20), (MALLOC_HEAP, (1 << 64) - 1)])
def test_a_heap_or_stacks_above_the_limit_are_refused_and_never_on_the_card(
    container: Container, limit: int, value: int
) -> None:
    with Tenant(container, **NEVER) as tenant:
        assert tenant.ask(f"setlimit {limit} {value}") == OUT_OF_MEMORY
        assert booked(container) == (CONTEXT * MIB, 0, 0)
        assert peak(container, tenant) == CONTEXT * MIB


def test_what_grows_inside_the_driver_unasked_is_noticed_and_what_shrinks_too(container: Container) -> None:
    """Half a block and a byte take a whole one, which no call says."""
    with Tenant(container, **OFTEN) as tenant:
        for _ in range(50):
            assert tenant.ask(f"alloc {BLOCK // 2 + 1}") == 0
        assert eventually(lambda: read_region(container.region).total() == CONTEXT * MIB + 50 * BLOCK)
        assert seen_by_machine(container, tenant) == read_region(container.region).total()
        for _ in range(50):
            assert tenant.ask("free") == 0
        assert eventually(lambda: booked(container) == (CONTEXT * MIB, 0, 0))


def test_nothing_is_charged_twice_however_it_came(container: Container) -> None:
    with Tenant(container, **OFTEN) as tenant:
        for step in (
            f"alloc {64 * MIB}",
            f"module {variable(32 * MIB)}",
            f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP + 16 * MIB}",
            f"module {variable(8 * MIB)}",
            "unload",
            f"alloc {128 * MIB}",
            "free",
        ):
            assert tenant.ask(step) == 0
        assert eventually(lambda: booked(container) == (CONTEXT * MIB, (32 + 16) * MIB, 64 * MIB))
        assert seen_by_machine(container, tenant) == read_region(container.region).total()


def test_blocks_that_the_driver_rounds_up_are_charged_as_they_are(container: Container) -> None:
    with Tenant(container, **OFTEN) as tenant:
        for _ in range(10):
            assert tenant.ask(f"alloc {BLOCK // 2 + 1}") == 0  # too large to share a block
        assert eventually(lambda: read_region(container.region).total() == CONTEXT * MIB + 10 * BLOCK)
        assert tenant.ask("freeall") == 0
        assert booked(container) == (CONTEXT * MIB, 0, 0)  # not only at the next look
        assert tenant.ask("info")[0] == (LIMIT - CONTEXT) * MIB


# ---- where NVML shows no process ------------------------------------------------------------------------------------


@pytest.fixture
def hidden(tmp_path: Path) -> Container:
    """As in a container without a monitor that tells the host's pids."""
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    with machine.open_machine(tmp_path / "m") as emulated:
        emulated.state.pid_mode = 2
    return Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT}m", **OFTEN})


@pytest.mark.parametrize("image", [variable, silent_variable])
def test_where_nvml_shows_no_process_the_card_tells_what_was_taken(
    hidden: Container, image: Callable[[int], str]
) -> None:
    with Tenant(hidden) as tenant:
        assert booked(hidden) == (CONTEXT * MIB, 0, 0)
        assert tenant.ask(f"module {image(100 * MIB)}") == 0
        assert tenant.ask(f"alloc {10 * MIB}") == 0
        assert booked(hidden) == (CONTEXT * MIB, 100 * MIB, 10 * MIB)
        assert seen_by_machine(hidden, tenant) == read_region(hidden.region).total()
        free, _ = tenant.ask("info")
        assert tenant.ask(f"module {image(free + BLOCK)}") == OUT_OF_MEMORY
        assert tenant.ask("unload") == 0
        assert booked(hidden) == (CONTEXT * MIB, 0, 10 * MIB)


def test_where_nvml_shows_no_process_code_and_heaps_are_charged_too(hidden: Container) -> None:
    with Tenant(hidden) as tenant:
        assert tenant.ask(f"module pumice-kernel,name=k,ns=1000,code={5 * MIB}") == 0
        assert tenant.ask("function k") == 0
        assert booked(hidden) == (CONTEXT * MIB, 3 * BLOCK, 0)
        assert tenant.ask(f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP + 500 * MIB}") == 0
        assert booked(hidden) == (CONTEXT * MIB, 3 * BLOCK + 500 * MIB, 0)
        assert tenant.ask("unload") == 0
        assert tenant.ask(f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP}") == 0
        assert booked(hidden) == (CONTEXT * MIB, 0, 0)


def test_where_nvml_shows_no_process_two_of_them_stay_within_one_limit(hidden: Container) -> None:
    with Tenant(hidden) as first, Tenant(hidden) as second:
        free, _ = first.ask("info")
        assert first.ask(f"module {variable(free - 100 * MIB)}") == 0
        assert second.ask(f"module {variable(200 * MIB)}") == OUT_OF_MEMORY
        assert second.ask(f"module {variable(100 * MIB)}") == 0
        assert first.ask("alloc 1") == second.ask("alloc 1") == OUT_OF_MEMORY
        assert seen_by_machine(hidden, first, second) == LIMIT * MIB


# ---- ACTIVE_OOM_KILLER ----------------------------------------------------------------------------------------------


def overfull(container: Container, *holders: Tenant) -> None:
    """The limit falls below what is in use, so that the container holds far more than it may."""
    for mib, tenant in zip((1500, 500), holders, strict=False):
        assert tenant.ask(f"alloc {mib * MIB}") == 0
    patch_region(container.region, LIMIT_AT, "<Q", 1000 * MIB)


def test_the_killer_ends_the_largest_process_and_spares_the_others(container: Container) -> None:
    killer = {"ACTIVE_OOM_KILLER": "true", **OFTEN}
    with Tenant(container, **killer) as large, Tenant(container, **killer) as small:
        overfull(container, large, small)
        begin = time.monotonic()
        large.process.wait(timeout=60)
        assert time.monotonic() - begin >= 4.9
        assert large.process.returncode == -9
        assert small.process.poll() is None
        assert small.ask("info")[1] == 1000 * MIB
        _, err = large.process.communicate()
        assert [line for line in err.splitlines() if "its largest process ends" in line] == err.splitlines() != []


@pytest.mark.parametrize("text", ["false", "0", "", "<unset>"])
def test_the_killer_is_off_unless_asked_for(container: Container, text: str) -> None:
    with Tenant(container, ACTIVE_OOM_KILLER=text, **OFTEN) as tenant:
        overfull(container, tenant)
        time.sleep(0.2)  # it would look ten times; how long it waits is the unit test's
        assert tenant.ask("info") == [0, 1000 * MIB]
