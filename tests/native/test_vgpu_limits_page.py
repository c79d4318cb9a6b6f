"""A container that has the limits page obeys it, whatever its environment, its region and its own attempts say.

The witness is the emulated card: what it gave at its highest, which no book knows of.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.vgpu_kit import LIBRARY, MIB, build, python, read_region
from kit.walled import REGION, Walled, page_of

from pumice.wire import limits_page
from pumice.wire.limits_page import GrantedCard
from pumice_lab import machine

LIMIT = 3000 * MIB
BLOCKS = 40
"""Of 64 MiB, which fit beside a context."""


@pytest.fixture
def card(tmp_path: Path) -> Path:
    build()
    machine.create(machine.machine_of("2xA100-SXM4-40GB"), tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture
def uuids(card: Path) -> list[str]:
    return [one.uuid for one in machine.machine_of("2xA100-SXM4-40GB").cards]


@pytest.fixture
def walled(card: Path, uuids: list[str], tmp_path: Path) -> Walled:
    said = {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "LIBCUDA_LOG_LEVEL": "0"}
    return Walled(card, tmp_path, said, page=page_of(GrantedCard(uuids[0], LIMIT, 50)))


def taken(
    container: Walled, what: str, *more: str, processes: int = 1, script: str = "attempt.py", **environment: str
) -> tuple[list[str], int, int]:
    """Return the result of concurrent attempts by processes, how many blocks they got together, and the card's peak."""
    started = [container.start(*python(script, what, *more), **environment) for _ in range(processes)]
    said = []
    for process in started:
        assert process.stdout is not None
        line = process.stdout.readline()
        said.append(json.loads(line) if line else ["ended", 0])
    for process in started:
        process.communicate("\n", timeout=60)
    device = int(more[0]) if more else 0
    return [str(one) for one, _ in said], sum(count for _, count in said), machine.open_machine(container.machine).peak(device)


def test_the_page_alone_is_enough(walled: Walled) -> None:
    came, blocks, peak = taken(walled, "scrubbed")
    assert (came, blocks) == ([""], BLOCKS)
    assert peak <= LIMIT


ENVIRONMENTS = (
    {"CUDA_DEVICE_MEMORY_LIMIT_0": "0"},
    {"CUDA_DEVICE_MEMORY_LIMIT_0": "30g"},
    {"CUDA_DEVICE_MEMORY_LIMIT": "30g"},
    {"CUDA_DISABLE_CONTROL": "true"},
    {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/vgpu/other.cache"},
    {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/dev/shm/other.cache", "CUDA_DEVICE_MEMORY_LIMIT_0": "30g"},
    {"PUMICE_VGPU_CARDS": "none"},
    {"PUMICE_VGPU_CONTEXT_BYTES": "1", "PUMICE_VGPU_RECONCILE_MS": "0"},
    {"CUDA_OVERSUBSCRIBE": "true"},
    {"LD_PRELOAD": ""},
    {"LD_PRELOAD": "libm.so.6"},
    {"LD_BIND_NOW": "1", "GLIBC_TUNABLES": "glibc.rtld.nns=1"},
    {"LD_AUDIT": "libm.so.6"},
)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda said: " ".join(f"{k}={v}" for k, v in said.items()))
def test_what_the_environment_says_lifts_nothing(walled: Walled, environment: dict[str, str]) -> None:
    _, blocks, peak = taken(walled, "nothing", processes=2, **environment)
    assert blocks > 0
    assert peak <= LIMIT


@pytest.mark.parametrize(
    "what",
    ["remove the region", "zero the region's limits", "zero the region's head", "cut the region short",
     "rename the region's cards", "switch the region's limits off", "fill the region with processes", "write the page"],
)  # fmt: skip
def test_an_attempt_upon_region_or_page_lifts_nothing(walled: Walled, what: str) -> None:
    first = walled.start(*python("attempt.py", "nothing"))
    assert first.stdout is not None
    assert json.loads(first.stdout.readline())[1] == BLOCKS
    for _ in range(2):
        came, _, peak = taken(walled, what)
        assert peak <= LIMIT
        if what in ("remove the region", "write the page"):
            assert came[0].count("Error") >= 3, came  # each way was refused
    first.communicate("\n", timeout=60)
    assert taken(walled, "nothing")[2] <= LIMIT


@pytest.mark.parametrize(
    "what",
    ["a copy of the driver", "a namespace of the loader", "bound deeply", "the driver by another path", "the loader as a program",
     "spawned without anything", "by threads", "by a raw fork", "by an orphan", "closing everything", "no descriptors",
     "a stopped sibling"],
)  # fmt: skip
def test_no_way_past_the_library_that_it_can_see_gives_more(walled: Walled, what: str) -> None:
    taken(walled, what, script="break_out.py")
    _, blocks, peak = taken(walled, what, processes=2, script="break_out.py")
    assert peak <= LIMIT
    assert blocks <= BLOCKS


def test_a_card_that_was_not_granted_has_no_memory(walled: Walled) -> None:
    assert taken(walled, "nothing", "1", CUDA_DEVICE_MEMORY_LIMIT_1="30g")[1:] == (0, 0)


def test_limits_follow_the_card_wherever_it_stands_among_those_seen(card: Path, uuids: list[str], tmp_path: Path) -> None:
    """As where somebody makes all cards visible: the second card's share is not the first one's."""
    container = Walled(card, tmp_path, {"LIBCUDA_LOG_LEVEL": "0"}, page=page_of(GrantedCard(uuids[1], LIMIT)))
    assert taken(container, "nothing", "0")[1:] == (0, 0)
    _, blocks, peak = taken(container, "nothing", "1")
    assert (blocks, peak <= LIMIT) == (BLOCKS, True)
    assert read_region(container.region).limit[:2] == (LIMIT, 1)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * limits_page.BYTES, limits_page.render(page_of()).replace(b"\x01\0\0\0", b"\x02\0\0\0", 1)],
    ids=["empty", "zeros", "of a later layout"],
)  # fmt: skip
def test_a_page_that_cannot_be_read_grants_nothing_and_says_so(card: Path, tmp_path: Path, content: bytes) -> None:
    container = Walled(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": "3000m"}, page=content)
    ran = container.run(*python("attempt.py", "nothing"))
    assert json.loads(ran.out)[1] == 0
    assert f"{limits_page.PATH}: " in ran.err


def test_a_file_that_nobody_mounted_is_no_page(card: Path, uuids: list[str], tmp_path: Path) -> None:
    """Beside other plugins a tenant could lay one into his image: it would say what he likes."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "limits").write_bytes(limits_page.render(page_of(GrantedCard(uuids[0], 30 << 30))))
    container = Walled(card, tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "LIBCUDA_LOG_LEVEL": "0"})
    container.mounts = [m for m in container.mounts if m["target"] != "/usr/local/vgpu/libvgpu.so"]
    container.mounts.insert(0, {"source": str(tmp_path / "mine"), "target": "/usr/local/vgpu", "read_only": False, "own": True})
    container.mounts.append({"source": str(LIBRARY), "target": "/usr/local/vgpu/libvgpu.so", "read_only": True, "own": False})
    assert taken(container, "nothing")[2] <= LIMIT


def test_upstreams_region_says_what_the_page_says(walled: Walled) -> None:
    process = walled.start(*python("attempt.py", "nothing"))
    assert process.stdout is not None
    process.stdout.readline()
    region = read_region(walled.region)
    process.communicate("\n", timeout=60)
    assert (region.limit[0], region.sm_limit[0]) == (LIMIT, 50)
    assert walled.environment()["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == REGION
