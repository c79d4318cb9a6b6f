"""Plugin tdm: nodes of a revocable zone take pods that may be revoked, in the zone's hours, and give them up afterwards."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod

from pumice.wire.cron import Window, parse_window

Json = dict[str, Any]
MAY_GO = {"volcano.sh/revocable-zone": "*"}
START = 1_000_000.0
"""When a world begins."""


def hours(begin: float, end: float) -> str:
    """A window from so many hours after the world's beginning to so many."""
    def at(hour: float) -> str:
        return time.strftime("%H:%M", time.localtime(START + hour * 3600))

    return f"{at(begin)}-{at(end)}"


def world_of(window: str, *objects: Json, period: str = "1m") -> World:
    world = World(
        'actions: "enqueue, allocate, shuffle, backfill"\ntiers:\n- plugins:\n  - name: tdm\n    arguments:\n'
        f'      tdm.revocable-zone.night: "{window}"\n      tdm.evict.period: {period}\n  - name: gang\n  - name: predicates\n'
    )
    world.add(node("lent", labels={"volcano.sh/revocable-zone": "night"}), node("own"), *objects)
    world.settle()
    return world


def later(world: World, seconds: float) -> None:
    """Nothing happens until then but what time does."""
    end = world.now + seconds
    while (due := world.engine.next_wake()) is not None and due <= end:
        world.now = max(world.now, due)
        world.settle(1.0)
    world.now = end
    world.settle(1.0)


def run(world: World) -> None:
    for obj in list(world.pods.values()):
        if obj["spec"].get("nodeName"):
            world.set_phase(obj["metadata"]["name"], "Running")
    world.settle()


def test_in_its_hours_a_lent_node_takes_those_that_may_be_revoked_and_they_prefer_it() -> None:
    world = world_of(hours(-1, 1), pod("stays", cpu="1"), *(pod(f"goes{i}", cpu="1", annotations=MAY_GO) for i in range(3)))
    assert world.node_of("stays") == "own"
    assert {world.node_of(f"goes{i}") for i in range(3)} == {"lent"}


def test_a_pod_that_may_be_evicted_may_be_revoked_unless_it_names_a_zone() -> None:
    world = world_of(
        hours(-1, 1), pod("a", cpu="1", annotations={"volcano.sh/preemptable": "true"}),
        pod("b", cpu="1", annotations={"volcano.sh/preemptable": "true", "volcano.sh/revocable-zone": "night"}),
    )  # fmt: skip
    assert (world.node_of("a"), world.node_of("b")) == ("lent", "own")


def test_outside_its_hours_it_takes_nobody_and_who_waits_goes_when_they_begin() -> None:
    world = world_of(hours(1, 3), pod("goes", cpu="1", annotations=MAY_GO, nodeSelector={"volcano.sh/revocable-zone": "night"}))
    assert world.node_of("goes") == ""
    assert "1 node(s) of a revocable zone outside its hours" in world.condition("goes")["message"]
    later(world, 1800)
    assert world.node_of("goes") == ""
    later(world, 2000)
    assert world.node_of("goes") == "lent"


def test_a_pod_that_may_not_be_revoked_is_told_so() -> None:
    world = world_of(hours(-1, 1), pod("a", cpu="1", nodeSelector={"volcano.sh/revocable-zone": "night"}))
    assert "1 node(s) of a revocable zone, and the pod may not be revoked" in world.condition("a")["message"]


def test_when_the_hours_are_over_the_pods_go_one_of_a_job_in_each_period() -> None:
    gang = [group("g", minimum=1), *(pod(f"g{i}", cpu="1", group="g", annotations=MAY_GO) for i in range(3))]
    world = world_of(hours(-1, 1), *gang)
    run(world)
    assert {world.node_of(f"g{i}") for i in range(3)} == {"lent"}
    later(world, 3570)  # windows are told in whole minutes, and a world begins 40 s into one
    assert len(world.pods) == 2
    later(world, 40)
    assert len(world.pods) == 2
    later(world, 120)
    assert len(world.pods) == 0


@pytest.mark.parametrize(("budget", "left"), [
    ({"volcano.sh/jdb-min-available": "3"}, 3), ({"volcano.sh/jdb-min-available": "50%"}, 2),
    ({"volcano.sh/jdb-max-unavailable": "3"}, 1), ({"volcano.sh/jdb-max-unavailable": "25%"}, 3),
])  # fmt: skip
def test_a_budget_of_the_job_says_how_many_go_at_a_time(budget: dict[str, str], left: int) -> None:
    made = group("g", minimum=1)
    made["metadata"]["annotations"] = budget
    world = world_of(hours(-1, 1), made, *(pod(f"g{i}", cpu="1", group="g", annotations=MAY_GO) for i in range(4)))
    run(world)
    later(world, 3601)
    assert len(world.pods) == left


def test_who_may_not_be_revoked_stays_when_the_hours_are_over() -> None:
    world = world_of(hours(-1, 1), pod("bound", cpu="1", nodeName="lent"))
    run(world)
    later(world, 3700)
    assert world.node_of("bound") == "lent"


WINDOWS = [
    ("10:00-21:00", 12, True), ("10:00-21:00", 21, False), ("10:00-21:00", 9.99, False), ("22:00-6:00", 23, True),
    ("22:00-6:00", 3, True), ("22:00-6:00", 6, False), ("22:00-6:00", 12, False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "hour", "holds"), WINDOWS)
def test_windows_hold_over_midnight_too(text: str, hour: float, holds: bool) -> None:
    assert parse_window(text).holds(hour * 3600) is holds


def test_the_next_switch_of_a_window_is_known() -> None:
    assert Window(10 * 3600, 21 * 3600).until_switch(20 * 3600) == 3600
    assert Window(22 * 3600, 6 * 3600).until_switch(23 * 3600) == 7 * 3600


@pytest.mark.parametrize("text", ["", "10-21", "25:00-26:00", "10:00-10:00", "10:61-11:00", "night"])
def test_a_window_that_is_none_is_said_and_the_zone_is_never_lent(text: str) -> None:
    world = world_of(text, pod("goes", cpu="1", annotations=MAY_GO))
    assert world.node_of("goes") == "own"
    plugin = next(each for each in world.engine.framework.plugins if each.name == "tdm")
    assert "the zone is never lent" in plugin.arguments.complaints[0]
