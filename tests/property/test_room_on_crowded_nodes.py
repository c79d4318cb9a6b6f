"""On nodes of any number of pods room is found where there is some, by pods that may go together, and nobody goes in vain."""

from __future__ import annotations

import os
from random import Random

import pytest
from kit.device_world import fingerprint
from tests.property.crowded_worlds import Crowd, crowd, falls, fits_without, may_go

from pumice.scheduler.cycle.preemption.evaluator import Evaluator, prices
from pumice.scheduler.cycle.statement import Evict

CLUSTERS = int(os.environ.get("PUMICE_ROOM_CROWDS", "40"))


@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_room_that_there_is_on_a_crowded_node_is_found_and_nobody_goes_in_vain(seed: int) -> None:
    found = crowd(Random(f"crowd {seed}"))
    cycle, task = found.cycle, found.claimant
    if cycle.placer.choose(task.cls) is not None:
        return
    before, nodes = fingerprint(cycle.state.ledger), list(cycle.state.ledger.table.row_of)
    admitted = found.scope.admits(task)
    some = admitted and any(fits_without(found, where, may_go(found, where, unguarded=False)) for where in nodes)
    for_nothing = admitted and any(fits_without(found, where, may_go(found, where, unguarded=True)) for where in nodes)
    assert task.job is not None
    trial = Evaluator(cycle, found.scope).for_job(task.job, [task])
    gone = [step.task for step in trial.statement.steps if isinstance(step, Evict)]
    trial.statement.rollback()
    assert fingerprint(cycle.state.ledger) == before
    assert gone or not some
    if gone:
        _is_legal_and_minimal(found, gone, [unit for unit, _ in trial.units])
        broken = prices(cycle).cost(unit for unit, _ in trial.units).violations
        assert not (broken and for_nothing), "no budget need be broken"


def _is_legal_and_minimal(found: Crowd, gone: list, units: list) -> None:  # type: ignore[type-arg]
    where = next(iter(units[0].here)).node
    assert not found.scope.spared(found.claimant, [pod for unit in units for pod in unit.pods])
    assert fits_without(found, where, gone)
    for unit in units:
        if unit.whole or not any(falls(pod, gone) for pod in unit.pods):
            fewer = [pod for pod in gone if pod not in unit.pods]
            assert not fewer or not fits_without(found, where, fewer), f"{[pod.name for pod in unit.pods]} need not go"
