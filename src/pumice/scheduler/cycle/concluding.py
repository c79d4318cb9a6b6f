"""The end of a job's statement: it is committed, kept until the cycle ends, or taken back."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pumice.claims.by_resource import ANNOTATION, ByResource, name_for
from pumice.effects import vocabulary as effects
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.statement import Evict, Nomination, Place, Statement, Step
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.known_claims import named
from pumice.scheduler.state.tasks import Status
from pumice.scheduler.state.volumes import volumes_for
from pumice.wire.names import GROUP_NAME
from pumice.wire.volcano import MADE_FOR_PODS


def conclude(cycle: Cycle, job: Job, statement: Statement) -> bool:
    """Commit what stands, keep what will stand, take back the rest. True: it is committed."""
    if not statement.steps:
        return False
    _keep_nominated(cycle, statement)
    if cycle.framework.job_ready(job):
        commit(cycle, job, statement)
        return True
    if cycle.framework.job_pipelined(job):
        keep_pipelined(cycle, job, statement)
    else:
        discard(cycle, job, statement)
    return False


def _keep_nominated(cycle: Cycle, statement: Statement) -> None:
    """Keep nominations of an earlier scheduler: a pod that waits for what leaves its nominated node keeps that place. Where no
    room is made nobody was promised anything: whoever wrote the nomination, it is a wish, and holds nothing back from others."""
    if not cycle.preempts:
        return
    kept = [step for step in statement.steps if isinstance(step, Nomination) and step.task.nominated == step.choice.node]
    for step in kept:
        _remember_step(step)
        cycle.state.nominations.keep(step.task, cycle.state.ledger.going(step.choice.node))
    if kept:
        statement.steps = [step for step in statement.steps if step not in kept]


def discard(cycle: Cycle, job: Job, statement: Statement) -> None:
    """Take everything back; each pod remembers where it would have gone. A nomination that the gang failed with is not followed
    again: without it there may be room for all."""
    attempt = cycle.attempts[job]
    attempt.discarded = True
    for step in statement.steps:
        if isinstance(step, Place) and step.task.nominated == step.choice.node:
            step.task.nominated = ""
            attempt.postponed = True
    _remember(statement)
    statement.rollback()
    cycle.placer.reconsider(task.cls for task in job.pending.values())  # those that were nominated, too


def keep_pipelined(cycle: Cycle, job: Job, statement: Statement) -> None:
    """Neither committed nor discarded: the gang would be whole once something is released."""
    _remember(statement)
    for step in statement.steps:
        if isinstance(step, Place):
            cycle.state.ledger.set_apart(step.task.uid)
    cycle.attempts[job].pipelined = True
    cycle.uncommitted.append(statement)


def commit(cycle: Cycle, job: Job, statement: Statement) -> None:
    """Hand what was placed to the binder and who was evicted to the world; what was promised stays until the cycle ends."""
    # A gang that stood once gets single members back as they come; one that never did stands or falls with each of them.
    together = sum(isinstance(step, Place) for step in statement.steps) > 1 or not job.stood
    gang = job.key if job.min_available > 1 and together else ""
    for step in statement.steps:
        if isinstance(step, Place):
            _bind(cycle, step, gang)
        elif isinstance(step, Evict):
            evict(cycle, step)
    if not job.scheduled_at:
        job.scheduled_at = cycle.wall
        cycle.measures.jobs.append(max(0.0, cycle.wall - job.created))
    cycle.state.scheduling_queue.write_status(job)
    statement.steps = [step for step in statement.steps if isinstance(step, Nomination)]
    _remember(statement)
    cycle.uncommitted.append(statement)


def _remember(statement: Statement) -> None:
    for step in statement.steps:
        _remember_step(step)


def _remember_step(step: Step) -> None:
    if isinstance(step, Place | Nomination):
        step.task.trial = (step.task.status, step.choice.node)


def _bind(cycle: Cycle, step: Place, gang: str) -> None:
    state, task, choice = cycle.state, step.task, step.choice
    assert task.job is not None
    state.ledger.assume(task.uid)
    task.job.move(task, Status.BINDING)
    task.trial = None
    annotations: dict[str, str] = {}
    if state.groups.names_groups and task.job.name.startswith(MADE_FOR_PODS):
        annotations[GROUP_NAME] = task.job.name
    lock = ""
    for allocation in choice.allocations:
        device_type = state.ledger.device_tables[allocation.device_type].device_type
        annotations.update(device_type.annotations(allocation, int(cycle.wall * 1e9)))
        lock = lock or device_type.lock
    volumes: dict[str, str] = {}
    if task.cls.constraints.claims:
        volumes = volumes_for(state.ledger, state.volumes, task.cls, choice.node)
        state.volumes.assume(volumes)
    cycle.effects.append(
        effects.Bind(task.uid, task.namespace, task.name, choice.node, annotations, choice.allocations, gang,
                     tuple(volumes.items()), cycle.uuid, lock, _device_claims(cycle, task))
    )  # fmt: skip
    cycle.measures.placed += 1
    cycle.measures.assumed.append(max(0.0, cycle.wall - task.created))


def _device_claims(cycle: Cycle, task: Task) -> tuple[effects.ReserveClaim, ...]:
    """Return what is to be written of its claims before the pod is bound."""
    claims = cycle.state.device_claims
    found = []
    for one in cycle.state.ledger.placements[task.uid].claims:
        decision, claim = claims.decisions.get(one.uid), claims.claims.get(one.key)
        allocation = decision.allocation.as_json() if decision is not None else None
        if decision is not None and claim is not None and claim.by_resource is not None:
            found.append(_new_claim(task, claim.by_resource, {one.request for one in decision.results}, one.uid, allocation))
        else:
            found.append(effects.ReserveClaim(*named(one.key), one.uid, allocation))
    return tuple(found)


def _new_claim(
    task: Task, resources: ByResource, served: Collection[str], uid: str, allocation: dict[str, Any] | None
) -> effects.ReserveClaim:
    """Return the claim for a pod's extended resources as it is made, with the requests that have devices."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": task.name, "uid": task.uid, "controller": True}
    name = name_for(task.name, task.uid)
    made = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": resources.spec(served),
        "metadata": {"name": name, "namespace": task.namespace, "annotations": {ANNOTATION: "true"}, "ownerReferences": [owner]},
    }  # fmt: skip
    mappings = tuple(one.as_json() for one in resources.mappings if one.request in served)
    return effects.ReserveClaim(task.namespace, name, uid, allocation, made, mappings)


def evict(cycle: Cycle, step: Evict, *, gently: bool = False) -> None:
    """Tell the world that a pod shall go. ``gently``: where its PodDisruptionBudgets allow it."""
    expect(cycle, step)
    task = step.task
    cycle.effects.append(effects.Evict(task.uid, task.namespace, task.name, step.reason, gently))


def expect(cycle: Cycle, step: Evict) -> None:
    """It goes from now on, whatever older events say."""
    assert step.task.job is not None
    cycle.state.terminating.expect(step.receipt, step.task, step.before.status)
    cycle.state.scheduling_queue.write_status(step.task.job)
