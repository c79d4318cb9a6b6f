"""The room that is made is the cheapest there is, nobody goes who is not needed, and a trial leaves no trace."""

from __future__ import annotations

import os
from random import Random

import pytest
from kit.device_world import fingerprint
from kit.objects import hyper_node
from kit.room_worlds import Everything, claimants, random_world, running_cycle

from pumice.scheduler.cycle.preemption.evaluator import Evaluator, prices
from pumice.scheduler.cycle.preemption.victims import between_jobs
from pumice.scheduler.cycle.statement import Evict, Nomination, Place
from pumice.scheduler.state.tasks import Status

CLUSTERS = int(os.environ.get("PUMICE_ROOM_CLUSTERS", "50"))
PART = 25


def parts() -> list[range]:
    return [range(begin, min(begin + PART, CLUSTERS)) for begin in range(0, CLUSTERS, PART)]


@pytest.mark.parametrize("seeds", parts(), ids=lambda seeds: str(seeds.start))
def test_the_cheapest_room_is_what_trying_everything_finds(seeds: range) -> None:
    assert sum(map(_is_the_cheapest, seeds)), "some of these clusters have room to be made"


@pytest.mark.soak
def test_the_cheapest_room_is_what_trying_everything_finds_on_ten_thousand_clusters() -> None:
    assert sum(map(_is_the_cheapest, range(CLUSTERS, 10_000))) > 1000


def _is_the_cheapest(seed: int) -> bool:
    """Return whether room is to be made in that cluster, and can be."""
    rng = Random(seed)
    world = random_world(rng)
    world.add(*claimants(rng))
    cycle = running_cycle(world)
    task = next(task for task in cycle.state.tasks.values() if task.name == "claimant")
    if task.job is None or cycle.placer.choose(task.cls) is not None:
        return False
    before = fingerprint(cycle.state.ledger)
    best = min(Everything(world, cycle, task).answers(), default=None)
    evaluator = Evaluator(cycle, between_jobs(cycle.framework))
    trial = evaluator.for_job(task.job, [task])
    units = [unit for unit, _ in trial.units]
    trial.statement.rollback()
    mine = tuple(prices(cycle).cost(units)) if units else None
    assert mine == best, f"seed {seed}: {[u.pods[0].name for u in units]}"
    assert fingerprint(cycle.state.ledger) == before, f"seed {seed}"
    return bool(units)


@pytest.mark.parametrize("seeds", parts(), ids=lambda seeds: str(seeds.start))
def test_nobody_goes_for_a_gang_who_could_stay(seeds: range) -> None:
    for seed in seeds:
        _nobody_goes_in_vain(seed)


@pytest.mark.soak
def test_nobody_goes_for_a_gang_who_could_stay_on_ten_thousand_clusters() -> None:
    assert sum(map(_nobody_goes_in_vain, range(CLUSTERS, 10_000))) > 1000


@pytest.mark.parametrize("seeds", parts(), ids=lambda seeds: str(seeds.start))
def test_nobody_goes_for_a_gang_behind_one_switch_who_could_stay(seeds: range) -> None:
    for seed in seeds:
        _nobody_goes_in_vain(seed, bound=True)


def _nobody_goes_in_vain(seed: int, *, bound: bool = False) -> bool:
    """Return whether room was made for the gang of that cluster; where it is ``bound``, behind one switch."""
    rng = Random(f"gang {seed}")
    world = random_world(rng)
    made, *members = claimants(rng, gang=True)
    if bound:
        made["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
        world.add(hyper_node("s0", 1, "n0", "n1"), hyper_node("s1", 1, "n2"))
    world.add(made, *members)
    cycle = running_cycle(world)
    job = cycle.state.jobs["default/claimant"]
    evaluator = Evaluator(cycle, between_jobs(cycle.framework))
    trial = evaluator.for_job(job, sorted(job.pending.values(), key=cycle.framework.task_order_key))
    if not cycle.framework.job_pipelined(job) or not trial.units:
        return False
    steps = list(trial.statement.steps)
    assert (trial.within is not None) is bound
    assert not bound or {step.choice.row for step in steps if isinstance(step, Place | Nomination)} <= {*trial.within}
    trial.statement.rollback()
    falling = {unit.job for unit, _ in trial.units if unit.whole}
    for unit, _ in trial.units:
        if not unit.whole and unit.job in falling:
            continue  # nobody of a gang that falls stays behind
        cycle.placer.reconsider(task.cls for task in job.tasks.values())
        fewer = cycle.statement()
        for step in steps:
            if isinstance(step, Evict) and step.task not in unit.pods:
                fewer.evict(step.task, "trial")
        for task in sorted(job.pending.values(), key=cycle.framework.task_order_key):
            among = cycle.among(task, trial.within)
            if (choice := cycle.placer.choose(task.cls, among=among)) is not None:
                fewer.place(task, choice)
            elif (future := cycle.placer.choose_future(task.cls, among=among)) is not None:
                fewer.nominate(task, future)
        assert not cycle.framework.job_pipelined(job), f"seed {seed}: {sorted(p.name for p in unit.pods)} need not go"
        fewer.rollback()
    return True


@pytest.mark.parametrize("seeds", parts(), ids=lambda seeds: str(seeds.start))
def test_refused_evictions_leave_the_books_as_they_were(seeds: range) -> None:
    for seed in seeds:
        rng = Random(f"refused {seed}")
        world = random_world(rng)
        before = fingerprint(world.engine.state.ledger)
        world.stays = lambda evict: True
        world.add(*claimants(rng, gang=rng.random() < 0.5))
        world.evictions.clear()
        world.cycle()
        if world.evictions:
            assert not world.engine.state.nominations.kept
            world.settle(6)
            assert fingerprint(world.engine.state.ledger) == before, f"seed {seed}"
            assert not any(task.status is Status.RELEASING for task in world.engine.state.tasks.values())


def test_a_promise_never_binds_before_its_victims_are_gone() -> None:
    for seed in range(PART):
        rng = Random(f"grace {seed}")
        world = random_world(rng)
        world.grace = True
        world.add(*claimants(rng, gang=rng.random() < 0.5))
        for _ in range(12):
            world.settle(1)
            going = [effect.name for effect in world.evictions if f"default/{effect.name}" in world.pods]
            if not going:
                break
            nominated = {found.task.name: set(found.awaits) for found in world.engine.state.nominations.kept.values()}
            bound = {bind.name for bind in world.bindings}
            assert not (bound & nominated.keys())
            world.delete_pod(rng.choice(going))
        assert not world.engine.state.ledger.pipelined, f"seed {seed}"

