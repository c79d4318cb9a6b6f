"""The memory limit holds on every way to allocate, to the byte, and everybody is told the same story."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.vgpu_kit import LIMIT as LIMIT_AT
from kit.vgpu_kit import MIB, PROGRAMS, Container, build, hooks, patch_region, read_region
from kit.vgpu_talk import Tenant

from pumice.adapters.region.extension import live_slots
from pumice_lab import machine

CONTEXT = 414  # MiB, more than one context of an A100 takes
LIMIT = 3000
OUT_OF_MEMORY, NOT_SUPPORTED = 2, 801
USABLE = 40_339 * MIB  # of the card by CUDA: NVML counts what the driver keeps for itself, too
BLOCK = 2 * MIB  # in which the driver takes memory from the card


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    directory = tmp_path_factory.mktemp("machine")
    machine.create(machine.machine_of("2xA100-SXM4-40GB"), directory / "m")
    return directory / "m"


@pytest.fixture
def container(card: Path, tmp_path: Path) -> Container:
    return Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT_0": f"{LIMIT}m", "CUDA_DEVICE_MEMORY_LIMIT_1": "20g"})


@pytest.fixture(scope="module")
def answers(card: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    container = Container(card, tmp_path_factory.mktemp("entries"), {"CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT}m"})
    found = container.child("entries.py", LIBCUDA_LOG_LEVEL="0").json()
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("entry", [hook.name for hook in hooks() if hook.kind == "ALLOC"])
def test_an_entry_gives_exactly_the_limit_and_not_a_unit_more(entry: str, answers: dict[str, list[int]]) -> None:
    assert entry in answers, f"{entry} allocates and nobody asks it for more than the limit: add it to entries.py"
    above, exact, left, drift = answers[entry]
    assert (above, drift) == (2, 0)
    if exact != NOT_SUPPORTED:  # the 32-bit entries of 64-bit drivers only answer that
        assert (exact, left) == (0, 0)


@pytest.mark.parametrize("entry", ["cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz"])
def test_a_graph_that_allocates_is_refused_above_the_limit(entry: str, answers: dict[str, list[int]]) -> None:
    above, exact, _, drift = answers[entry]
    assert (above, exact, drift) == (2, 0, 0)


def test_one_byte_above_is_refused_and_the_whole_limit_is_usable(container: Container) -> None:
    with Tenant(container) as tenant:
        free, total = tenant.ask("info")
        assert total == LIMIT * MIB
        assert tenant.ask(f"alloc {free + 1}") == OUT_OF_MEMORY
        assert tenant.ask(f"alloc {free}") == 0
        assert tenant.ask("alloc 1") == OUT_OF_MEMORY
        assert tenant.ask("info") == [0, LIMIT * MIB]
        assert tenant.end() == ""


def test_small_blocks_fill_the_limit_to_the_last(container: Container) -> None:
    with Tenant(container) as tenant:
        free, _ = tenant.ask("info")
        assert tenant.ask("fill 1048576") == free // MIB
        assert tenant.ask("freeall") == 0
        assert tenant.ask("info")[0] == free


def test_cuda_and_nvml_tell_one_story(container: Container) -> None:
    with Tenant(container) as tenant:
        tenant.ask(f"alloc {1000 * MIB}")
        free, total = tenant.ask("info")
        (total1, free1, used1), (total2, free2, used2, reserved) = tenant.ask("nvml 0")
        assert total == total1 == total2 == tenant.ask("total 0") == LIMIT * MIB
        assert free == free1 == free2
        assert used1 == used2 == total - free
        assert reserved == 0
        assert tenant.ask("nvml 1")[0] == [20 << 30, 20 << 30, 0]


def test_the_machine_saw_what_the_books_say(container: Container) -> None:
    with Tenant(container) as tenant:
        tenant.ask(f"alloc {512 * MIB}")
        share = machine.open_machine(container.machine).witness().of(tenant.pid)
        region = read_region(container.region)
        assert share is not None
        assert share.bytes == region.total()
        context, _, data, _, total = region.live[0].used[0]
        assert (context, data, total) == (CONTEXT * MIB, 512 * MIB, (CONTEXT + 512) * MIB)


def test_two_processes_share_one_limit(container: Container) -> None:
    with Tenant(container) as first, Tenant(container) as second:
        free, _ = first.ask("info")
        assert free == (LIMIT - 2 * CONTEXT) * MIB
        assert first.ask(f"alloc {free - BLOCK}") == 0
        assert second.ask(f"alloc {BLOCK + 1}") == OUT_OF_MEMORY
        assert second.ask(f"alloc {BLOCK}") == 0
        assert first.ask("free") == 0
        assert second.ask(f"alloc {free - BLOCK}") == 0


def test_a_killed_process_gives_back_at_the_next_request_even_as_a_zombie(container: Container) -> None:
    with Tenant(container) as first, Tenant(container) as second:
        free, _ = first.ask("info")
        assert first.ask(f"alloc {free}") == 0
        assert second.ask("alloc 1") == OUT_OF_MEMORY
        first.kill()
        assert second.ask(f"alloc {free}") == 0
        assert len(read_region(container.region).live) == 1


def test_a_process_that_ends_leaves_an_empty_slot(container: Container) -> None:
    with Tenant(container) as tenant:
        tenant.ask(f"alloc {100 * MIB}")
        tenant.end()
    assert read_region(container.region).slots == ()  # for monitors, at once
    with Tenant(container):
        region = read_region(container.region)
        assert [slot.index for slot in region.live] == [0]
        assert region.proc_num == 1


def test_a_process_that_ends_slowly_counts_until_the_card_has_all_back(container: Container) -> None:
    with Tenant(container) as other:
        free, _ = other.ask("info")
        ending = container.start(PROGRAMS / "linger", str(1000 * MIB))
        assert ending.stdout is not None
        assert ending.stdout.readline() == '"ending"\n'
        assert [slot.pid for slot in read_region(container.region).live] == [other.pid]  # for monitors it is gone
        assert list(live_slots(container.region).values()) == [other.pid]  # and for `pumice ps`
        assert other.ask("info")[0] == free - (CONTEXT + 1000) * MIB  # its memory is not
        assert other.ask(f"alloc {free - (CONTEXT + 1000) * MIB + 1}") == OUT_OF_MEMORY
        assert other.ask(f"alloc {free - (CONTEXT + 1000) * MIB}") == 0
        shares = machine.open_machine(container.machine).witness().shares
        assert sum(share.bytes for share in shares if share.card == 0) == LIMIT * MIB
        _, err = ending.communicate("\n", timeout=20)
        assert (ending.returncode, err) == (0, "")
        assert other.ask(f"alloc {(CONTEXT + 1000) * MIB}") == 0


def test_the_context_is_charged_once_and_given_back(container: Container) -> None:
    with Tenant(container) as tenant:
        assert read_region(container.region).total() == CONTEXT * MIB
        tenant.ask(f"alloc {MIB}")
        assert tenant.ask("release") == 0
        assert read_region(container.region).total() == 0


def test_a_reset_drops_every_allocation_of_the_context(container: Container) -> None:
    with Tenant(container) as tenant:
        tenant.ask(f"alloc {700 * MIB}")
        assert tenant.ask("reset") == 0
        assert read_region(container.region).total() == 0


def test_each_card_has_its_own_limit(container: Container) -> None:
    with Tenant(container, device=1) as tenant:
        assert tenant.ask("info")[1] == 20 << 30
        assert tenant.ask(f"alloc {4 << 30}") == 0
    assert read_region(container.region).limit[:2] == (LIMIT * MIB, 20 << 30)


@pytest.mark.parametrize("by", ["index", "uuid"])
def test_limits_follow_the_card_and_not_its_place_in_visible_devices(container: Container, by: str) -> None:
    cards = machine.machine_of("2xA100-SXM4-40GB").cards
    visible = "1,0" if by == "index" else f"{cards[1].uuid},{cards[0].uuid}"
    with Tenant(container, device=0, CUDA_VISIBLE_DEVICES=visible) as tenant:
        assert tenant.ask("info")[1] == 20 << 30  # CUDA's device 0 is the machine's card 1
        tenant.ask(f"alloc {MIB}")
        (slot,) = read_region(container.region).live
        assert slot.used[0][4] == 0
        assert slot.used[1][2] == BLOCK


def test_a_limit_above_the_card_shows_the_card(card: Path, tmp_path: Path) -> None:
    container = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "1000g"})
    with Tenant(container) as tenant:
        free, total = tenant.ask("info")
        assert free < total < 41 << 30
        assert tenant.ask("total 0") == total
        assert tenant.ask(f"alloc {45 << 30}") == OUT_OF_MEMORY  # the driver's own answer
        assert tenant.ask("info")[0] == free


def test_without_limits_the_answers_are_the_drivers(card: Path, tmp_path: Path) -> None:
    with Tenant(Container(card, tmp_path)) as ours, Tenant(Container(card, tmp_path), LD_PRELOAD="<unset>") as native:
        assert ours.ask("info") == native.ask("info")
        assert ours.ask("nvml 0") == native.ask("nvml 0")


def test_a_live_change_of_the_limit_holds_at_once(container: Container) -> None:
    with Tenant(container) as tenant:
        patch_region(container.region, LIMIT_AT, "<Q", 1000 * MIB)
        assert tenant.ask("info") == [(1000 - CONTEXT) * MIB, 1000 * MIB]
        assert tenant.ask(f"alloc {1000 * MIB}") == OUT_OF_MEMORY
        patch_region(container.region, LIMIT_AT, "<Q", 100 * MIB)  # below what is in use
        assert tenant.ask("info") == [0, 100 * MIB]
        assert tenant.ask("nvml 0")[0] == [100 * MIB, 0, 100 * MIB]


def test_the_driver_refusing_gives_the_booking_back(container: Container) -> None:
    with Tenant(container) as tenant:
        free, _ = tenant.ask("info")
        with machine.open_machine(container.machine) as emulated:
            emulated.set_fault(machine.FaultModel(call="cuMemAlloc", code=999, count=1))
            assert tenant.ask(f"alloc {MIB}") == 999
            emulated.clear_faults()
        assert tenant.ask("info")[0] == free
        assert tenant.ask(f"alloc {MIB}") == 0


def test_a_free_that_the_driver_refuses_stays_booked(container: Container) -> None:
    with Tenant(container) as tenant:
        tenant.ask(f"alloc {MIB}")
        free, _ = tenant.ask("info")
        with machine.open_machine(container.machine) as emulated:
            emulated.set_fault(machine.FaultModel(call="cuMemFree", code=1, count=1))
            assert tenant.ask("free") == 1
            emulated.clear_faults()
        assert tenant.ask("info")[0] == free


def test_more_than_the_card_only_where_it_was_asked_for(card: Path, tmp_path: Path) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": "60g"}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Tenant(Container(card, tmp_path / "a", limits)) as plain:
        assert plain.ask(f"alloc {41 << 30}") == OUT_OF_MEMORY
    with Tenant(Container(card, tmp_path / "b", {**limits, "CUDA_OVERSUBSCRIBE": "true"})) as willing:
        rest = (60 << 30) - CONTEXT * MIB
        assert willing.ask(f"alloc {rest + 1}") == OUT_OF_MEMORY  # its limit's answer
        assert willing.ask(f"alloc {rest}") == 0
        share = machine.open_machine(card).witness().of(willing.pid)
        assert share is not None
        assert (share.bytes, share.bytes + share.host) == (USABLE, 60 << 30)


def test_what_stands_in_for_device_memory_is_told_as_device_memory(card: Path, tmp_path: Path) -> None:
    """A program that asked for device memory takes what it is told is managed for something else."""
    with Tenant(Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "60g", "CUDA_OVERSUBSCRIBE": "true"})) as tenant:
        assert tenant.ask(f"alloc {45 << 30}") == 0
        assert tenant.ask("told_as_managed") == [0, 0]
        assert tenant.ask("free") == 0
        assert tenant.ask(f"managed {1 << 30}") == 0
        assert tenant.ask("told_as_managed") == [1, 1]


@pytest.mark.parametrize("oversubscribe", ["true", "<unset>"])
@pytest.mark.parametrize("limit", [60_000, 40_960, 40_000])
def test_cuda_and_nvml_tell_one_figure_and_all_that_they_call_free_is_to_be_had(
    card: Path, tmp_path: Path, limit: int, oversubscribe: str
) -> None:
    """Of a share beyond the card they told of three different ones, and most of the largest was never to be had."""
    share = {"CUDA_DEVICE_MEMORY_LIMIT": f"{limit}m", "CUDA_OVERSUBSCRIBE": oversubscribe}
    with Tenant(Container(card, tmp_path, share)) as tenant:
        free, total = tenant.ask("info")
        one, two = tenant.ask("nvml 0")
        assert total == tenant.ask("total 0") == one[0] == two[0] == min(limit * MIB, USABLE)
        assert free == one[1] == two[1]
        beyond = limit * MIB - total if oversubscribe == "true" else 0
        blocks = tenant.ask(f"fill {2 * MIB}")
        assert free + beyond - 2 * MIB < blocks * 2 * MIB <= free + beyond
        assert tenant.ask("info") == [free + beyond - blocks * 2 * MIB if beyond == 0 else 0, total]
        assert tenant.ask(f"alloc {2 * MIB}") == OUT_OF_MEMORY


def test_nvidia_smi_shows_the_limit_and_takes_nothing(container: Container) -> None:
    ran = container.run(container.machine / "bin/nvidia-smi")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    table = " ".join(ran.out.split())
    assert f"0MiB / {LIMIT}MiB" in table
    assert f"0MiB / {20 << 10}MiB" in table
    assert read_region(container.region).total() == 0
