"""Heaps and contexts are charged their measured growth, whatever else is booked and not on the card, or the other way round.

Small arrays are booked by whole blocks and lie in one; a context is booked before it is made and given back after it is
gone. Whoever takes the difference between books and card for room has too little booked once the one or the other is over.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kit.vgpu_kit import MIB, Container, build, read_region
from kit.vgpu_talk import Tenant

from pumice_lab import machine
from pumice_lab.machine.model import FaultModel

CONTEXT, CODE = 414, 6
MALLOC_HEAP, DEFAULT_HEAP = 2, 8 * MIB
LATE_CODE = f"module pumice-kernel,name=k,ns=1000,code={5 * MIB}"
OFTEN = {"PUMICE_VGPU_RECONCILE_MS": "20"}
NEVER = {"PUMICE_VGPU_RECONCILE_MS": "0"}


@pytest.fixture
def container(tmp_path: Path) -> Container:
    build()
    machine.create(machine.machine_of("A100-SXM4-40GB"), tmp_path / "m")
    return Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "6000m"})


def slow(container: Container, function: str, seconds: int = 1) -> None:
    with machine.open_machine(container.machine) as emulated:
        emulated.set_fault(FaultModel(function, 0, 1, 1, seconds * 1_000_000_000))


def mib_on_card(container: Container, tenant: Tenant) -> int:
    share = machine.open_machine(container.machine).witness().of(tenant.pid)
    return 0 if share is None else share.bytes // MIB


def mib_booked(container: Container) -> int:
    return read_region(container.region).total() // MIB


def lowest_booked_while(container: Container, tenant: Tenant, command: str, *, since: int) -> int:
    """From when it was as much as that on, until the answer."""
    tenant.report(command)
    least = 0
    while True:
        booked = mib_booked(container)
        if tenant.has_answered():
            break
        least = min(least, booked) if least else booked if booked >= since else 0
    assert tenant.hear() == 0
    return least


@pytest.mark.parametrize("watch", [OFTEN, NEVER])
def test_a_heap_stays_booked_when_the_small_arrays_beside_it_go(container: Container, watch: dict[str, str]) -> None:
    with Tenant(container, **watch) as tenant:
        for _ in range(5):
            assert tenant.ask("array 16") == 0
        assert tenant.ask(f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP + 100 * MIB}") == 0
        assert mib_booked(container) == CONTEXT + 100 + 5 * 2
        for _ in range(5):
            assert tenant.ask("array_end") == 0
            assert mib_booked(container) >= mib_on_card(container, tenant)
        assert mib_booked(container) == mib_on_card(container, tenant) == CONTEXT + 100


def test_a_context_that_was_made_beside_small_arrays_is_booked_as_large_as_any(container: Container) -> None:
    with Tenant(container, **NEVER) as tenant:
        for _ in range(5):
            assert tenant.ask("array 16") == 0
        assert tenant.ask("context") == 0
        for _ in range(5):
            assert tenant.ask("array_end") == 0
        assert mib_booked(container) == mib_on_card(container, tenant) == 2 * CONTEXT
        assert tenant.ask("uncontext") == 0
        assert mib_booked(container) == CONTEXT


def test_code_stays_booked_while_a_context_is_being_made(container: Container) -> None:
    with Tenant(container, **OFTEN) as tenant:
        assert tenant.ask(LATE_CODE) == tenant.ask("function k") == 0
        slow(container, "cuCtxCreate_v2")
        made = 2 * CONTEXT + CODE
        assert lowest_booked_while(container, tenant, "context", since=made) == made
        assert mib_booked(container) == mib_on_card(container, tenant) == made


def test_code_stays_booked_between_the_end_of_a_context_and_its_booking(container: Container) -> None:
    """The driver has the primary context back, and is slow to say whether it was the last hold of it."""
    with Tenant(container, **OFTEN) as tenant:
        assert tenant.ask("context") == tenant.ask("enter") == 0
        assert tenant.ask(LATE_CODE) == tenant.ask("function k") == 0
        slow(container, "cuDevicePrimaryCtxGetState")
        both = 2 * CONTEXT + CODE
        assert lowest_booked_while(container, tenant, "release", since=both) == both
        assert mib_booked(container) == mib_on_card(container, tenant) == CONTEXT + CODE


def test_heaps_end_with_their_contexts_each_with_its_own(container: Container) -> None:
    with Tenant(container, **NEVER) as tenant:
        assert tenant.ask(f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP + 100 * MIB}") == 0
        assert tenant.ask("context") == tenant.ask("enter") == 0
        assert tenant.ask(f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP + 300 * MIB}") == 0
        assert mib_booked(container) == mib_on_card(container, tenant) == 2 * CONTEXT + 400
        assert tenant.ask("uncontext") == 0
        assert mib_booked(container) == mib_on_card(container, tenant) == CONTEXT + 100
        assert tenant.ask("release") == 0
        assert mib_booked(container) == 0


@pytest.mark.parametrize("command", [f"setlimit {MALLOC_HEAP} {DEFAULT_HEAP + 100 * MIB}", "context"])
def test_what_strangers_give_back_meanwhile_makes_nothing_cheaper_while_the_librarys_own_look_takes_long(
    container: Container, command: str
) -> None:
    entry, mib = ("cuCtxCreate_v2", CONTEXT) if command == "context" else ("cuCtxSetLimit", 100)
    with Tenant(container, LD_PRELOAD="<unset>") as stranger, Tenant(container, **OFTEN) as tenant:
        assert stranger.ask(f"alloc {64 * MIB}") == 0
        slow(container, "nvmlDeviceGetComputeRunningProcesses_v3", 4)
        time.sleep(0.3)  # the look is there
        slow(container, entry, 2)
        tenant.report(command)
        time.sleep(1.5)
        assert stranger.ask("free") == 0
        assert tenant.hear() == 0
        assert mib_booked(container) == CONTEXT + mib
