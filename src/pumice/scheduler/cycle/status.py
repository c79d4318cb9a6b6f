"""The end of a cycle: phases, conditions, messages and events, from the values that decided (Volcano
pkg/scheduler/framework/job_updater.go)."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.effects.vocabulary import (
    Event,
    Evict,
    GroupStatus,
    HyperNodeStatus,
    PodCondition,
    QueueAllocated,
    SchedulerEffect,
)
from pumice.scheduler.cycle import sharding
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.state.jobs import DONE_STATUSES, SCHEDULED_STATUSES, Job, Status
from pumice.scheduler.state.resources import render
from pumice.scheduler.state.tasks import by_nodes
from pumice.scheduler.state.waiting import Waiting, never, pod_word
from pumice.wire.times import stamp
from pumice.wire.topology import TOPOLOGY_API
from pumice.wire.volcano import COMPLETED, INQUEUE, PENDING, RUNNING, UNKNOWN, PodGroup, PodGroupCondition

REFUSED_BY_NODE = "its node could not give it the devices that it was placed on"


def close(cycle: Cycle) -> list[SchedulerEffect]:
    """Effects for every job that changed or was tried in this cycle."""
    effects: list[SchedulerEffect] = []
    queues: set[str] = set(cycle.state.scheduling_queue.recounted)
    for job in cycle.looked_at():
        if not job.known:
            continue
        job.recount()
        queues.add(job.queue.name)
        if not sharding.speaks_for(cycle, job):
            continue
        waiting, learnt = Waiting(job), cycle.attempt(job).learnt
        # Where no pod waits, the counts say it all.
        known = (learnt or not job.pending) and not any(task.unexplained for task in job.pending.values())
        if learnt:
            _never(cycle, job)
        if job in cycle.gangs:
            _gang(cycle, job, cycle.gangs[job], waiting, known)
        if learnt:
            effects.extend(_tasks(cycle, job, waiting))
        effects.extend(_group(cycle, job, waiting, known))
    effects.extend(_queues(cycle, queues))
    effects.extend(_hyper_nodes(cycle))
    effects.extend(_refused(cycle))
    return effects


def _refused(cycle: Cycle) -> Iterator[SchedulerEffect]:
    """Pods that are in the way of their successors (Huawei ascend-device-plugin): told to go once."""
    if cycle.state.settings.delete_refused:
        refused = cycle.state.pods.refused
        for task in refused.values():
            if cycle.state.shards.mine and task.node not in cycle.state.shards.ours:
                continue
            yield Evict(task.uid, task.namespace, task.name, REFUSED_BY_NODE)
        refused.clear()


def phase_of(job: Job, cycle_uuid: str) -> str:
    """The PodGroup's phase (Volcano pkg/scheduler/framework/job_updater.go). A gang whose Bindings were broken off before it ever
    stood is not Unknown: the next leader knows it by its phase, and completes it or gives it up (``Engine.half_bound``)."""
    unschedulable = job.conditions.get("Unschedulable")
    short_now = (
        unschedulable is not None
        and unschedulable.status == "True"
        and unschedulable.transition_id == cycle_uuid
    )
    if job.counts[Status.RUNNING] and short_now and job.stood:
        return UNKNOWN
    releasing = sum(1 for t in job.tasks.values() if t.status is Status.RELEASING and t.node) if (
        job.counts[Status.RELEASING]
    ) else 0
    scheduled = job.count(*SCHEDULED_STATUSES) + releasing
    if scheduled >= job.min_available:
        return COMPLETED if scheduled == job.count(*DONE_STATUSES) else RUNNING
    return INQUEUE if job.phase == INQUEUE else PENDING


def _gang(cycle: Cycle, job: Job, lacks: int | None, waiting: Waiting, known: bool) -> None:
    """Write whether the gang stands as conditions of its PodGroup: one per type, replaced in place."""
    if lacks is None:
        said = ("Scheduled", "tasks in gang are ready to be scheduled", "")
    elif known:
        cycle.measures.unready.append(job.key)
        text = f"{lacks}/{len(job.tasks)} tasks in gang unschedulable: {waiting.text}"
        said = ("Unschedulable", "NotEnoughResources", text)
    else:
        return
    type_, reason, message = said
    found = PodGroupCondition(type_, "True", reason, message, stamp(cycle.wall), cycle.uuid)
    job.conditions = {**job.conditions, type_: found}


def _tasks(cycle: Cycle, job: Job, waiting: Waiting) -> list[SchedulerEffect]:
    found: list[SchedulerEffect] = []
    queue = cycle.state.scheduling_queue
    for task in job.tasks.values():
        if task.gated or task.unexplained or task.status not in (Status.PENDING, Status.PIPELINED, Status.ALLOCATED):
            continue
        if task.backoff.until > cycle.now and waiting.refusal is None:
            continue  # its SchedulerError says more
        reason, message = pod_word(task), waiting.of(task).text
        if task.condition == (reason, message):
            continue
        same_kind = task.condition is not None and _words(task.condition) == _words((reason, message))
        if same_kind and task.condition_renewal == queue.renewals:
            queue.put_off(job)
            continue
        task.condition, task.condition_renewal = (reason, message), queue.renewals
        cycle.measures.refused += 1
        found.append(PodCondition(task.uid, task.namespace, task.name, reason, message))
    return found


def _never(cycle: Cycle, job: Job) -> None:
    """Whatever queue or gang say, a pod that can never run hears that first."""
    for task in job.pending.values():
        if never(task):
            task.error = by_nodes(cycle.placer.why(task.cls).text)


_NO_DIGITS = str.maketrans("", "", "0123456789")


def _words(reported: tuple[str, str]) -> tuple[str, str]:
    """A text without its numbers."""
    return reported[0], reported[1].translate(_NO_DIGITS)


def _group(cycle: Cycle, job: Job, waiting: Waiting, known: bool) -> list[SchedulerEffect]:
    """Write the status of its PodGroup; ``known``: the cycle learnt something about the job, and knows the reasons."""
    group = job.group
    if group is None or (not job.tasks and job.key in cycle.state.groups.elsewhere) or _goes_with_its_pod(job, group):
        return []
    if known or job.is_ready() or not (job.counts[Status.RUNNING] and job.phase in (RUNNING, UNKNOWN)):
        # Else it lost members, and why they cannot be replaced is still to be found.
        before, job.phase = job.phase, phase_of(job, cycle.uuid)
        if job.phase != before:
            job.queue.active.renew(job)  # it may have to be started anew
    job.whole = job.whole or job.phase in (RUNNING, COMPLETED)
    counts = (job.counts[Status.RUNNING], job.counts[Status.SUCCEEDED], job.counts[Status.FAILED])
    found: list[SchedulerEffect] = []
    old = {c.type: c for c in group.status.conditions}
    changed = (
        job.phase != group.status.phase
        or counts != (group.status.running, group.status.succeeded, group.status.failed)
        or old.keys() != job.conditions.keys()
        or any(not c.same(old[c.type]) for c in job.conditions.values())
    )
    if changed:
        conditions = tuple(job.conditions.values())
        reported = (group.status.running, group.status.succeeded, group.status.failed)
        minor = (
            job.phase == group.status.phase and old.keys() == job.conditions.keys()
            and list(map(bool, reported)) == list(map(bool, counts))  # the first that runs, and the last, are news
            and all(_wordy(c) == _wordy(old[c.type]) for c in conditions)
        )  # fmt: skip
        found.append(GroupStatus(job.namespace, job.name, job.phase, conditions, *counts, minor=minor))
        group.status.phase, group.status.conditions = job.phase, list(conditions)
        group.status.running, group.status.succeeded, group.status.failed = counts
    if job.phase in (UNKNOWN, PENDING, INQUEUE):
        if (job.pending or job.phase == UNKNOWN) and known:
            text = f"{len(job.pending)}/{len(job.tasks)} tasks in gang unschedulable: {waiting.text}"
            said, job.announced = job.announced, ("Unschedulable", text)
            if said[0] != "Unschedulable" or _spoken(said[1]) != _spoken(text):
                found.append(job.event("Warning", "Unschedulable", text))
    elif changed and job.announced[0] != "Scheduled":
        job.announced = ("Scheduled", "")
        found.append(job.event("Normal", "Scheduled", "pod group is ready"))
    return found


def _goes_with_its_pod(job: Job, group: PodGroup) -> bool:
    """Return whether the group belongs to a single pod that is gone or going: it is collected behind it, and read by nobody."""
    owned = any(owner.kind == "Pod" for owner in group.metadata.owner_references)
    return owned and all(task.status is Status.RELEASING for task in job.tasks.values())


def _spoken(text: str) -> list[str]:
    """The words of a text without its numbers, whichever of its counts comes first."""
    return sorted(word.strip() for word in text.translate(_NO_DIGITS).replace(";", ",").split(","))


def _wordy(condition: PodGroupCondition) -> tuple[str, str, list[str]]:
    """Return what a condition says but for its numbers."""
    return condition.status, condition.reason, _spoken(condition.message)


def _hyper_nodes(cycle: Cycle) -> Iterator[SchedulerEffect]:
    """Return what became of HyperNodes, where that is news."""
    for known in cycle.state.hyper_nodes.news(stamp(cycle.wall)):
        meta, status = known.metadata, known.status
        yield HyperNodeStatus(meta.name, status.node_count, tuple(status.conditions))
        if status.conditions[-1].status == "False":
            refused = status.conditions[-1].message
            yield Event("HyperNode", TOPOLOGY_API, "", meta.name, meta.uid, "Warning", "MembersRefused", refused)


def _queues(cycle: Cycle, names: set[str]) -> list[SchedulerEffect]:
    """status.allocated of the queues that changed and of their ancestors (Volcano pkg/scheduler/framework/job_updater.go)."""
    state = cycle.state
    tree = state.groups.tree
    touched = {queue.name for queue in tree.take_touched()}
    for name in names & state.queues.keys():
        touched.update(queue.name for queue in (state.queues[name], *tree.above(state.queues[name])))
    found: list[SchedulerEffect] = []
    for name in sorted(touched & state.queues.keys()):
        queue = state.queues[name]
        if not queue.present:
            continue
        total = {name: value for name, value in tree.usage(queue).items() if value}
        if total != queue.written:
            queue.written = total
            found.append(QueueAllocated(name, render(total)))
    return found
