"""The plugin sla: who has waited for longer than its limit goes first and keeps what it can take (Volcano
pkg/scheduler/plugins/sla)."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.scheduler_confs import conf

from pumice.scheduler.engine import Engine
from pumice.wire.quantity import parse_duration
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.times import seconds

CREATED = seconds("2026-01-01T00:00:00Z")
CONF = conf(["sla%s"], ["gang", "overcommit", "predicates"])


def limited(name: str, minimum: int, limit: str = "", key: str = "sla-waiting-time", **more: Any) -> dict[str, Any]:
    made = group(name, minimum=minimum, **more)
    if limit:
        made["metadata"]["annotations"] = {key: limit}
    return made


def crowded(limit: str, usual: str = "", key: str = "sla-waiting-time") -> World:
    """Four places, all taken by small pods, and a gang of three that came later."""
    world = World(CONF % usual)
    world.now = CREATED
    world.add(node("n1", cpu="4"), *(pod(f"small-{i}", cpu="1") for i in range(4)))
    world.settle()
    world.add(limited("g", 3, limit, key), *(pod(f"g-{i}", cpu="1", group="g") for i in range(3)))
    world.settle()
    return world


def one_goes_and_one_comes(world: World, number: int) -> None:
    """The steady stream of small pods under which a gang never finds three places at once."""
    world.delete_pod(f"small-{number}")
    world.add(pod(f"small-{number + 4}", cpu="1"))
    world.settle()


@pytest.mark.parametrize(("limit", "usual", "key"), [
    ("10m", "", "sla-waiting-time"), ("10m", "", "volcano.sh/sla-waiting-time"),
    ("", "\n    arguments: {sla-waiting-time: 10m}", ""),
])  # fmt: skip
def test_small_pods_pass_a_gang_until_it_has_waited_long_enough(limit: str, usual: str, key: str) -> None:
    world = crowded(limit, usual, key)
    for number in range(4):
        one_goes_and_one_comes(world, number)
    assert [world.node_of(f"small-{i}") for i in (4, 5, 6, 7)] == ["n1"] * 4
    world.now = CREATED + 601
    for number in range(4, 7):
        one_goes_and_one_comes(world, number)
    assert [world.node_of(f"g-{i}") for i in range(3)] == ["n1"] * 3
    assert [world.node_of(f"small-{i}") for i in (8, 9, 10)] == [""] * 3


def test_without_a_limit_they_pass_it_for_ever() -> None:
    world = crowded("")
    world.now = CREATED + 10**6
    for number in range(8):
        one_goes_and_one_comes(world, number)
    assert [world.node_of(f"g-{i}") for i in range(3)] == [""] * 3


def test_a_gang_that_keeps_places_while_it_waits_holds_nothing_in_the_books_and_frees_them_when_it_goes() -> None:
    world = crowded("10m")
    world.now = CREATED + 601
    for number in range(2):
        one_goes_and_one_comes(world, number)
    assert len(world.engine.state.ledger.placements) == 2
    for i in range(3):
        world.delete_pod(f"g-{i}")
    world.settle()
    assert [world.node_of(f"small-{i}") for i in (4, 5)] == ["n1", "n1"]


def test_the_earlier_limit_goes_first_and_those_without_one_last() -> None:
    world = World(CONF % "")
    world.now = CREATED
    world.add(node("n1", cpu="1"), pod("holder", cpu="1"))
    world.settle()
    for name, limit in (("none", ""), ("late", "2h"), ("soon", "1h")):
        world.add(limited(name, 1, limit), pod(name, cpu="1", group=name))
    world.settle()
    order = []
    for _ in range(3):
        world.delete_pod(order[-1] if order else "holder")
        world.settle()
        order.append(next(name for name in ("none", "late", "soon") if f"default/{name}" in world.pods and world.node_of(name)))
    assert order == ["soon", "late", "none"]


def test_a_job_that_may_not_be_promised_anything_is_enqueued_when_its_limit_has_passed() -> None:
    world = World(CONF % "")
    world.now = CREATED
    world.add(node("n1", cpu="2"), limited("g", 1, "1m", resources={"cpu": "9"}))
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Pending"
    world.now = CREATED + 120
    world.settle()
    assert world.groups["default/g"]["status"]["phase"] == "Inqueue"


def test_a_job_that_waits_in_a_quiet_cluster_is_looked_at_when_its_limit_passes() -> None:
    world = World(CONF % "")
    world.now = CREATED
    world.add(node("n1", cpu="2"), limited("g", 1, "3s", resources={"cpu": "9"}), pod("a", cpu="1", group="g"))
    world.settle(1)
    assert world.groups["default/g"]["status"]["phase"] == "Pending"
    assert world.engine.next_wake() == CREATED + 3
    world.settle(4)
    assert world.node_of("a") == "n1"


def test_a_gang_keeps_places_from_the_moment_its_limit_passes_and_not_from_the_next_release() -> None:
    world = crowded("40s")
    world.delete_pod("small-0")
    world.settle(1)
    assert world.engine.next_wake() == CREATED + 40
    world.now = CREATED + 40
    world.cycle()
    assert len(world.engine.state.scheduling_queue.reserved) == 1


@pytest.mark.parametrize("text", ["", "soon", "-5m", "0s", "10"])
def test_a_limit_that_is_none_is_ignored_and_said(text: str) -> None:
    world = crowded(text)
    world.now = CREATED + 10**6
    one_goes_and_one_comes(world, 0)
    assert world.node_of("small-4") == "n1"
    remarks = Engine().configure(parse_scheduler_conf(CONF % f'\n    arguments: {{sla-waiting-time: "{text}"}}'))
    assert any("sla-waiting-time" in remark for remark in remarks) == bool(text)


@pytest.mark.parametrize(("text", "found"), [("1h2m3s", 3723.0), ("500ms", 0.5), ("1.5h", 5400.0), ("2us", 2e-6)])
def test_gos_durations(text: str, found: float) -> None:
    assert parse_duration(text) == pytest.approx(found)
