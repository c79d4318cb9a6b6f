"""Queues get their shares back from those who borrowed them."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import node, pod, queue
from kit.room_worlds import BUNDLES, GPU, SHARES, full, gpus, run, running

Json = dict[str, Any]


def borrowed(plugin: str = "proportion", *, reclaimable: bool = True) -> World:
    """Queue a runs on everything; b deserves half of it."""
    world = World(SHARES % plugin)
    deserved = {GPU: "4"} if plugin == "capacity" else None
    lender = queue("a", deserved=deserved)
    lender["spec"]["reclaimable"] = reclaimable
    full(world, node("n1", extra={GPU: "8"}), lender, queue("b", deserved=deserved), *(gpus(f"a{i}", "a") for i in range(8)))
    return world


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_a_queue_gets_back_its_share_and_not_a_pod_more(plugin: str) -> None:
    world = borrowed(plugin)
    world.add(*(gpus(f"b{i}", "b") for i in range(8)))
    for _ in range(8):
        world.settle(1)
        run(world)
    assert len(world.evictions) == 4
    assert running(world) == {"a": 4, "b": 4}


def test_a_queue_gets_its_share_of_what_pods_of_other_schedulers_leave() -> None:
    """Half of the node is held by pods that no queue pays for. Of all of it each queue would deserve 4: a were not over."""
    world = World(SHARES % "proportion")
    foreign = [pod(f"x{i}", limits={GPU: "1"}, scheduler="default-scheduler", nodeName="n1") for i in range(4)]
    full(world, node("n1", extra={GPU: "8"}), *foreign, queue("a"), queue("b"), *(gpus(f"a{i}", "a") for i in range(4)))
    world.add(*(gpus(f"b{i}", "b") for i in range(4)))
    for _ in range(8):
        world.settle(1)
        run(world)
    assert running(world) == {"x": 4, "a": 2, "b": 2}
    assert len(world.evictions) == 2
    for i in range(4):
        world.delete_pod(f"x{i}")
    world.add(*(gpus(f"a{i}", "a") for i in range(5, 9)))
    world.settle(8)
    assert {name: count for name, count in running(world).items() if count} == {"a": 4, "b": 4}


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_two_queues_never_take_the_same_room_from_each_other_by_turns(plugin: str) -> None:
    world = borrowed(plugin)
    world.add(*(gpus(f"b{i}", "b", 3) for i in range(3)))
    serial = 0
    for _ in range(20):
        before = list(world.evictions)
        world.settle(2)
        run(world)
        for effect in world.evictions[len(before):]:  # its controller makes it anew
            serial += 1
            world.add(gpus(f"{effect.name[0]}r{serial}", effect.name[0], 3 if effect.name[0] == "b" else 1))
    assert len(world.evictions) <= 4
    assert not [effect for effect in world.evictions if effect.name.startswith("b")]


def test_a_queue_that_is_not_reclaimable_keeps_what_it_borrowed() -> None:
    world = borrowed(reclaimable=False)
    world.add(gpus("b0", "b"))
    world.settle(8)
    assert not world.evictions


def test_a_queue_that_is_deleted_while_it_reclaims_leaves_no_promise_that_binds() -> None:
    world = borrowed()
    world.grace = True
    world.add(gpus("b0", "b"))
    world.settle(2)
    assert len(world.evictions) == 1
    world.remove("Queue", "b")
    world.delete_pod(world.evictions[0].name)
    world.settle(8)
    assert world.node_of("b0") in ("", "n1")
    assert not world.engine.state.promises.kept


def test_without_a_plugin_that_knows_shares_nothing_is_reclaimed() -> None:
    world = World(BUNDLES.replace("preempt, ", ""))
    full(world, node("n1", extra={GPU: "2"}), queue("a"), queue("b"), *(gpus(f"a{i}", "a") for i in range(2)))
    world.add(gpus("b0", "b"))
    world.settle(8)
    assert not world.evictions
