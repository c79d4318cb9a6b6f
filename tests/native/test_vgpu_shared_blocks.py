"""Modules in blocks of 2 MiB that data pay for: when the data go, the block stays on the card, and in the books.

Small linear memory, small arrays and small variables share blocks. Nothing tells in whose block a variable lies, so what data
give back beside modules stays booked until a look at NVML, and no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.vgpu_kit import MIB, Container, build, python, read_region
from kit.vgpu_talk import Tenant

from pumice_lab import machine
from tests.native.vgpu_modules import booked, silent_variable, unbooked, variable

LIMIT, CONTEXT = 3000, 414
OUT_OF_MEMORY = 2
BLOCK = 2 * MIB
NEVER = {"PUMICE_VGPU_RECONCILE_MS": "0"}
SMALL = 64 * 1024
ROWS_OF_SMALL = SMALL // 4096
IMAGES = pytest.mark.parametrize("image", [variable, silent_variable])


@pytest.fixture
def container(tmp_path: Path) -> Container:
    build()
    machine.create(machine.machine_of("2xA100-SXM4-40GB"), tmp_path / "m")
    return Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT}m", **NEVER})


@IMAGES
def test_a_block_stays_booked_for_the_module_in_it_when_the_data_that_paid_for_it_go(
    container: Container, image: Callable[[int], str]
) -> None:
    with Tenant(container) as tenant:
        assert tenant.ask(f"alloc {SMALL}") == 0
        assert tenant.ask(f"module {image(SMALL)}") == 0
        assert booked(container) == (CONTEXT * MIB, 0, BLOCK)  # one block for both
        assert tenant.ask("free") == 0
        assert unbooked(container, tenant) == 0
        assert tenant.ask("unload") == 0
        assert booked(container) == (CONTEXT * MIB, 0, 0)


@IMAGES
def test_a_module_that_small_arrays_hid_is_booked_when_they_go(
    container: Container, image: Callable[[int], str]
) -> None:
    """Each array is booked with a block and takes a part of one: what a module took beside them looked paid for."""
    with Tenant(container) as tenant:
        for _ in range(8):
            assert tenant.ask(f"array {ROWS_OF_SMALL}") == 0
        assert tenant.ask(f"module {image(4 * BLOCK)}") == 0
        assert tenant.ask("arrays_end") == 0
        assert unbooked(container, tenant) <= 0
        assert tenant.ask("unload") == 0
        assert booked(container) == (CONTEXT * MIB, 0, 0)


@IMAGES
def test_what_was_kept_for_a_module_that_lay_elsewhere_is_to_be_had_when_it_is_needed(
    container: Container, image: Callable[[int], str]
) -> None:
    with Tenant(container) as tenant:
        for size in (1000, SMALL, MIB):  # one of them lies with the module
            assert tenant.ask(f"alloc {size}") == 0
        assert tenant.ask(f"module {image(SMALL)}") == 0
        assert tenant.ask("freeall") == 0
        assert 0 <= -unbooked(container, tenant) <= 2 * BLOCK
        assert tenant.ask(f"alloc {(LIMIT - CONTEXT) * MIB - BLOCK}") == 0
        assert unbooked(container, tenant) == 0
        assert tenant.ask("alloc 1") == OUT_OF_MEMORY


def test_no_more_stays_booked_than_the_modules_can_hold(container: Container) -> None:
    """Of two hundred blocks one variable can lie in one."""
    with Tenant(container) as tenant:
        for _ in range(400):
            assert tenant.ask(f"alloc {MIB}") == 0
        assert tenant.ask(f"module {variable(MIB)}") == 0
        assert tenant.ask("freeall") == 0
        assert -unbooked(container, tenant) <= BLOCK


def test_a_block_that_two_modules_share_is_booked_until_both_have_gone_whatever_arrays_hide(container: Container) -> None:
    with Tenant(container) as tenant:
        for _ in range(2):
            assert tenant.ask(f"module {variable(SMALL)}") == 0
        for _ in range(8):
            assert tenant.ask(f"array {ROWS_OF_SMALL}") == 0
        assert tenant.ask("unload_first") == 0
        assert tenant.ask("arrays_end") == 0
        assert unbooked(container, tenant) <= 0
        assert tenant.ask("unload") == 0
        assert booked(container) == (CONTEXT * MIB, 0, 0)


def test_nothing_is_kept_for_a_module_that_has_gone(container: Container) -> None:
    with Tenant(container) as tenant:
        for _ in range(400):
            assert tenant.ask(f"alloc {MIB}") == 0
        for _ in range(3):
            assert tenant.ask(f"module {variable(MIB)}") == 0
            assert tenant.ask("unload") == 0
        assert tenant.ask("freeall") == 0
        assert booked(container) == (CONTEXT * MIB, 0, 0)


def test_a_context_that_ends_takes_along_what_its_modules_held_in_blocks_of_data(container: Container) -> None:
    with Tenant(container) as tenant:
        for step in (f"alloc {SMALL}", f"array {ROWS_OF_SMALL}", f"module {variable(SMALL)}", f"module {variable(1000)}"):
            assert tenant.ask(step) == 0
        assert tenant.ask("free") == 0
        assert tenant.ask("reset") == 0
        assert booked(container) == (0, 0, 0)


def test_where_nvml_shows_no_process_a_module_pays_for_what_its_image_says(container: Container) -> None:
    with machine.open_machine(container.machine) as emulated:
        emulated.state.pid_mode = 2
    with Tenant(container) as tenant:
        assert tenant.ask(f"module {variable(3 * MIB)}") == 0  # stays
        for _ in range(5):
            assert tenant.ask(f"alloc {SMALL}") == 0
            assert tenant.ask(f"module {variable(SMALL)}") == 0
            assert tenant.ask("free") == 0
            assert unbooked(container, tenant) == 0
            assert tenant.ask(f"alloc {1000}") == 0
            assert tenant.ask("unload") == 0
            assert tenant.ask("free") == 0
            assert booked(container) == (CONTEXT * MIB, 2 * BLOCK, 0)


def test_threads_that_load_modules_while_others_unload_theirs_leave_nothing_behind(container: Container) -> None:
    process = container.start(*python("module_threads.py", "8", "1000"))
    assert process.stdout is not None
    assert process.stdout.readline() == '"done"\n'
    share = machine.open_machine(container.machine).witness().of(process.pid)
    assert share is not None
    assert share.bytes == read_region(container.region).total() == CONTEXT * MIB
    process.communicate("\n", timeout=60)


def test_each_card_keeps_its_own(container: Container) -> None:
    with Tenant(container) as first, Tenant(container, 1) as second:
        for tenant in (first, second):
            assert tenant.ask(f"alloc {SMALL}") == 0
        assert second.ask(f"module {variable(SMALL)}") == 0
        for tenant in (first, second):
            assert tenant.ask("free") == 0
        slots = read_region(container.region).live
        assert sum(slot.used[0][4] for slot in slots) == CONTEXT * MIB
        assert sum(slot.used[1][4] for slot in slots) == CONTEXT * MIB + BLOCK
