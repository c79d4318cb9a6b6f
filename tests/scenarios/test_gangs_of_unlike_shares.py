"""Gangs whose pods ask for unlike parts of cards are planned as a whole, and never worse than pod by pod."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.room_worlds import MIG, mig_node

SLICES = {"group1": [5120] * 7, "group2": [10240] * 3 + [5120], "group3": [20480] * 2, "group4": [40960]}


def gang(asks: Sequence[int], notes: dict[str, str]) -> list[dict[str, Any]]:
    return [group("g", minimum=len(asks)),
            *(pod(f"g-{at}", group="g", mib=mib, annotations=notes) for at, mib in enumerate(asks))]  # fmt: skip


def bound(world: World, asks: Sequence[int]) -> int:
    return sum(bool(world.node_of(f"g-{at}")) for at in range(len(asks)))


@pytest.mark.parametrize("asks", [(3000, 20000), (3000, 9000), (4000, 4000, 9000, 9000), (3000, 10000, 10000, 10000)])
def test_a_gang_whose_small_pods_come_first_gets_the_layout_that_the_large_ones_need(asks: tuple[int, ...]) -> None:
    world = World()
    world.add(mig_node("n"), *gang(asks, MIG))
    world.settle()
    assert bound(world, asks) == len(asks)


def test_a_gang_that_fits_in_no_order_is_told_what_it_was_told_before() -> None:
    world = World()
    world.add(mig_node("n"), *gang((3000, 20000, 20000), MIG))
    world.settle()
    assert bound(world, (0, 0, 0)) == 0
    assert "g-1" in world.groups["default/g"]["status"]["conditions"][0]["message"]


def test_shared_cards_are_filled_by_the_large_pods_of_a_gang_first() -> None:
    """Spread over two cards, small pods would leave no card for the large one."""
    world = World()
    world.add(node("n", cards=2, mib=16000), *gang((4000, 4000, 16000), {"pumice.io/card-policy": "spread"}))
    world.settle()
    assert bound(world, (0, 0, 0)) == 3


def feasible(asks: Sequence[int], cards: int) -> bool:
    """Whether a set of asks fits idle A100s at all, by trying every layout of each card."""
    if not asks:
        return True
    if not cards:
        return False
    for sizes in SLICES.values():
        free, rest = sorted(sizes), []
        for ask in sorted(asks, reverse=True):
            slot = next((size for size in free if size >= ask), None)
            if slot is None:
                rest.append(ask)
            else:
                free.remove(slot)
        if len(rest) < len(asks) and feasible(rest, cards - 1):
            return True
    return False


def test_of_random_gangs_that_fit_idle_cards_nearly_all_are_placed() -> None:
    seed = int(os.environ.get("PUMICE_SEED", "7"))
    dice = Random(seed)
    fitting = placed = 0
    for number in range(150):
        cards = dice.choice((1, 1, 2))
        asks = [dice.choice((3000, 5000, 9000, 10000, 18000, 20000)) for _ in range(dice.randint(2, 5 * cards))]
        if not feasible(asks, cards):
            continue
        world = World(seed=number)
        world.add(mig_node("n", cards), *gang(asks, MIG))
        world.settle()
        fitting += 1
        placed += bound(world, asks) == len(asks)
    print(seed, placed, fitting)
    assert fitting > 30
    assert placed >= 0.97 * fitting
