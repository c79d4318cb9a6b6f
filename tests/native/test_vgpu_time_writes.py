"""What a tenant writes into words of time gives his container no more of the card than granted, and stops no program.

The witness is the emulated card in virtual time: what it served, and when each launch was let go.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest
from kit.launch_waits import read_launches
from kit.seeds import chosen_seed
from kit.vgpu_kit import PROGRAMS, build
from kit.walled import REGION, Walled

from pumice.wire.limits_page import GrantedCard, LimitsPage
from pumice_lab import machine
from tests.native.conducting import busy
from tests.native.region_writes import EXT_DEVICES, EXTENSION, FAIR, FAIR_BYTES, WHOLE, damage_time

LIMIT, LIBRARY, NODE = 30, "/usr/local/vgpu/libvgpu.so", "/tmp/vgpulock"
ONE, MANY, SHORT = "kernel=1000000", "kernel=1000000,streams=8", "kernel=10000"
MIXED, DRAWN = "kernel=300000,shape=mixed,streams=4", "kernel=200000,shape=lognormal"
NEW = "kernel=50000,kinds=32768"
LASTS_MS, ALL_WRITES, FEW_WRITES = 3000, 1_000_000, 50_000
DEVICE = EXTENSION + EXT_DEVICES


class Conducted:
    """A container whose programs run in virtual time behind a limits page, while somebody writes."""

    def __init__(self, folder: Path) -> None:
        build()
        model = machine.machine_of("A100-SXM4-40GB", virtual_time=True)
        machine.create(model, folder / "m")
        page = LimitsPage((GrantedCard(model.cards[0].uuid, 0, LIMIT),), REGION, priority=1)
        self.walled = Walled(folder / "m", folder, page=page)
        self.node, self.launches = folder / "node", folder / "launches"
        self.node.mkdir()
        self.launches.mkdir()
        self.walled.mounts.append({"source": str(self.node), "target": NODE, "read_only": False, "own": False})

    def run(self, players: tuple[str, ...], write: Callable[[Conducted], int], writes: int = 0) -> list[dict[str, Any]]:
        conducting = self.walled.start(
            PROGRAMS / "conduct", LIBRARY, self.launches, str(LASTS_MS), f"launches={self.launches}/each",
            *(f"tenant=a,limit={LIMIT},{player}" for player in players),
        )  # fmt: skip
        written = 0
        while conducting.poll() is None or written < writes:
            written += write(self) if self.walled.region.stat().st_size >= WHOLE else 0
        out, err = conducting.communicate(timeout=100)
        assert conducting.returncode == 0, err
        workers: list[dict[str, Any]] = json.loads(out)["workers"]
        return workers

    def longest_pause_ms(self, players: int) -> float:
        """Return the longest time that any program was without a launch let go."""
        moments = [[int(row[1]) for row in read_launches(Path(f"{self.launches}/each.{n}"))] for n in range(players)]
        return max(b - a for each in moments for a, b in pairwise([*each, LASTS_MS * 1_000_000])) / 1e6


@pytest.fixture
def conducted(tmp_path: Path) -> Conducted:
    return Conducted(tmp_path)


def by(aim: Callable[[mmap], None]) -> Callable[[Conducted], int]:
    def write(conducted: Conducted) -> int:
        with conducted.walled.region.open("r+b") as file, mmap(file.fileno(), WHOLE) as memory:
            for _ in range(1000):
                aim(memory)
        return 1000

    return write


def balance(seconds: int) -> Callable[[mmap], None]:
    def aim(memory: mmap) -> None:
        (charged,) = struct.unpack_from("<q", memory, DEVICE + 24)
        struct.pack_into("<q", memory, DEVICE, charged + seconds * 10**9)

    return aim


def everybody_is_busy(memory: mmap) -> None:
    for slot in range(8):
        struct.pack_into("<QI", memory, EXTENSION + 4096 + slot * 320 + 288, 1 << 62, 0xFFFFFFFF)


def everybody_used_much(memory: mmap) -> None:
    struct.pack_into("<q", memory, DEVICE + 72, 1 << 60)
    for slot in range(8):
        struct.pack_into("<q", memory, FAIR + slot * FAIR_BYTES, 1 << 60 if slot % 2 else 0)


def nothing_is_told(_: mmap) -> None:
    pass


AIMS = {
    "nothing": nothing_is_told, "ten seconds of credit": balance(10), "ten seconds of debt": balance(-10),
    "everybody is busy": everybody_is_busy, "somebody used much": everybody_used_much,
}  # fmt: skip


@pytest.mark.parametrize("aim", AIMS.values(), ids=AIMS.keys())
@pytest.mark.parametrize("players", [(ONE,), (SHORT, MANY), (NEW, MIXED)], ids=" beside ".join)
def test_words_of_time_that_somebody_goes_on_writing_give_no_more_than_the_limit_and_stop_nobody(
    conducted: Conducted, players: tuple[str, ...], aim: Callable[[mmap], None]
) -> None:
    """A credit of ten seconds was ten seconds of the card. How much is left to them goes by how many writes fall into a second of
    the card, which is the computer's load: about half of the limit was seen."""
    workers = conducted.run(players, by(aim))
    assert LIMIT / 4 < sum(busy(worker, 1000, LASTS_MS - 100) for worker in workers) < LIMIT + 1
    assert conducted.longest_pause_ms(len(players)) < 1000


@pytest.mark.parametrize("count", [FEW_WRITES, pytest.param(ALL_WRITES, marks=pytest.mark.soak)])
@pytest.mark.parametrize("players", [(ONE,), (SHORT, ONE), (DRAWN, MIXED)], ids=" beside ".join)
def test_a_million_random_writes_of_time_give_no_more_than_the_limit(
    conducted: Conducted, players: tuple[str, ...], count: int
) -> None:
    """Programs of one container may get unlike parts of it meanwhile, and less together. How long one waits goes by how many
    writes fall into how much of the card's time, which is the computer's load: no word of it here."""
    seed = chosen_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)

    def write(conducted: Conducted) -> int:
        damage_time(conducted.walled.region, rng, 5_000)
        return 5_000

    workers = conducted.run(players, write, count)
    assert 1 < sum(busy(worker, 1000, LASTS_MS - 100) for worker in workers) < LIMIT + 1


def test_a_neighbour_that_says_the_card_is_his_for_ever_costs_nobody_his_share(conducted: Conducted) -> None:
    """Of the node's file, which all containers of a card write: its owner, its windows and everybody's entries."""

    def write(conducted: Conducted) -> int:
        for path in conducted.node.iterdir():
            if path.stat().st_size < 8192:  # a program makes it at this moment
                continue
            with path.open("r+b") as file, mmap(file.fileno(), 8192) as memory:
                for entry in (40, 41):
                    struct.pack_into("<QQQII", memory, 128 * (1 + entry), 77 + entry, 1 << 62, 1 << 62, 30, 3)
                struct.pack_into("<QQ", memory, 16, 41, 1 << 62)
                for entry in range(40):
                    (beat,) = struct.unpack_from("<Q", memory, 128 * (1 + entry) + 8)
                    for fake in (40, 41):
                        struct.pack_into("<QQ", memory, 128 * (1 + fake) + 8, beat or 1 << 62, (beat or 0) + 10**9)
        return 1

    workers = conducted.run((f"{ONE},arbiter=1",), write)
    assert LIMIT / 2 < busy(workers[0], 1000, LASTS_MS - 100) < LIMIT + 1
    assert conducted.longest_pause_ms(1) < 1000
