"""The memory limit holds on every way to allocate, to the byte, and everybody is told the same story."""

from __future__ import annotations

from pathlib import Path

import pytest

from pumice import machine
from tests.native.vgpu_kit import MIB, Container, build, hooks, read_region

CONTEXT = 414  # MiB, more than one context of an A100 takes
LIMIT = 3000
NOT_SUPPORTED = 801


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
