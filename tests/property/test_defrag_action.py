"""The action defrag on random small clusters: who is moved may be, one at a time, and has a place again, and who waits starts."""

from __future__ import annotations

import copy
from collections import Counter
from random import Random
from typing import Any

import pytest
from kit.engine_world import MovingWorld
from kit.objects import pod
from kit.seeds import chosen_seed
from tests.property.test_defragmenting import case_of, fragmented, may_be_moved, shape

from pumice.cli.cluster_snapshot import engine_of
from pumice.effects.vocabulary import Evict
from pumice.scheduler.cycle.defragmenting.asking import Limits
from pumice.scheduler.explaining.moves import ForPod
from pumice.simulation.moving import planned

Json = dict[str, Any]
SEED = chosen_seed()
MOST = 3
WORDS = f"configurations:\n- name: defrag\n  arguments: {{pumice.interval: 5s, pumice.min-age: 5s, pumice.max-moves: {MOST}}}\n"
INTERVAL = 5.0


class Watched(MovingWorld):
    """Looks at each eviction."""

    def __init__(self, conf: str, seed: int) -> None:
        super().__init__(WORDS + conf.replace("allocate, backfill", "allocate, backfill, defrag"), seed=seed)
        self.times: list[float] = []

    def _evict(self, effect: Evict) -> None:
        old = self.pods.get(f"{effect.namespace}/{effect.name}")
        assert effect.gently
        assert old is not None
        assert old["status"]["phase"] == "Running"
        assert may_be_moved(self, old), effect
        assert not self.times or self.now >= self.times[-1] + INTERVAL
        self.times.append(self.now)
        super()._evict(effect)


def with_the_action(seed: int) -> tuple[Watched, str] | None:
    """A fragmented cluster with a pod that fits nowhere, under a scheduler that may move pods; None where every pod fits."""
    found = fragmented(seed)
    if found is None:
        return None
    (late,) = (key for key in found.pods if "/late" in key)
    world = Watched(found.conf, seed)
    world.add(*(copy.deepcopy(one) for table in (found.nodes, found.groups, found.budgets, found.pods) for one in table.values()))
    return world, late


def check(seed: int) -> str:
    """Return what came of it, beside what the command would plan."""
    made = with_the_action(seed)
    if made is None:
        return "all fit"
    world, late = made
    case = case_of(world)
    answer = planned(lambda: engine_of(case), case.objects, case.now, ForPod(*late.split("/")), Limits(moves=MOST, min_age=5.0))
    steps = "no plan" if not answer.moves else "a swap" if any(move.waits for move in answer.moves) else "a plan"
    world.settle(60)
    assert world.nothing_held, seed
    assert not world.told("MovesStopped"), (seed, world.told("MovesStopped"))
    lost = [key for key, one in world.pods.items() if not one["spec"].get("nodeName") and key != late]
    assert not lost, (seed, lost)
    starts = bool(world.pods[late]["spec"].get("nodeName"))
    assert starts or not world.evictions, seed
    assert steps != "no plan" or not starts, seed
    assert len(world.evictions) <= MOST, seed
    return f"{steps}, {'moved' if starts else 'nobody was moved'}"


def disturbed(seed: int) -> None:
    """The same while pods come, go and say no, evictions are refused, and the scheduler is killed."""
    made = with_the_action(seed)
    if made is None:
        return
    (world, _), rng = made, Random(seed)
    mig = any(",mig:" in str(one["metadata"]["annotations"]) for one in world.nodes.values())
    world.stays = lambda evict: rng.random() < 0.3
    for step in range(12):
        match rng.choice(("come", "go", "no", "kill", "stop", "start", "wait")):
            case "come":
                more = {"annotations": {}} | shape(rng, mig)
                world.add(pod(f"x{step}", owner=rng.choice(("", f"x{step}")), **more))
            case "go" if world.pods:
                world.delete_pod(rng.choice(sorted(world.pods)).partition("/")[2])
            case "no" if world.pods:
                one = world.pods[rng.choice(sorted(world.pods))]
                one["metadata"]["annotations"]["pumice.io/move"] = "false"
                world.add(one)
            case "kill":
                world.engine = world.restarted()
                for one in world.budgets.values():
                    world.report(one)
            case "stop" | "start" as word:
                world.controller = word == "start"
                world.live()
        world.settle(rng.choice((0.25, 1, 3, 8)))
    world.controller, world.stays = True, lambda evict: False
    world.live()
    for one in world.pods.values():
        one["metadata"]["annotations"]["pumice.io/move"] = "false"
        world.add(one)
    world.settle(330)
    assert world.nothing_held, seed


@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_whoever_is_moved_may_be_and_has_a_place_again_and_the_promised_pod_starts(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_whatever_befalls_a_plan_no_rule_is_broken_and_nothing_stays_held(seed: int) -> None:
    disturbed(seed)


@pytest.mark.soak
def test_the_same_on_a_thousand_clusters() -> None:
    found = Counter(check(seed) for seed in range(1000))
    assert found["a plan, moved"] > 4 * found["a plan, nobody was moved"], found
    for seed in range(1000):
        disturbed(seed)
