"""A demand for one switch is met whenever some switch that is allowed could take the gang, and by the nearest of them."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.engine_world import World, conf
from kit.objects import group, hyper_node, node, pod


def random_tree(dice: random.Random) -> tuple[list[dict[str, Any]], dict[str, tuple[int, set[str]]]]:
    """HyperNodes over at most eight nodes, in at most three tiers, some nodes in none; with the tier and nodes of each."""
    nodes = [f"n{i}" for i in range(dice.randint(1, 8))]
    made: list[dict[str, Any]] = []
    meant: dict[str, tuple[int, set[str]]] = {}
    loose: list[str] = []
    rest = nodes[: dice.randint(0, len(nodes))]
    while rest:
        taken, rest = rest[: (size := dice.randint(1, 3))], rest[size:]
        name = f"leaf{len(made)}"
        made.append(hyper_node(name, 1, *taken))
        meant[name] = 1, set(taken)
        loose.append(name)
    for tier in range(2, dice.randint(2, 4)):
        above: list[str] = []
        while loose:
            taken, loose = loose[: (size := dice.randint(1, 3))], loose[size:]
            name = f"tier{tier}-{len(made)}"
            made.append(hyper_node(name, tier, children=taken))
            meant[name] = tier, set().union(*(meant[child][1] for child in taken))
            above.append(name)
        loose = above
    dice.shuffle(made)
    return made, meant


@given(st.randoms(use_true_random=False))
def test_a_gang_is_placed_exactly_where_some_switch_takes_it_whole_and_behind_the_nearest(dice: random.Random) -> None:
    made, meant = random_tree(dice)
    names = [f"n{i}" for i in range(8)]
    room = {name: dice.randint(0, 3) for name in names}
    plugins = ["gang", "predicates", *(["network-topology-aware"] if dice.random() < 0.5 else [])]
    world = World(conf(*plugins))
    world.add(*[node(name, cpu=str(room[name])) for name in names if room[name] or dice.random() < 0.5], *made)
    there = set(world.nodes)
    allowed = dice.randint(1, 4)
    size = dice.randint(1, 7)
    minimum = dice.randint(1, size)
    world.add(group("g", minimum=minimum, topology={"mode": "hard", "highestTierAllowed": allowed}))
    world.add(*[pod(f"g-{i}", group="g", cpu="1") for i in range(size)])
    world.settle()
    top = max((tier for tier, _ in meant.values()), default=0) + 1
    domains = [*meant.values(), (top, there)]
    fitting = [tier for tier, members in domains if tier <= allowed and sum(room[n] for n in members & there) >= minimum]
    places = {world.node_of(f"g-{i}") for i in range(size)} - {""}
    assert bool(places) == bool(fitting)
    if not fitting:
        return
    chosen = [(tier, members) for tier, members in domains if places <= members and tier <= allowed]
    assert chosen, "no switch that is allowed holds them all"
    placed = sum(bool(world.node_of(f"g-{i}")) for i in range(size))
    widest = max(sum(room[n] for n in members & there) for _, members in chosen)
    assert placed == min(size, widest), "nobody is left who fits behind the switches that are allowed"
    if size == minimum:
        assert min(tier for tier, _ in chosen) == min(fitting), "the nearest that takes it"
