"""A pod may wait for its queue behind a gate, out of a cluster autoscaler's sight, until the queue has room for it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf

from pumice.effects.vocabulary import OpenGate
from pumice.wire.names import QUEUE_GATE
from pumice.wire.scheduler_conf import parse_scheduler_conf

CAPACITY = conf(["priority", "gang"], ["predicates", "capacity"])
ASKS = {QUEUE_GATE: "true"}


def gated(name: str, *others: str, cpu: str = "1", **more: Any) -> dict[str, Any]:
    gates = [{"name": gate} for gate in (QUEUE_GATE, *others)]
    return pod(name, cpu=cpu, queue="q", annotations=ASKS, schedulingGates=gates, **more)


def gates_of(world: World, name: str) -> list[str]:
    return [gate["name"] for gate in world.pods[f"default/{name}"]["spec"]["schedulingGates"]]


def small_queue(conf: str = CAPACITY) -> World:
    world = World(conf)
    world.add(node("n1", cpu="8"), queue("q", capability={"cpu": "1"}))
    return world


PROPORTION = CAPACITY.replace("capacity", "proportion")


@pytest.mark.parametrize("conf", [CAPACITY, PROPORTION], ids=["capacity", "proportion"])
def test_the_gate_opens_when_the_queue_has_room_and_then_the_pod_is_placed(conf: str) -> None:
    world = small_queue(conf)
    world.add(gated("first"), gated("second"))
    world.settle()
    assert (world.node_of("first"), gates_of(world, "first")) == ("n1", [])
    assert gates_of(world, "second") == [QUEUE_GATE]
    assert not world.pods["default/second"]["status"].get("conditions"), "nobody says that nodes are missing"
    world.delete_pod("first")
    world.settle()
    assert (world.node_of("second"), gates_of(world, "second")) == ("n1", [])


def test_who_was_let_in_and_fits_nowhere_says_so_and_keeps_its_part_of_the_queue() -> None:
    world = small_queue()
    world.add(gated("lost", nodeSelector={"zone": "nowhere"}))
    world.settle()
    assert gates_of(world, "lost") == []
    assert world.condition("lost")["reason"] == "Unschedulable"
    world.add(gated("next"), pod("plain", cpu="1", queue="q"))
    world.settle(70)
    assert gates_of(world, "next") == [QUEUE_GATE]
    assert world.node_of("plain") == "", "nor does one pass that has no gate"
    assert "with what it keeps for pods that it let in" in world.condition("plain")["message"]
    world.delete_pod("lost")
    world.settle()
    assert world.node_of("next") == "n1"


def test_a_gate_of_somebody_else_comes_first() -> None:
    world = small_queue()
    world.add(gated("held", "example.com/other"))
    world.settle(70)
    assert gates_of(world, "held") == [QUEUE_GATE, "example.com/other"]
    obj = world.pods["default/held"]
    obj["spec"]["schedulingGates"] = [{"name": QUEUE_GATE}]
    world.add(obj)
    world.settle()
    assert world.node_of("held") == "n1"


def test_the_gate_stays_on_who_does_not_ask_for_it_to_be_opened() -> None:
    world = small_queue()
    world.add(pod("held", cpu="1", queue="q", schedulingGates=[{"name": QUEUE_GATE}]))
    world.settle(70)
    assert gates_of(world, "held") == [QUEUE_GATE]


def test_of_a_gang_for_which_its_queue_has_no_room_nobody_is_let_in() -> None:
    world = small_queue()
    world.add(group("g", minimum=2, queue="q"), *(gated(f"g-{i}", group="g") for i in range(2)), gated("single"))
    world.settle()
    assert [gates_of(world, f"g-{i}") for i in range(2)] == [[QUEUE_GATE]] * 2
    assert world.node_of("single") == "n1"
    world.delete_pod("single")
    world.add(queue("q", capability={"cpu": "2"}))
    world.settle()
    assert [world.node_of(f"g-{i}") for i in range(2)] == ["n1", "n1"]


def test_what_waits_behind_the_gate_counts_as_asked_for() -> None:
    world = World(CAPACITY)
    world.add(node("n1", cpu="8"), queue("q", capability={"cpu": "3"}), pod("runs", cpu="1", queue="q"))
    world.settle()
    world.add(group("a", minimum=1, queue="q", resources={"cpu": "1"}), gated("a-0", cpu="3", group="a"))
    world.settle(1)
    world.add(group("b", minimum=1, queue="q", resources={"cpu": "3"}), pod("b-0", cpu="3", group="b"))
    world.settle(1)
    assert [world.groups[f"default/{name}"]["status"]["phase"] for name in "ab"] == ["Inqueue", "Pending"]


def test_a_gate_that_could_not_be_taken_off_is_tried_again_and_keeps_nothing_meanwhile() -> None:
    world = small_queue()
    tries: list[str] = []

    def refuse(effect: OpenGate) -> None:
        tries.append(effect.name)
        world.engine.state.pods.gate_stays(effect.uid, world.now)

    world._open_gate = refuse  # type: ignore[method-assign]
    world.add(gated("a"))
    world.settle(5)
    assert tries == ["a"]
    world.add(pod("plain", cpu="1", queue="q"))
    world.settle(5)
    assert world.node_of("plain") == "n1"
    del world._open_gate  # type: ignore[method-assign]
    world.delete_pod("plain")
    world.settle(20)
    assert world.node_of("a") == "n1"


def test_another_configuration_forgets_nobody_who_was_let_in() -> None:
    world = small_queue()
    world.add(gated("lost", nodeSelector={"zone": "nowhere"}))
    world.settle()
    world.engine.configure(parse_scheduler_conf(PROPORTION))
    world.add(pod("plain", cpu="1", queue="q"))
    world.settle()
    assert world.node_of("plain") == ""


@pytest.mark.parametrize("seed", range(20))
def test_what_a_queue_keeps_is_what_those_ask_for_that_it_let_in_and_that_wait(seed: int) -> None:
    rng, world, seen = Random(seed), World(CAPACITY), False
    world.add(*(node(f"n{i}", cpu="2") for i in range(2)), *(queue(name, capability={"cpu": "3"}) for name in "qr"))
    for step in range(40):
        match rng.randrange(5):
            case 0 | 1:
                where = rng.choice(({}, {}, {"nodeSelector": {"no": "where"}}))
                world.add(gated(f"p{step}", cpu=rng.choice("12"), **where))
            case 2:
                minimum = rng.choice((1, 2))
                members = (gated(f"g{step}-{i}", group=f"g{step}") for i in range(minimum))
                world.add(group(f"g{step}", minimum=minimum, queue="q"), *members)
            case 3 if world.pods:
                world.remove("Pod", rng.choice(sorted(world.pods)))
            case _ if world.groups:
                moved = world.groups[rng.choice(sorted(world.groups))]
                moved["spec"]["queue"] = rng.choice("qr")
                world.add(moved)
        world.settle(rng.choice((0, 1)))
        for each in world.engine.state.queues.values():
            kept: dict[str, int] = {}
            for job in each.jobs:
                for task in job.pending.values():
                    for name, value in task.cls.amounts.items() if task.let_in else ():
                        kept[name] = kept.get(name, 0) + value
            assert {name: value for name, value in each.let_in.items() if value} == kept
            seen = seen or bool(kept)
    assert seen
