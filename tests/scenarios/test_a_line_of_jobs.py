"""Many jobs wait and a cycle has time for a few: the line of the others is kept, and it is always the right one."""

from __future__ import annotations

from itertools import count

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod, priority_class, queue
from kit.scheduler_confs import conf

from pumice.effects.vocabulary import Bind
from pumice.scheduler.plugins.priority import Priority
from pumice.wire.scheduler_conf import parse_scheduler_conf


def hasty(world: World) -> list[str]:
    """A cycle that has time for one job. Who was bound."""
    plan = world.engine.cycle(world.now, world.rng, budget=0.0, at_least=1)
    world.now += 0.05
    for effect in plan.effects:
        world.perform(effect)
    return [effect.name for effect in plan.effects if isinstance(effect, Bind)]


def waiting(*names: str, **shape: str) -> list[dict[str, object]]:
    return [obj for name in names for obj in (group(name, minimum=1, **shape), pod(name, cpu="1", group=name))]


def test_who_comes_later_and_is_more_important_passes_those_that_stand_in_the_line() -> None:
    world = World()
    world.add(node("n1", cpu="100"), priority_class("high", 9), *waiting("a", "b", "c"))
    assert hasty(world) == ["a"]
    world.add(*waiting("z", priority_class="high"))
    assert [hasty(world) for _ in range(3)] == [["z"], ["b"], ["c"]]


def test_a_priority_class_that_changes_moves_those_that_stand_in_the_line() -> None:
    world = World()
    world.add(node("n1", cpu="100"), priority_class("low", -1), priority_class("mine", 1))
    world.add(*waiting("a", "b", "c"), *waiting("d", priority_class="mine"), *waiting("e", priority_class="low"))
    assert hasty(world) == ["d"]
    world.add(priority_class("low", 5))
    assert [hasty(world) for _ in range(2)] == [["e"], ["a"]]


def test_a_job_that_holds_something_stands_where_its_share_of_the_cluster_puts_it_in_each_cycle() -> None:
    """drf: who holds less comes first; what a job holds weighs less once the cluster has grown."""
    world = World()
    world.add(node("n1", cpu="8"), group("g", minimum=1), *(pod(f"g-x-{i}", cpu="1", group="g") for i in range(2)))
    world.add(*waiting("a", "b"))
    order = [hasty(world) for _ in range(4)]
    assert sorted(order[:3]) == [["a"], ["b"], ["g-x-0"]]
    assert order[3] == ["g-x-1"], "it holds something already"


def test_a_queue_that_goes_away_holds_those_that_stand_in_its_line() -> None:
    world = World()
    world.add(node("n1", cpu="100"), queue("mine"), *waiting("a", "b", "c", queue="mine"))
    assert hasty(world) == ["a"]
    world.remove("Queue", "mine")
    assert [hasty(world) for _ in range(2)] == [[], []]
    assert "does not exist" in world.condition("b")["message"]


def test_a_cycle_asks_for_the_places_of_those_alone_that_are_new_or_were_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []
    key = Priority.job_order_key
    monkeypatch.setattr(Priority, "job_order_key", lambda self, job: (requested.append(job.name), key(self, job))[1])
    world = World()
    world.add(node("n1", cpu="100"), *waiting(*(f"j{i:02d}" for i in range(50))))
    for _ in range(20):
        assert len(hasty(world)) == 1
    assert len(requested) < 2 * 50 + 20 * 4


def test_a_pod_that_requests_nothing_and_for_which_there_was_no_time_goes_in_the_next_cycle() -> None:
    """It was told that its queue has all that it deserves, which is none of its business, and waited for a minute."""
    world = World()
    world.add(node("n1"), pod("a"), pod("b"))
    assert hasty(world) == ["a"]
    world.cycle()
    assert (world.node_of("b"), world.pods["default/b"]["status"].get("conditions")) == ("n1", None)


def test_a_queue_that_all_have_left_lines_up_the_next_by_another_configuration() -> None:
    world = World(conf("gang", "priority"))
    world.add(node("n1", cpu="100"), *waiting("a"))
    world.settle(1)
    world.delete_pod("a")
    world.remove("PodGroup", "default/a")
    world.engine.configure(parse_scheduler_conf(conf("drf", "priority", "gang")))
    world.add(*waiting("b", "c"))
    world.settle(1)
    assert [world.node_of(name) for name in "bc"] == ["n1", "n1"]


def test_a_cycle_ends_after_twice_its_time_however_few_jobs_it_has_tried() -> None:
    world = World()
    world.add(node("n1", cpu="100"), *waiting(*(f"j{at:02}" for at in range(40))))
    ticks = count(step=3)
    plan = world.engine.cycle(world.now, world.rng, budget=40.0, tick=ticks.__next__)
    bound = [effect.name for effect in plan.effects if isinstance(effect, Bind)]
    assert 1 <= len(bound) < 32
    assert plan.more
