"""Logs as ``kubectl logs`` asks for them, however long they are."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from kit.virtual_time import VirtualClock

from pumice_lab.kubelet.logs import LogOptions, read_log

HOUR = "2026-11-29T10:00:{:02d}.000000000Z stdout {} {}\n"


async def read(path: Path, options: LogOptions) -> str:
    return b"".join([piece async for piece in read_log(path, options, lambda: False, VirtualClock())]).decode()


@pytest.mark.parametrize("seed", range(40))
def test_the_last_lines_of_a_log_are_whole_lines_over_its_rotated_file_too(seed: int, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "0.log"
    pieces = [(rng.choice("FFP"), f"t{at}") for at in range(rng.randint(0, 12))]
    cut = rng.randint(0, len(pieces))
    rows = [HOUR.format(at, tag, text) for at, (tag, text) in enumerate(pieces)]
    path.with_name("0.log.1").write_text("".join(rows[:cut]))
    path.write_text("".join(rows[cut:]) + rng.choice(["", "2026-11-29T10"]))
    told = "".join(text + ("\n" if tag == "F" else "") for tag, text in pieces)
    assert asyncio.run(read(path, LogOptions())) == told
    lines = told.split("\n")
    for tail in range(6):
        assert asyncio.run(read(path, LogOptions(tail=tail))) == "\n".join(lines[max(0, len(lines) - 1 - tail):])


@pytest.mark.parametrize("options", [LogOptions(), LogOptions(tail=1), LogOptions(since=4e9), LogOptions(tail=30_000)])
def test_whoever_reads_a_long_log_leaves_others_their_turn(options: LogOptions, tmp_path: Path) -> None:
    path, turns = tmp_path / "0.log", [0]
    path.write_text(HOUR.format(1, "F", "") * 30_000)

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def story() -> None:
        beside = asyncio.create_task(others())
        await read(path, options)
        beside.cancel()

    asyncio.run(story())
    assert turns[0] >= 50
