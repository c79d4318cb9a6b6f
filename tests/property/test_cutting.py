"""Cards are recut again and again by a process that is killed at any of its calls: journal and cards agree afterwards, nobody
else's slice was touched, and no running pod lost its own without being told of."""

from __future__ import annotations

import os
import random

import pynvml
import pytest
from kit.cutting import CuttingWorld
from kit.machines import cards_of

from pumice.adapters.nvml.slices import NvmlSlices


def histories(model: str, count: int, seed: int) -> dict[str, int]:
    """What so many histories came to on a machine of such cards."""
    print("seed", seed)
    with cards_of(model) as (_, cards):
        uuids = [card.uuid for card in cards.facts()]
        for uuid in uuids:
            pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), 1)
        driver = NvmlSlices()
        sums = dict.fromkeys(("kills", "cuts", "refusals", "boots"), 0)
        for number in range(count):
            world = CuttingWorld(driver, uuids, random.Random(f"{seed}/{number}"))
            for _ in range(12):
                world.step()
            world.wipe()
            for key in sums:
                sums[key] += getattr(world, key)
    return sums


def seed() -> int:
    return int(os.environ.get("PUMICE_SEED", random.randrange(10**6)))


@pytest.mark.parametrize("model", ["2xA100-SXM4-40GB", "A30", "H200"])
def test_whoever_is_killed_while_it_cuts_leaves_what_the_next_one_puts_right(model: str) -> None:
    sums = histories(model, 100, seed())
    assert sums["kills"] > 50, sums
    assert sums["cuts"] > 50, sums
    assert sums["refusals"] > 10, sums


@pytest.mark.soak
def test_ten_thousand_histories_of_kills_leave_nothing_wrong() -> None:
    assert histories("2xA100-SXM4-40GB", 10_000, seed())["kills"] > 10_000
