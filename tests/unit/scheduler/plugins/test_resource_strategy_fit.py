"""resource-strategy-fit scores by resource, spares scarce ones and keeps cpu and memory back for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import node, pod
from tests.unit.scheduler.plugins.test_node_scores import engine_with, scores, used

GPU = "nvidia.com/gpu"
NAME = "resource-strategy-fit"


def conf(arguments: dict[str, Any]) -> str:
    plugin = {"name": NAME, "arguments": arguments}
    return f'actions: "enqueue, allocate, backfill"\ntiers: {json.dumps([{"plugins": [{"name": "predicates"}, plugin]}])}\n'


STRATEGIES = [
    # node of 10 cpu (2 used), 100 memory (40 used), 4 GPUs (1 used); asked: 1 cpu, 10 memory, 1 GPU
    ({}, (0.7 + 0.5) / 2 * 1000),
    ({"resourceStrategyFitWeight": -1}, 600),
    ({"resourceStrategyFitWeight": 2}, 120),
    ({"resources": {"cpu": {"type": "MostAllocated", "weight": 1}}}, 300),
    ({"resources": {GPU: {"type": "MostAllocated", "weight": 2}, "cpu": {"weight": 1}}}, (2 * 0.5 + 0.7) / 3 * 1000),
    ({"resources": {"nvidia.com/*": {"type": "MostAllocated"}}}, 500),
    ({"resources": {"nvidia.com/*": {"type": "LeastAllocated"}, "nvidia.com/g*": {"type": "MostAllocated"}}}, 500),
    ({"resources": {"nvidia.com/*": {"type": "MostAllocated"}, GPU: {"type": "LeastAllocated"}}}, 500),
    ({"resources": {"cpu": {"type": "Other", "weight": 0}}}, 700),
    ({"resources": {"*": {}, "n*a": {}}}, 600),  # left out, so that the usual ones hold
]


@pytest.mark.parametrize(("arguments", "score"), STRATEGIES)
def test_each_resource_is_packed_or_spread_as_the_arguments_say(arguments: dict[str, Any], score: float) -> None:
    engine = engine_with(NAME, {key: json.dumps(value) for key, value in arguments.items()},
                         node("n1", cpu="10", memory="100", extra={GPU: "4"}),
                         used("u", "n1", cpu="2", memory="40", limits={GPU: "1"}))  # fmt: skip
    assert scores(engine, pod("a", cpu="1", memory="10", limits={GPU: "1"}))["n1"] == pytest.approx(score)


def test_pods_that_need_nothing_scarce_keep_off_the_nodes_that_have_it() -> None:
    sra = {"enable": True, "resources": "t4, a10", "weight": 2, "resourceWeight": {"t4": 1, "a10": 1}}
    sra = json.loads(json.dumps(sra).replace("t4", "nvidia.com/t4").replace("a10", "nvidia.com/a10"))
    engine = engine_with(NAME, {"resourceStrategyFitWeight": 0, "sra": json.dumps(sra)}, node("n1"),
                         node("n2", extra={"nvidia.com/t4": "10"}),
                         node("n3", extra={"nvidia.com/t4": "5", "nvidia.com/a10": "10"}))  # fmt: skip
    assert scores(engine, pod("a", cpu="2")) == {"n1": 200, "n2": 100, "n3": 0}
    assert scores(engine, pod("a", cpu="2", limits={"nvidia.com/t4": "2"})) == {"n1": 0, "n2": 100, "n3": 0}


KEPT = {"proportional": {"enable": True, "resources": GPU, "resourceProportion": {f"{GPU}.cpu": 8, f"{GPU}.memory": 8}}}


def test_cpu_and_memory_are_kept_back_for_free_cards() -> None:
    world = World(conf(KEPT))
    world.add(node("n1", cpu="74", memory="128G", extra={GPU: "8"}))
    world.add(pod("a", cpu="8", memory="8G"))
    world.settle()
    world.add(pod("b", cpu="8", memory="8G"))
    world.settle()
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")
    assert world.condition("b")["message"] == f"0/1 nodes are unavailable: 1 proportional of resource {GPU} check failed."


def test_a_pod_that_waited_for_what_was_kept_back_goes_when_the_card_is_taken() -> None:
    world = World(conf(KEPT))
    world.add(node("n1", cpu="10", memory="100G", extra={GPU: "1"}), pod("waits", cpu="4"))
    world.settle()
    assert world.node_of("waits") == ""
    world.add(pod("card", cpu="2", limits={GPU: "1"}))
    world.settle()
    assert (world.node_of("card"), world.node_of("waits")) == ("n1", "n1")


def test_a_pod_may_have_a_strategy_of_its_own() -> None:
    world = World(conf({}))
    world.add(node("n1", cpu="10"), node("n2", cpu="10"), pod("first", cpu="1"))
    world.settle()
    kept = {"volcano.sh/resource-strategy-scoring-type": "MostAllocated"}
    weight = "volcano.sh/resource-strategy-weight"
    for i in range(3):
        world.add(pod(f"packs{i}", cpu="1", annotations={**kept, weight: '{"cpu": 1}'}))
        world.settle()
    assert {world.node_of(f"packs{i}") for i in range(3)} == {world.node_of("first")}
    for text in ("", "{", "[1]", '{"cpu": "x"}'):
        world.add(pod("spreads", cpu="1", annotations={**kept, weight: text}))
        world.settle()
        assert world.node_of("spreads") != world.node_of("first"), "what cannot be read is not there"
        world.delete_pod("spreads")


@pytest.mark.parametrize("arguments", [
    {"resources": "cpu"}, {"resources": {"cpu": 3}}, {"sra": True}, {"proportional": {"enable": True, "resourceProportion": 1}},
    {"sra": {"enable": "perhaps"}}, {"resources": {"a*b": {}}},
])  # fmt: skip
def test_arguments_of_another_form_are_remarked_and_left_out(arguments: dict[str, Any]) -> None:
    world = World(conf(arguments))
    said = world.engine.configure(world.engine.conf)
    assert any(NAME in remark for remark in said)
    world.add(node("n1"), pod("a", cpu="1"))
    world.settle()
    assert world.node_of("a") == "n1"
