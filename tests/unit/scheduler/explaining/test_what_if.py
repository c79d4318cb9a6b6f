"""The charge of a pending pod to its queue."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import node, pod, queue

from pumice.scheduler.explaining.what_if import Payer
from pumice.wire.objects import Pod, convert

PERCENTAGE = "volcano.sh/vgpu-memory-percentage"


def asking(queue: Any) -> list[Any]:
    return [copy.copy(part) for part in (queue.pending, queue.aside, queue.quota_known_late)]


@pytest.mark.parametrize("gated", [False, True], ids=["waiting", "gated"])
def test_a_pod_that_stands_for_another_is_asked_for_once_and_then_as_before(gated: bool) -> None:
    """A gated pod stood aside: what it would ask for of its queue is then asked for, not taken back twice."""
    world = World()
    world.add(node("n1", cards=1, mib=8000), queue("team", capability={"volcano.sh/vgpu-memory": "10000"}))
    world.add(pod("p", cards=1, queue="team", limits={PERCENTAGE: "50"}, gated=gated))
    state = world.engine.state
    cls = state.classes.of(convert(Pod, pod("p", cards=1, queue="team", limits={PERCENTAGE: "25"})))
    task = next(iter(state.tasks.values()))
    assert cls is not task.cls
    assert task.cls.quota_known_late
    payer = Payer.of(world.engine, task.pod, 0.0)
    assert payer is not None
    before = asking(payer.queue)
    with payer.standing_for(cls):
        assert payer.queue.quota_known_late == {cls: 1}
        assert not any(payer.queue.aside.values())
    assert asking(payer.queue) == before
