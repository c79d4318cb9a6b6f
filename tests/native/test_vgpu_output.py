"""The library's output on a program's stderr: nothing in the ordinary course of things, one line for a bad configuration.

The line comes once for all processes of a container: the region remembers what was said.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.vgpu_kit import LIMIT as LIMIT_AT
from kit.vgpu_kit import MIB, SM_LIMIT, Container, build, patch_region, python
from kit.vgpu_talk import Tenant

from pumice_lab import machine

OUT_OF_MEMORY = 2


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    directory = tmp_path_factory.mktemp("machine")
    machine.create(machine.machine_of("2xA100-SXM4-40GB"), directory / "m")
    return directory / "m"


def two_processes(container: Container, **more: str) -> list[list[str]]:
    """The lines that two processes of the container write, both alive at the same time."""
    with Tenant(container) as first, Tenant(container, **more) as second:
        return [second.end().splitlines(), first.end().splitlines()]


def test_a_refused_allocation_is_not_worth_a_line_until_somebody_asks(card: Path, tmp_path: Path) -> None:
    container = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m"})
    with Tenant(container) as quiet, Tenant(container, LIBCUDA_LOG_LEVEL="3") as talking:
        for tenant in (quiet, talking):
            free, _ = tenant.ask("info")
            assert tenant.ask(f"alloc {free + 1}") == OUT_OF_MEMORY
        assert quiet.end() == ""
        assert f"{free + 1} bytes asked for" in talking.end()


def test_a_live_change_of_the_limits_is_no_complaint_of_later_processes(card: Path, tmp_path: Path) -> None:
    container = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "CUDA_DEVICE_SM_LIMIT": "50"})
    with Tenant(container) as first:
        patch_region(container.region, LIMIT_AT, "<Q", 2000 * MIB)
        patch_region(container.region, SM_LIMIT, "<Q", 30)
        with Tenant(container) as later:
            assert later.ask("info")[1] == 2000 * MIB
            assert later.end() == ""
        assert first.end() == ""


def test_another_limit_than_the_containers_is_one_line_of_the_container(card: Path, tmp_path: Path) -> None:
    container = Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m"})
    with Tenant(container):
        second, _ = two_processes(container, CUDA_DEVICE_MEMORY_LIMIT="30g")
        again, _ = two_processes(container, CUDA_DEVICE_MEMORY_LIMIT="30g")
        other, _ = two_processes(container, CUDA_DEVICE_MEMORY_LIMIT="20g")
    assert ["the region's memory limit of 3145728000 bytes holds" in line for line in second] == [True]
    assert again == []
    assert len(other) == 1


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"CUDA_DEVICE_MEMORY_LIMIT": "-1"}, "CUDA_DEVICE_MEMORY_LIMIT=-1"),
        (
            {"CUDA_DEVICE_MEMORY_LIMIT_0": "three", "CUDA_DEVICE_SM_LIMIT": "lots"},
            "_0=three is not a limit, CUDA_DEVICE_SM_LIMIT=lots is not a limit",
        ),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "400g"}, "above the card's"),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "2g"}, "device 1 has no memory limit of its own"),
    ],
    ids=["no number", "two at once", "above the card", "more cards than limits"],
)
def test_a_bad_configuration_is_one_line_of_the_whole_container(
    card: Path, tmp_path: Path, limits: dict[str, str], words: str
) -> None:
    said = said_at_once(Container(card, tmp_path, limits), 2)
    assert [words in line for line in said] == [True], said


@pytest.mark.parametrize("limit", ["3g", "3000m", "0x800m", " 3GiB ", "", "0"])
def test_a_sound_limit_says_nothing(card: Path, tmp_path: Path, limit: str) -> None:
    assert two_processes(Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": limit})) == [[], []]


def test_sixteen_processes_that_start_at_once_say_it_once(card: Path, tmp_path: Path) -> None:
    assert len(said_at_once(Container(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "much"}), 16)) == 1


def said_at_once(container: Container, count: int) -> list[str]:
    """The library's lines of so many processes that start together. A program that gets no memory may have words of its own."""
    children = [container.start(*python("holder.py")) for _ in range(count)]
    said = [child.communicate("exit\n", timeout=60)[1] for child in children]
    return [line for text in said for line in text.splitlines() if line.startswith("libvgpu[")]
