"""The series of queues under plugin capacity: deserved, what a queue may have, and in a tree what all below it hold."""

from __future__ import annotations

import pytest
from kit.engine_world import World
from kit.room_worlds import GPU, capacity, cluster, departments, gpus
from prometheus_client.parser import text_string_to_metric_families

from pumice.metrics.scheduler import queue_families
from pumice.metrics.text import render


def series(world: World) -> dict[tuple[str, str], float]:
    """Cards and shares, by name and queue."""
    return {
        (sample.name.removeprefix("volcano_queue_").removesuffix("_scalar_resources"), sample.labels["queue_name"]): sample.value
        for found in text_string_to_metric_families(render(queue_families(world.engine)))
        for sample in found.samples if sample.labels.get("resource", GPU) == GPU
    }  # fmt: skip


@pytest.mark.parametrize(("tree", "above"), [(True, 5000), (False, None)])
def test_in_a_tree_a_department_shows_what_its_teams_hold_and_want(tree: bool, above: int | None) -> None:
    world = cluster(*departments(capability={GPU: "6"}), *(gpus(f"a{i}", "a") for i in range(5)), conf=capacity(tree=tree))
    world.add(gpus("b0", "b", 4))
    world.settle()
    found = series(world)
    assert (found["allocated", "a"], found["deserved", "a"]) == (5000, 2000)
    assert (found["share", "a"], found["overused", "a"], found["overused", "b"]) == (2.5, 1, 0)
    assert found.get(("allocated", "x")) == above
    assert found.get(("request", "x")) == (9000 if tree else None)
    assert (found["capacity", "x"], found["real_capacity", "x"]) == (6000, 6000)
    assert found["deserved", "x"] == 4000
