"""Victims by plugin, and how the plugins' votes combine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.engine_world import World
from kit.objects import group, node, pod, priority_class, queue
from kit.scheduler_confs import conf

from pumice.scheduler.engine import Engine
from pumice.scheduler.framework import NOBODY_VOTES, Framework
from pumice.scheduler.plugins.contract import Plugin, Preemptable
from pumice.scheduler.state.jobs import Task
from pumice.wire.scheduler_conf import Arguments, PluginConf, parse_scheduler_conf

TIERS = conf(["priority", {"gang": {"enablePreemptable": "%s"}}], ["drf"], actions="enqueue, allocate")


def tasks_of(engine: Engine) -> dict[str, Task]:
    return {task.name: task for task in engine.state.tasks.values()}


def running(world: World, *objects: dict[str, object]) -> dict[str, Task]:
    world.add(*objects)
    world.settle(1)
    for obj in list(world.pods.values()):
        if obj["spec"].get("nodeName"):
            world.set_phase(obj["metadata"]["name"], "Running", obj["metadata"]["namespace"])
    return tasks_of(world.engine)


def spared(world: World, plugin: str, claimant: Task, victims: Sequence[Task]) -> dict[str, str]:
    """By name."""
    found = next(p for p in world.engine.framework.plugins if p.name == plugin)
    assert isinstance(found, Preemptable)
    named = {task.uid: task.name for task in victims}
    return {named[uid]: why for uid, why in (found.not_preemptable(claimant, victims) or {}).items()}


def test_a_gang_gives_away_what_it_has_beyond_its_minimum_and_nothing_else() -> None:
    world = World()
    tasks = running(
        world, node("n1"), queue("q"), group("b", minimum=2, queue="q"), *(pod(f"b-x-{i}", group="b", cpu="1") for i in range(3)),
        pod("high", cpu="1"),
    )  # fmt: skip
    members = [tasks[f"b-x-{i}"] for i in range(3)]
    text = "gang b would fall under its minimum 2"
    assert spared(world, "gang", tasks["high"], members) == {"b-x-1": text, "b-x-2": text}


def test_pods_of_the_system_and_of_equal_priority_stay() -> None:
    world = World()
    tasks = running(
        world, node("n1"), priority_class("high", 10), group("g", minimum=1, priority_class="high"),
        pod("system", namespace="kube-system", cpu="1"), pod("critical", cpu="1", priorityClassName="system-node-critical"),
        pod("usual", cpu="1"), pod("equal", cpu="1", priority=10), pod("claimant", group="g", cpu="1", priority=10),
    )  # fmt: skip
    others = [tasks[name] for name in ("system", "critical", "usual", "equal")]
    assert spared(world, "conformance", tasks["claimant"], others) == dict.fromkeys(
        ("system", "critical"), "it belongs to the system"
    )
    assert spared(world, "priority", tasks["claimant"], others) == {"equal": "its priority 10 is not lower than 10"}


def test_inside_a_job_the_pods_priorities_count() -> None:
    world = World()
    tasks = running(
        world, node("n1"), group("g", minimum=1),
        *(pod(name, group="g", cpu="1", priority=at) for name, at in (("low", 1), ("same", 5), ("claimant", 5))),
    )  # fmt: skip
    assert set(spared(world, "priority", tasks["claimant"], [tasks["low"], tasks["same"]])) == {"same"}


class Voter(Preemptable):
    """Lets go whom it names; None: it abstains."""

    def __init__(self, lets_go: set[str] | None) -> None:
        super().__init__(Arguments())
        self.lets_go = lets_go

    def not_preemptable(self, claimant: Task, victims: Sequence[Task]) -> Mapping[str, str] | None:
        if self.lets_go is None:
            return None
        return {task.uid: f"{task.name} stays" for task in victims if task.name not in self.lets_go}


def votes(a: set[str] | None, b: set[str] | None, c: set[str] | None, switch_b: str = "true") -> dict[str, str]:
    world = World()
    tasks = running(world, node("n1"), *(pod(name, cpu="1") for name in "xyz"))
    voters: dict[str, Plugin] = {"priority": Voter(a), "gang": Voter(b), "drf": Voter(c)}

    def make(entry: PluginConf) -> Plugin | None:
        return voters[entry.name]

    framework = Framework(parse_scheduler_conf(TIERS % switch_b), make)
    victims = [tasks[name] for name in "xyz"]
    found = framework.not_preemptable(tasks["x"], victims)
    return {task.name: found[task.uid] for task in victims if task.uid in found}


def test_the_first_tier_that_lets_anybody_go_decides_and_in_it_everybody_must_agree() -> None:
    assert set(votes({"x", "y"}, {"y", "z"}, {"x", "y", "z"})) == {"x", "z"}
    assert set(votes({"x"}, {"y"}, {"z"})) == {"x", "y"}, "nobody goes by the first tier: the second is asked"
    assert set(votes({"x"}, None, {"z"})) == {"y", "z"}, "who abstains spares nobody"
    assert set(votes({"x"}, {"y"}, {"z"}, switch_b="false")) == {"y", "z"}, "whose vote is switched off neither"


def test_where_nobody_votes_nobody_goes_and_where_all_refuse_the_first_says_why() -> None:
    assert votes(None, None, None) == dict.fromkeys("xyz", NOBODY_VOTES)
    assert votes(set(), None, set())["y"] == "y stays"
