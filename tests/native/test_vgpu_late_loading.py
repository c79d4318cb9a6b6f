"""Memory that drivers take at the first use of a module or library: it is charged before the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.vgpu_kit import MIB, Container, build
from kit.vgpu_talk import Tenant

from pumice_lab import machine
from pumice_lab.machine.model import FaultModel
from tests.native.vgpu_modules import booked, unbooked, variable

CONTEXT = 414 * MIB
BLOCK = 2 * MIB
SMALL = 64 * 1024
A_WHILE = 700_000_000
KERNEL = f"pumice-kernel,name=k,ns=1000,code={5 * MIB}"


@pytest.fixture
def container(tmp_path: Path) -> Container:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    return Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "PUMICE_VGPU_RECONCILE_MS": "0"})


def test_code_that_is_loaded_while_another_process_gives_back_more_is_booked(container: Container) -> None:
    """The card has more free memory after the call than before, and the code is there all the same."""
    with Tenant(container) as asking, Tenant(container) as giving, machine.open_machine(container.machine) as emulated:
        assert giving.ask(f"alloc {100 * MIB}") == 0
        assert asking.ask(f"module {KERNEL}") == 0
        emulated.set_fault(FaultModel("cuModuleGetFunction", delay_ns=A_WHILE))
        asking.report("function k")
        assert giving.ask("free") == 0
        assert not asking.has_answered()
        assert asking.hear() == 0
        assert unbooked(container, asking, giving) == 0


def test_code_that_small_arrays_hid_is_booked_when_they_go(container: Container) -> None:
    """Each array is booked with a block and takes a part of one: code beside them looked paid for."""
    with Tenant(container) as tenant:
        assert tenant.ask(f"module {KERNEL}") == 0
        for _ in range(8):
            assert tenant.ask(f"array {SMALL // 4096}") == 0
        assert tenant.ask("function k") == 0
        assert tenant.ask("arrays_end") == 0
        assert unbooked(container, tenant) <= 0
        assert tenant.ask("unload") == 0
        assert booked(container) == (CONTEXT, 0, 0)


def test_a_variable_of_a_library_keeps_the_block_that_data_paid_for(container: Container) -> None:
    with Tenant(container) as tenant:
        assert tenant.ask(f"library {variable(SMALL)}") == 0
        assert tenant.ask(f"alloc {SMALL}") == 0
        assert tenant.ask("variable g") == 0
        assert booked(container) == (CONTEXT, 0, BLOCK)
        assert tenant.ask("free") == 0
        assert unbooked(container, tenant) == 0
        assert tenant.ask("unload_library") == 0
        assert tenant.ask(f"alloc {BLOCK}") == 0
        assert unbooked(container, tenant) <= 0


def test_a_function_of_a_module_that_came_again_under_the_same_handle_is_a_new_one(container: Container) -> None:
    with Tenant(container) as tenant:
        for _ in range(3):
            assert tenant.ask(f"module {KERNEL}") == 0
            assert tenant.ask("function k") == 0
            assert tenant.ask("function k") == 0
            assert booked(container) == (CONTEXT, 3 * BLOCK, 0)
            assert tenant.ask("unload") == 0
            assert booked(container) == (CONTEXT, 0, 0)
