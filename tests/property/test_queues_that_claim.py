"""Queues that borrow and claim back, at random: claims come to rest, and nobody is over its limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.engine_world import World
from kit.objects import node, pod, queue
from kit.room_worlds import GPU, capacity
from kit.scheduler_confs import conf

from pumice.effects.vocabulary import Evict
from pumice.scheduler.plugins.shares import deserved_part
from pumice.scheduler.state.jobs import QueueState

Json = dict[str, Any]
ACTIONS = "enqueue, allocate, backfill, reclaim"
CONFS = {
    "proportion": conf("priority", "conformance", "proportion", "predicates", actions=ACTIONS),
    "capacity": capacity("priority", "conformance", tree=False, actions=ACTIONS),
    "tree": capacity("priority", "conformance", actions=ACTIONS),
}
NAMES = "abcd"
QUEUES = st.fixed_dictionaries({
    name: st.fixed_dictionaries({
        "parent": st.sampled_from(["", "x", "y"]), "weight": st.integers(1, 3), "deserved": st.integers(0, 6),
        "cpu": st.integers(0, 8), "guarantee": st.integers(0, 2), "capability": st.sampled_from([0, 0, 5]),
    }) for name in "xyabcd"
})  # fmt: skip
STEPS = st.lists(
    st.tuples(st.sampled_from(["come"] * 6 + ["end", "move"]), st.sampled_from(NAMES), st.integers(1, 3), st.integers(0, 1)),
    min_size=4, max_size=14,
)  # fmt: skip


def made(name: str, says: Json) -> Json:
    amounts = {key: {GPU: str(says[key])} for key in ("deserved", "guarantee", "capability") if says[key]}
    if says["cpu"] and "deserved" in amounts:
        amounts["deserved"]["cpu"] = str(says["cpu"])
    return queue(name, parent=says["parent"] if name in NAMES else "", weight=says["weight"], **amounts)


class Story:
    """A world in which whoever is evicted is made anew under another name, as a controller would."""

    def __init__(self, kind: str, says: Json) -> None:
        self.world, self.says, self.kind = World(CONFS[kind]), says, kind
        self.pods, self.evicted = 0, 0
        self.world.add(queue("root"), node("n1", cpu="8", extra={GPU: "5"}), node("n2", cpu="8", extra={GPU: "3"}))
        self.world.add(*(made(name, said) for name, said in says.items()))

    def come(self, at: str, gpus: int, cpu: int) -> None:
        self.pods += 1
        limits = {GPU: str(gpus)} if gpus < 3 or not cpu else {}
        self.world.add(pod(f"{at}{self.pods}", queue=at, cpu=str(cpu), limits=limits))

    def end(self, at: str) -> None:
        gone = next((obj for obj in self.world.pods.values() if obj["metadata"]["name"][0] == at), None)
        if gone is not None:
            self.world.delete_pod(gone["metadata"]["name"])

    def _run(self) -> None:
        """Pods that have a node run: only those are claimed."""
        for obj in list(self.world.pods.values()):
            if obj["spec"].get("nodeName") and obj["status"].get("phase") == "Pending":
                self.world.set_phase(obj["metadata"]["name"], "Running")

    def rest(self) -> int:
        """Play until nobody is evicted any more; how many were."""
        found = 0
        for _ in range(60):
            before = dict(self.world.pods)
            self.world.settle(0.5)
            self._run()
            self.world.settle(0.5)
            lost = [obj for key, obj in before.items() if key not in self.world.pods]
            if not lost:
                return found
            found += len(lost)
            for obj in lost:
                self.pods += 1
                again = pod(f"{obj['metadata']['name'][0]}{self.pods}", queue=obj["metadata"]["name"][0])
                again["spec"]["containers"] = obj["spec"]["containers"]
                self.world.add(again)
        raise AssertionError(f"after {found} evictions queues still claim from each other")


@pytest.mark.parametrize("kind", CONFS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(says=QUEUES, steps=STEPS)
def test_claims_come_to_rest_whatever_the_queues_say(kind: str, says: Json, steps: list[tuple[str, str, int, int]]) -> None:
    story = Story(kind, says)
    for step, at, gpus, cpu in steps:
        if step == "come":
            story.come(at, gpus, cpu)
        elif step == "end":
            story.end(at)
        else:
            says[at] = {**says[at], "parent": "xy"[gpus % 2], "deserved": gpus}
            story.world.add(made(at, says[at]))
        story.rest()
    if all(step != "move" for step, *_ in steps):  # a limit that becomes smaller evicts nobody
        _limits_hold(story.world, kind)


def _limits_hold(world: World, kind: str) -> None:
    state = world.engine.state
    for each in state.queues.values():
        usage, most = state.groups.tree.usage(each).get(GPU, 0), each.capability.get(GPU)
        assert most is None or usage <= most, (each.name, usage, most)
    everything = sum(q.allocated.get(GPU, 0) for q in state.queues.values())
    unmet = sum(_unmet(q) for q in state.queues.values() if q.name in NAMES)
    if kind == "capacity":
        assert everything + unmet <= max(8000, _guaranteed(state.queues.values()))


def _unmet(queue: QueueState) -> int:
    return max(0, queue.guarantee.get(GPU, 0) - queue.allocated.get(GPU, 0))


def _guaranteed(queues: Any) -> int:
    return sum(max(q.guarantee.get(GPU, 0), q.allocated.get(GPU, 0)) for q in queues)


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "a/x", "a/y"]), st.integers(0, 5)),
       st.dictionaries(st.sampled_from(["cpu", "memory", "a/x", "a/y"]), st.integers(1, 5), min_size=1))
def test_who_names_nothing_of_what_a_pod_takes_is_entitled_to_nothing_of_it(
    deserved: dict[str, int], amounts: dict[str, int]
) -> None:
    found = deserved_part(deserved, amounts)
    assert found.keys() <= amounts.keys()
    assert all(value == deserved.get(name, 0) for name, value in found.items())
    if deserved.keys().isdisjoint(amounts):
        assert found == dict.fromkeys(amounts, 0)


def test_the_story_sees_evictions() -> None:
    """The witness: without the shares two queues would take from each other for ever, and the story would say so."""
    says = {name: {"parent": "", "weight": 1, "deserved": 4, "cpu": 0, "guarantee": 0, "capability": 0} for name in "xyabcd"}
    story = Story("tree", says)
    for at in "aaaaaaaa":
        story.come(at, 1, 0)
    assert story.rest() == 0
    for at in "bbbbb":
        story.come(at, 1, 0)
    assert story.rest() == 4
    assert sum(isinstance(effect, Evict) for effect in story.world.effects) == 0
