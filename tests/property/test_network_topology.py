"""A demand for one switch is met whenever some switch that is allowed could take the gang, and by the nearest of them."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.engine_world import World
from kit.objects import group, hyper_node, node, pod
from kit.scheduler_confs import conf


def random_tree(rng: random.Random) -> tuple[list[dict[str, Any]], dict[str, tuple[int, set[str]]]]:
    """HyperNodes over at most eight nodes, in at most three tiers, some nodes in none; with the tier and nodes of each."""
    nodes = [f"n{i}" for i in range(rng.randint(1, 8))]
    made: list[dict[str, Any]] = []
    meant: dict[str, tuple[int, set[str]]] = {}
    loose: list[str] = []
    rest = nodes[: rng.randint(0, len(nodes))]
    while rest:
        taken, rest = rest[: (size := rng.randint(1, 3))], rest[size:]
        name = f"leaf{len(made)}"
        made.append(hyper_node(name, 1, *taken))
        meant[name] = 1, set(taken)
        loose.append(name)
    for tier in range(2, rng.randint(2, 4)):
        above: list[str] = []
        while loose:
            taken, loose = loose[: (size := rng.randint(1, 3))], loose[size:]
            name = f"tier{tier}-{len(made)}"
            made.append(hyper_node(name, tier, children=taken))
            meant[name] = tier, set().union(*(meant[child][1] for child in taken))
            above.append(name)
        loose = above
    rng.shuffle(made)
    return made, meant


@given(st.randoms(use_true_random=False))
def test_a_gang_is_placed_exactly_where_some_switch_takes_it_whole_and_behind_the_nearest(rng: random.Random) -> None:
    made, meant = random_tree(rng)
    names = [f"n{i}" for i in range(8)]
    room = {name: rng.randint(0, 3) for name in names}
    plugins = ["gang", "predicates", *(["network-topology-aware"] if rng.random() < 0.5 else [])]
    world = World(conf(*plugins))
    world.add(*[node(name, cpu=str(room[name])) for name in names if room[name] or rng.random() < 0.5], *made)
    there = set(world.nodes)
    allowed = rng.randint(1, 4)
    size = rng.randint(1, 7)
    minimum = rng.randint(1, size)
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


def hostile_hyper_nodes(rng: random.Random) -> list[dict[str, Any]]:
    """HyperNodes that claim one another and the same nodes at random."""
    names = [f"h{i}" for i in range(rng.randint(1, 7))]
    nodes = [f"n{i}" for i in range(7)]
    found = []
    for name in names:
        selectors: list[dict[str, Any]] = []
        if rng.random() < 0.3:
            selectors.append({"regexMatch": {"pattern": rng.choice(["^n[0-3]$", "n", "^x", "(", "(a+)+"])}})
        children = rng.sample([*names, "ghost"], rng.randint(0, 2))
        found.append(hyper_node(name, rng.randint(0, 4), *rng.sample(nodes, rng.randint(0, 3)), children=children,
                                selectors=selectors, created=f"2026-01-0{rng.randint(1, 3)}T00:00:00Z"))  # fmt: skip
    return found


@given(st.randoms(use_true_random=False))
def test_whatever_hyper_nodes_claim_what_counts_is_a_tree(rng: random.Random) -> None:
    world = World()
    made = hostile_hyper_nodes(rng)
    world.add(*[node(f"n{i}") for i in range(rng.randint(0, 6))], *made)
    world.settle(1)
    tree = world.engine.state.hyper_nodes.tree
    assert set(tree.domains) == {obj["metadata"]["name"] for obj in made}
    for domain in tree.domains.values():
        assert list(domain.above)[-1] is tree.root
        assert domain.parent is not None
        assert domain.parent.tier > domain.tier
        assert domain.members <= domain.parent.members
    for level in tree.levels:
        members = [row for domain in level.domains for row in domain.members]
        assert len(members) == len(set(members)), "two domains of one tier have no node in common"
    for name, obj in world.hyper_nodes.items():
        assert obj["status"]["nodeCount"] == len(tree.domains[name].members)
        assert bool(tree.views[name].refused) == (obj["status"]["conditions"][-1]["status"] == "False")
    again = World()
    again.add(*rng.sample(made, len(made)), *world.nodes.values())
    found = again.engine.state.hyper_nodes.tree
    table, other = world.engine.state.ledger.table, again.engine.state.ledger.table
    for name, domain in tree.domains.items():
        assert {table.name(row) for row in domain.members} == {other.name(row) for row in found.domains[name].members}, (
            "in whatever order they are heard of"
        )


@given(st.randoms(use_true_random=False))
def test_nobody_waits_for_a_switch_that_would_take_him_whatever_happened_before(rng: random.Random) -> None:
    world = World(conf("gang", "predicates", *(["network-topology-aware"] if rng.random() < 0.5 else [])))
    nodes, gangs, serial = [f"n{i}" for i in range(6)], ["g0", "g1", "g2", "g3"], 0
    tiers = {"a": ["n0", "n1"], "b": ["n2", "n3"], "c": ["n4", "n5"]}
    requested: dict[str, tuple[int, int]] = {}

    def switches() -> None:
        world.add(*[hyper_node(name, 1, *members) for name, members in tiers.items()], hyper_node("ab", 2, children=["a", "b"]))

    switches()
    world.add(*[node(name, cpu=str(rng.randint(1, 3))) for name in nodes])
    for _ in range(rng.randint(1, 12)):
        match rng.choice([0, 1, 2, 3, 4, 5, 5, 5]):
            case 0 | 1:
                name = rng.choice(nodes)
                if name in world.nodes and rng.random() < 0.3:
                    world.remove("Node", name)
                    for obj in [o for o in world.pods.values() if o["spec"].get("nodeName") == name]:
                        world.disturbed.add(obj["metadata"]["annotations"]["scheduling.k8s.io/group-name"])
                        world.delete_pod(obj["metadata"]["name"])
                else:
                    before = world.nodes[name]["status"]["allocatable"]["cpu"] if name in world.nodes else "0"
                    world.add(node(name, cpu=str(rng.randint(int(before), 3))))
            case 2 | 3:
                name = rng.choice(gangs)
                if name not in requested:
                    requested[name] = rng.choice([1, 1, 1, 2, 3]), rng.randint(2, 6)
                    tier, size = requested[name]
                    world.add(group(name, minimum=size, topology={"mode": "hard", "highestTierAllowed": tier}))
                    world.add(*[pod(f"{name}-{serial + i}", group=name, cpu="1") for i in range(size)])
                    serial += size
            case 4:
                for obj in list(world.pods.values()):
                    if obj["spec"].get("nodeName") and rng.random() < 0.3:
                        world.disturbed.add(obj["metadata"]["annotations"]["scheduling.k8s.io/group-name"])
                        world.delete_pod(obj["metadata"]["name"])
            case 5:
                left, right = rng.sample(sorted(tiers), 2)  # a node is plugged in elsewhere
                if tiers[left]:
                    tiers[right] = [*tiers[right], tiers[left].pop()]
                    tiers[left] = tiers[left] or ["nowhere"]
                switches()
        if rng.random() < 0.6:
            world.settle(rng.choice([0, 1, 1, 70]))
    if rng.random() < 0.3:
        world.engine = world.restarted()
    world.settle(3)
    free = {name: int(obj["status"]["allocatable"]["cpu"]) for name, obj in world.nodes.items()}
    where: dict[str, set[str]] = {}
    for obj in world.pods.values():
        if at := obj["spec"].get("nodeName"):
            free[at] -= 1
            where.setdefault(obj["metadata"]["annotations"]["scheduling.k8s.io/group-name"], set()).add(at)
    domains = [(1, set(members)) for members in tiers.values()]
    domains += [(2, set(tiers["a"]) | set(tiers["b"])), (3, set(world.nodes))]
    for name, (tier, size) in requested.items():
        members = [p for p in world.pods.values() if p["metadata"]["name"].startswith(f"{name}-")]
        waiting = [p for p in members if not p["spec"].get("nodeName")]
        held = where.get(name, set())
        need = max(1, size - (len(members) - len(waiting)))
        if not waiting or len(members) < size:
            continue
        room = [sum(max(0, free[n]) for n in inside & free.keys()) for t, inside in domains if t <= tier and held <= inside]
        assert all(found < need for found in room), f"{name} waits for {need} pods beside {held}, room {room}"


@given(st.randoms(use_true_random=False))
def test_sub_groups_are_whole_each_behind_one_switch_and_as_many_as_there_is_room_for(rng: random.Random) -> None:
    world = World(conf("gang", "predicates"))
    room = [rng.randint(0, 3) for _ in range(6)]
    world.add(*[node(f"n{i}", cpu=str(cpu)) for i, cpu in enumerate(room)])
    world.add(*[hyper_node(f"s{i}", 1, f"n{2 * i}", f"n{2 * i + 1}") for i in range(3)])
    size, count = rng.randint(1, 4), rng.randint(1, 4)
    least = rng.randint(0, count)
    policy = {"name": "w", "matchLabelKeys": ["part"], "subGroupSize": size, "minSubGroups": least,
              "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}  # fmt: skip
    world.add(group("g", minimum=max(1, least * size), sub_groups=[policy]))
    for part in range(count):
        world.add(*[pod(f"g-{part}-{i}", group="g", cpu="1", labels={"part": str(part)}) for i in range(size)])
    world.settle()
    able = min(count, sum((room[2 * i] + room[2 * i + 1]) // size for i in range(3)))
    whole = 0
    for part in range(count):
        places = [world.node_of(f"g-{part}-{i}") for i in range(size)]
        if any(places):
            assert all(places), "a sub-group is placed whole"
            assert len({int(where[1:]) // 2 for where in places}) == 1, "behind one switch"
            whole += 1
    assert whole == (able if able >= max(1, least) else 0)
