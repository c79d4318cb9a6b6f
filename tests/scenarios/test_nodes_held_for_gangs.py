"""A gang that waits is not passed for ever where nodes are held for it (``pumice.gangReservation``)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, priority_class, queue
from kit.scheduler_confs import conf, sharing

from pumice.metrics.scheduler import SchedulerMetrics
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.workloads import explain_group
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.times import stamp

Json = dict[str, Any]
MINUTES = 60.0


def placement(held: str = "true") -> str:
    return conf(["priority", {"gang": {"pumice.gangReservation": f'"{held}"'}}], ["predicates", "proportion", sharing("VGPU")])


def gang(size: int = 2, *, cards: int = 2, name: str = "big", priority: str = "", **spec: Any) -> list[Json]:
    made = group(name, minimum=size, priority_class=priority, **spec)
    return [made, *(pod(f"{name}-w-{i}", group=name, cards=cards, mib=8000) for i in range(size))]


class Busy:
    """Nodes full of pods of one card each."""

    def __init__(self, configuration: str, *, nodes: int = 2) -> None:
        self.world = World(configuration)
        self.serial = 0
        self.world.add(*[node(f"n{i}", cards=2, mib=8000) for i in range(nodes)])
        for _ in range(2 * nodes):
            self.come()

    def add(self, *objects: Json) -> None:
        """As made now."""
        for obj in objects:
            obj["metadata"]["creationTimestamp"] = stamp(self.world.now)
        self.world.add(*objects)
        self.world.settle(1)

    def come(self) -> str:
        """A small pod."""
        self.serial += 1
        name = f"s{self.serial}"
        self.add(pod(name, mib=8000))
        if self.world.node_of(name):
            self.world.set_phase(name, "Running")
        return name

    def running(self) -> list[str]:
        for obj in list(self.world.pods.values()):
            if obj["spec"].get("nodeName") and obj["status"].get("phase") == "Pending":
                self.world.set_phase(obj["metadata"]["name"], "Running")
        return sorted(o["metadata"]["name"] for o in self.world.pods.values() if o["status"].get("phase") == "Running")

    def turn(self) -> None:
        """A new small pod comes, and the one that has run for longest ends."""
        self.come()
        small = [name for name in self.running() if name.startswith("s")]
        if small:
            self.world.delete_pod(min(small, key=lambda name: int(name[1:])))
        self.world.settle(9)

    def one_ends(self, nodes: Container[str]) -> None:
        self.world.delete_pod(next(name for name in self.running() if self.world.node_of(name) in nodes))
        self.world.settle(2)

    @property
    def held(self) -> frozenset[str]:
        return frozenset(node for found in self.world.engine.state.reservations.held.values() for node in found.nodes)

    def stands(self, size: int = 2, name: str = "big") -> bool:
        return all(self.world.node_of(f"{name}-w-{i}") for i in range(size))

    def reserved(self, name: str = "big") -> Json:
        conditions = self.world.groups[f"default/{name}"]["status"]["conditions"]
        return next((found for found in conditions if found["type"] == "Reserved"), {})

    def reported(self, reason: str) -> list[str]:
        return [event.message for event in self.world.events if event.reason == reason]


def test_small_pods_pass_a_gang_for_ever_unless_nodes_are_held_for_it() -> None:
    for held, stands in (("false", False), ("true", True)):
        busy = Busy(placement(held))
        busy.add(*gang())
        for _ in range(8):
            busy.turn()
        assert busy.stands() is stands


def test_whoever_comes_after_the_gang_waits_and_is_told_for_whom() -> None:
    busy = Busy(placement())
    busy.add(*gang())
    busy.turn()
    late = busy.come()
    assert not busy.world.node_of(late)
    assert busy.world.condition(late)["message"] == "0/2 nodes are unavailable: 2 node(s) held for gang default/big."
    assert busy.reserved()["message"] == "Nothing of lower rank is placed on n0, n1"
    assert busy.reported("NodesHeld") == ["for at most 600 s nothing of lower rank is placed on 2 nodes: n0, n1"]


def test_once_the_gang_has_its_places_what_is_left_of_the_nodes_is_everybodys() -> None:
    busy = Busy(placement(), nodes=3)
    busy.add(*gang(cards=1, size=3))
    for _ in range(3):
        busy.turn()
    assert busy.stands(3)
    assert busy.reserved()["reason"] == "Placed"
    assert busy.reported("NodesGivenBack") == ["its nodes are held no longer: its pods have places"]
    assert not busy.held


def test_no_more_nodes_are_held_than_the_gang_needs() -> None:
    busy = Busy(placement(), nodes=5)
    busy.add(*gang(size=2))
    busy.world.settle(1)
    (found,) = busy.world.engine.state.reservations.held.values()
    assert len(found.nodes) == 2


def test_when_its_time_is_over_the_nodes_are_open_for_as_long_again() -> None:
    busy = Busy(placement("2m"))
    world = busy.world
    busy.add(*gang())
    late = busy.come()
    busy.one_ends(busy.held)  # one card is free, the gang needs four
    world.settle(60)
    assert not world.node_of(late)
    world.settle(65)
    assert world.node_of(late), "the gang has had its two minutes"
    assert busy.reserved()["reason"] == "TimeOver"
    for _ in range(10):
        busy.turn()
        assert not busy.held, "everybody's for two minutes"
    world.settle(30)
    busy.turn()
    assert busy.held, "then it is its turn again"


@pytest.mark.parametrize("end", ["gang", "pods", "node", "queue"])
def test_a_reservation_ends_with_what_it_is_for(end: str) -> None:
    busy = Busy(placement(), nodes=4)
    world = busy.world
    world.add(queue("q"))
    busy.add(*gang(queue="q" if end == "queue" else "default"))
    late, held = busy.come(), busy.held
    assert held == {"n0", "n1"}
    busy.one_ends({"n0"})
    assert not world.node_of(late)
    match end:
        case "gang":
            world.remove("PodGroup", "default/big")
        case "pods":
            world.delete_pod("big-w-0")
        case "node":
            busy.one_ends({"n1"})
            busy.one_ends({"n1"})
            world.remove("Node", "n1")
        case "queue":
            world.add(queue("q", state="Closed"))
    world.settle(2)
    assert not busy.held & held
    assert world.node_of(late) == "n0"


def test_more_important_pods_and_older_ones_of_its_queue_are_not_held_up() -> None:
    world = World(placement())
    world.add(priority_class("high", 100), node("n0", cards=2, mib=8000))
    world.add(pod("first", mib=8000, cards=2))
    world.settle(1)
    old = pod("old", mib=8000, cards=2)
    old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    world.add(old)
    world.settle(1)
    world.add(*gang(2, cards=1))
    world.settle(1)
    assert world.engine.state.reservations.held
    world.add(pod("high", mib=8000, cards=2, priority=100))
    world.delete_pod("first")
    world.settle(2)
    assert world.node_of("high") == "n0"
    assert not world.node_of("old")
    world.delete_pod("high")
    world.settle(2)
    assert world.node_of("old") == "n0"


def test_an_older_job_that_has_what_it_needs_does_not_pass_with_more_pods() -> None:
    """As a Deployment's: its PodGroup is older than the gang, and its pods come anew for ever."""
    busy = Busy(placement(), nodes=0)
    busy.add(node("n0", cards=2, mib=8000), group("web", minimum=1))
    for i in range(2):
        busy.add(pod(f"web-{i}", group="web", mib=8000))
    busy.running()
    busy.world.settle(30)
    busy.add(*gang(2, cards=1))
    assert busy.held == {"n0"}
    for i in range(2):
        busy.add(pod(f"web-{i + 2}", group="web", mib=8000))
        busy.world.delete_pod(f"web-{i}")
        busy.world.settle(3)
    assert busy.stands()


def test_nodes_are_held_while_the_gang_stands_on_pods_that_are_still_leaving() -> None:
    busy = Busy(placement(), nodes=1)
    world = busy.world
    busy.add(*gang(2, cards=1))
    late = busy.come()
    world.terminate("s1")
    world.settle(2)
    world.terminate("s2")
    world.settle(2)
    assert busy.held == {"n0"}
    world.delete_pod("s1")
    world.settle(2)
    assert not world.node_of(late)
    world.delete_pod("s2")
    world.settle(2)
    assert busy.stands()


def test_a_gang_that_its_queue_may_not_have_is_held_nothing() -> None:
    busy = Busy(placement())
    busy.world.add(queue("small", capability={"volcano.sh/vgpu-number": "1"}))
    busy.add(*gang(queue="small"))
    busy.world.settle(5)
    assert not busy.held


def test_a_gang_that_no_emptied_nodes_would_take_is_held_nothing() -> None:
    busy = Busy(placement())
    busy.add(*gang(3))
    busy.world.settle(5)
    assert not busy.held


def test_a_restarted_scheduler_holds_the_same_nodes_for_the_time_that_is_left() -> None:
    busy = Busy(placement("2m"), nodes=3)
    world = busy.world
    busy.add(*gang())
    (before,) = world.engine.state.reservations.held.values()
    world.settle(60)
    world.engine = world.restarted()
    late = busy.come()
    busy.one_ends(before.nodes)
    (after,) = world.engine.state.reservations.held.values()
    assert (after.nodes, after.until) == (before.nodes, pytest.approx(before.until, abs=1.0))
    assert not world.node_of(late)
    world.settle(60)
    assert world.node_of(late)
    world.engine = world.restarted()
    world.settle(10)
    assert not busy.held, "its time was over before the restart"


def test_turned_off_everything_is_given_back() -> None:
    busy = Busy(placement())
    world = busy.world
    busy.add(*gang())
    late = busy.come()
    busy.one_ends(busy.held)
    world.engine.configure(parse_scheduler_conf(placement("false")))
    world.settle(2)
    assert world.node_of(late)
    assert busy.reserved()["status"] == "False"


@pytest.mark.parametrize("written", ["soon", "-5m", "10"])
def test_what_is_no_time_is_told_and_holds_nothing(written: str) -> None:
    engine = Engine()
    (remark,) = engine.configure(parse_scheduler_conf(placement(written)))
    assert remark.startswith("plugin gang: pumice.gangReservation: ")
    assert remark.endswith("no nodes are held")


def test_explain_and_metrics_name_the_nodes() -> None:
    busy = Busy(placement())
    busy.add(*gang())
    page = SchedulerMetrics(busy.world.engine).page().decode()
    assert 'pumice_nodes_held_for_gangs{podgroup="default/big",queue_name="default"} 2' in page
    found = explain_group(busy.world.restarted(), "default", "big", busy.world.now)
    assert found.held == ("n0", "n1")
    assert found.held_for == pytest.approx(600, abs=2)
