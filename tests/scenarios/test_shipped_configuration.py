"""The configurations that are shipped, as whoever takes one of them up and adds to it finds them."""

from __future__ import annotations

import pytest
from kit.engine_world import World
from kit.manifests import manifest
from kit.objects import node, pod, priority_class
from kit.room_worlds import full, gang, gone

from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice_lab.first_objects import SCHEDULER_CONF


def of_the_manifests() -> str:
    (found,) = [o for o in manifest("volcano.yml") if o["metadata"]["name"] == "volcano-scheduler-configmap"]
    return str(found["data"]["volcano-scheduler.conf"])


SHIPPED = {"pumice up": SCHEDULER_CONF, "manifests and chart": of_the_manifests()}
pytestmark = pytest.mark.parametrize("conf", SHIPPED.values(), ids=list(SHIPPED))


def with_preempt(conf: str) -> World:
    assert "allocate, backfill" in conf
    return World(conf.replace("allocate, backfill", "allocate, preempt, backfill"))


def test_gang_and_drf_vote_on_preemption_no_more_than_in_volcanos_chart(conf: str) -> None:
    plugins = [plugin for tier in parse_scheduler_conf(conf).tiers for plugin in tier]
    assert {plugin.name for plugin in plugins if not plugin.enabled("Preemptable")} == {"gang", "drf"}


def test_who_adds_preempt_to_the_actions_has_single_pods_go_for_more_important_ones(conf: str) -> None:
    world = full(with_preempt(conf), node("n1", cards=2, mib=8000), *(pod(f"low{i}", mib=8000, priority=1) for i in range(2)))
    world.add(pod("high", mib=8000, priority=10))
    world.settle(3)
    assert len(gone(world)) == 1
    assert world.node_of("high") == "n1"


def test_a_gang_goes_whole_or_keeps_its_minimum(conf: str) -> None:
    world = with_preempt(conf)
    world.add(priority_class("high", 100))
    full(world, node("n1", cards=3, mib=8000), *gang("b", 3, minimum=2))
    world.add(pod("one", mib=8000, priority=100))
    world.settle(3)
    assert len(gone(world)) == 1, "it has one to spare"
    world.add(pod("two", mib=8000, priority=100))
    world.settle(3)
    assert len(gone(world)) == 3, "one more would leave less than its minimum: all of it goes"
