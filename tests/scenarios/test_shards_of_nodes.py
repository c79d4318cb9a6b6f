"""Several schedulers of one cluster, each with a shard of its nodes: whose a node is, and who takes a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod

from pumice.effects.vocabulary import GroupStatus, PodCondition
from pumice.scheduler.inputs import Sharded
from pumice.scheduler.state.shards import Moves, Shard, assigned, first_by_hash, moves

Nodes = Mapping[str, Iterable[str]]


def shard(desired: Iterable[str] = (), in_use: Iterable[str] = ()) -> Shard:
    return Shard(frozenset(desired), frozenset(in_use))


def share(world: World, mine: str, nodes: Nodes, *, ours: Iterable[str] | None = None, divided: bool = True,
          soft: bool = False) -> World:  # fmt: skip
    """Let the world's scheduler be that of one shard; ``divided``: the others serve pods of the same name."""
    owner = {name: one for one, names in nodes.items() for name in names}
    used = tuple(nodes.get(mine, ()) if ours is None else ours)
    Sharded(mine, tuple(nodes) if divided else (mine,), owner, used, soft).apply(world.engine)
    return world


def both(nodes: Nodes, *objects: object) -> tuple[World, World]:
    """The schedulers of shards a and b before the same objects, neither of which hears what the other does."""
    worlds = World(), World()
    for name, world in zip("ab", worlds, strict=True):
        share(world, name, nodes)
        world.add(*(dict(obj) for obj in objects))  # type: ignore[call-overload]
    return worlds


def bound(world: World) -> dict[str, str]:
    return {binding.name: binding.node for binding in world.bindings}


# -- whose a node is ------------------------------------------------------------------------------------------------------


def test_of_two_shards_that_claim_one_node_the_one_that_uses_it_keeps_it() -> None:
    shards = {"a": shard({"n1", "n2"}, {"n1"}), "b": shard({"n2", "n3"}, {"n2"})}
    owner = assigned(shards)
    assert owner == {"n1": "a", "n2": "b", "n3": "b"}
    assert moves("a", shards, owner, {"n1"}) == Moves(frozenset(), frozenset())
    assert moves("b", shards, owner, {"n2"}) == Moves(frozenset(), frozenset({"n3"}))


@pytest.mark.parametrize("users", [(), ("a", "b")], ids=["neither uses it", "both say that they do"])
def test_of_two_shards_that_claim_one_node_alike_the_first_by_name_has_it(users: tuple[str, ...]) -> None:
    shards = {name: shard({"n1"}, {"n1"} if name in users else ()) for name in ("b", "a")}
    assert assigned(shards) == {"n1": "a"}


def test_a_node_that_moves_is_not_asked_for_before_the_other_has_let_it_go() -> None:
    before = {"a": shard((), {"n1"}), "b": shard({"n1"})}
    assert moves("a", before, assigned(before), {"n1"}) == Moves(frozenset({"n1"}), frozenset())
    assert moves("b", before, assigned(before), set()) == Moves(frozenset(), frozenset())
    after = {"a": shard(), "b": shard({"n1"})}
    assert moves("b", after, assigned(after), set()).take == {"n1"}


def test_a_name_that_is_taken_away_moves_no_other_key() -> None:
    keys = [f"default/job-{i}" for i in range(300)]
    three = {key: first_by_hash(key, ("a", "b", "c")) for key in keys}
    two = {key: first_by_hash(key, ("a", "b")) for key in keys}
    assert all(two[key] == three[key] for key in keys if three[key] != "c")
    assert min(list(three.values()).count(name) for name in "abc") > 60, "and the keys are spread"


# -- who places where -----------------------------------------------------------------------------------------------------


def test_each_scheduler_places_on_its_own_nodes_and_no_pod_is_tried_by_two() -> None:
    nodes = {"a": ["n1", "n2"], "b": ["n3", "n4"]}
    a, b = both(nodes, *(node(f"n{i}", cards=2) for i in range(1, 5)), *(pod(f"p{i}", mib=1000) for i in range(40)))
    a.settle()
    b.settle()
    assert bound(a).keys() & bound(b).keys() == set()
    assert bound(a).keys() | bound(b).keys() == {f"p{i}" for i in range(40)}
    assert min(len(bound(a)), len(bound(b))) > 8
    assert set(bound(a).values()) <= {"n1", "n2"}
    assert set(bound(b).values()) <= {"n3", "n4"}


def test_a_pod_that_only_one_shard_can_hold_is_for_that_one() -> None:
    zone = {"zone": "south"}
    pods = [pod(f"p{i}", cpu="1", nodeSelector=zone) for i in range(12)]
    cards = [pod(f"q{i}", mib=1000) for i in range(12)]
    a, b = both({"a": ["n1"], "b": ["n2"]}, node("n1", cards=4), node("n2", labels=zone), *pods, *cards)
    a.settle()
    b.settle()
    assert sorted(bound(a)) == sorted(f"q{i}" for i in range(12))
    assert sorted(bound(b)) == sorted(f"p{i}" for i in range(12))


@pytest.mark.parametrize("name", ["g", "h", "i", "j"])
def test_a_gang_that_is_wider_than_one_shard_is_for_the_one_that_can_hold_it(name: str) -> None:
    gang = [group(name, minimum=6), *(pod(f"{name}-{i}", group=name, cards=1, mib=8000) for i in range(6))]
    a, b = both({"a": ["n1"], "b": ["n2", "n3"]}, *(node(f"n{i}", cards=4) for i in range(1, 4)), *gang)
    a.settle()
    b.settle()
    assert bound(a) == {}
    assert len(bound(b)) == 6


@pytest.mark.parametrize("name", ["g", "h", "i", "j"])
def test_a_gang_that_its_scheduler_tries_over_several_cycles_stays_with_it(name: str) -> None:
    """What it has on trial meanwhile is seen by nobody else; counted, the rest of the gang would fit elsewhere."""
    gang = [group(name, minimum=6), *(pod(f"{name}-{i}", group=name, cards=1, mib=8000) for i in range(6))]
    a, b = both({"a": ["n1"], "b": ["n2", "n3"]}, *(node(f"n{i}", cards=4) for i in range(1, 4)), *gang)
    b.engine.cycle, whole = partial(b.engine.cycle, budget=0.0, at_least=0), b.engine.cycle  # type: ignore[method-assign]
    for _ in range(12):
        b.cycle()
        b.now += 0.01
        assert b.engine.state.shards.elsewhere == {}
    b.engine.cycle = whole  # type: ignore[method-assign]
    a.settle()
    b.settle()
    assert bound(a) == {}
    assert len(bound(b)) == 6


def test_a_gang_that_is_wider_than_every_shard_is_told_so_by_one_scheduler() -> None:
    gang = [group("g", minimum=6), *(pod(f"g-{i}", group="g", cards=1, mib=8000) for i in range(6))]
    worlds = both({"a": ["n1"], "b": ["n2"]}, node("n1", cards=4), node("n2", cards=2), *gang)
    said = []
    for world in worlds:
        world.settle()
        assert bound(world) == {}
        said += [world.condition("g-0")["message"]] if "conditions" in world.pods["default/g-0"]["status"] else []
    (text,) = said
    assert "its gang of 6 is wider than a shard: when empty there is room in shard a for 4, shard b for 2" in text
    a, b = worlds
    for world in worlds:
        world.add(node("n3", cards=4))
    share(a, "a", {"a": ["n1", "n3"], "b": ["n2"]})
    share(b, "b", {"a": ["n1", "n3"], "b": ["n2"]})
    a.settle()
    b.settle()
    assert len(bound(a)) == 6
    assert bound(b) == {}


def test_an_empty_shard_takes_no_job_that_another_can_hold() -> None:
    a, b = both({"a": ["n1"], "b": []}, node("n1", cards=4), *(pod(f"p{i}", mib=1000) for i in range(20)))
    a.settle()
    b.settle()
    assert len(bound(a)) == 20
    assert not [effect for effect in b.effects if isinstance(effect, PodCondition | GroupStatus)]


def test_schedulers_of_several_names_take_their_own_pods_whatever_the_shards_as_upstream() -> None:
    world = share(World(), "a", {"a": ["n1"], "b": ["n2"]}, divided=False)
    world.add(node("n1", cards=1, mib=4000), node("n2", cards=4), *(pod(f"p{i}", mib=4000) for i in range(3)))
    world.settle()
    assert list(bound(world).values()) == ["n1"]
    waiting = next(name for name in ("p0", "p1", "p2") if name not in bound(world))
    assert "1 node isn't in scheduler node shard" in world.condition(waiting)["message"]


def test_a_node_that_comes_to_the_shard_takes_who_waits_and_one_that_leaves_takes_nobody_any_more() -> None:
    world = share(World(), "a", {"a": ["n1"], "b": ["n2"]}, divided=False)
    world.add(node("n1", cards=1, mib=4000), node("n2", cards=1, mib=4000), pod("p", mib=4000), pod("q", mib=4000))
    world.settle()
    assert list(bound(world).values()) == ["n1"]
    share(world, "a", {"a": ["n2"], "b": ["n1"]}, divided=False)
    world.settle()
    assert sorted(bound(world).values()) == ["n1", "n2"]
    world.delete_pod("p")
    world.delete_pod("q")
    share(world, "a", {"a": ["n2"], "b": ["n1"]}, ours=[], divided=False)
    world.add(pod("r", mib=4000))
    world.settle()
    assert "r" not in bound(world), "it is ours, and not let go by the other yet"


def test_who_has_begun_a_gang_goes_on_with_it_and_a_gang_goes_with_its_nodes() -> None:
    nodes = {"a": ["n1"], "b": ["n2"]}
    for name in ("g", "h", "i", "j"):
        gang = [group(name, minimum=2), *(pod(f"{name}-{i}", group=name, cpu="1") for i in range(2))]
        for obj in gang[1:]:
            obj["spec"]["nodeName"], obj["status"] = "n1", {"phase": "Running"}
        a, b = both(nodes, node("n1"), node("n2"), *gang, pod(f"{name}-2", group=name, cpu="1"))
        b.settle()
        a.settle()
        assert bound(b) == {}
        assert bound(a) == {f"{name}-2": "n1"}
        a, b = both({"a": ["n2"], "b": ["n1"]}, node("n1"), node("n2"), *gang, pod(f"{name}-2", group=name, cpu="1"))
        a.settle()
        b.settle()
        assert bound(a) == {}
        assert bound(b) == {f"{name}-2": "n1"}


def test_in_soft_mode_other_nodes_come_last_and_never_for_devices() -> None:
    world = share(World(), "a", {"a": ["n9"], "b": ["n1"]}, divided=False, soft=True)
    world.add(node("n1", cards=4, cpu="4"), node("n9", cards=1, cpu="4", mib=4000), *(pod(f"p{i}", cpu="2") for i in range(3)))
    world.settle()
    assert sorted(bound(world).values()) == ["n1", "n9", "n9"]
    world.add(pod("q", mib=4000), pod("r", mib=4000))
    world.settle()
    assert [node for name, node in bound(world).items() if name in "qr"] == ["n9"]


def test_without_shards_nothing_is_asked() -> None:
    world = World()
    world.add(node("n1", cards=4), *(pod(f"p{i}", mib=1000) for i in range(4)))
    world.settle()
    assert len(bound(world)) == 4
    shards = world.engine.state.shards
    assert (shards.capacities, shards.elsewhere, shards.version) == ({}, {}, 0)
