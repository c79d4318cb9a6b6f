"""A Job brought one step further: the Job as it is in, effects out.

``act`` answers an action with a new status. ``decide`` looks at what is there and says what is missing; it is asked again when
that is done, until nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from msgspec import MsgspecError
from msgspec.structs import replace

from pumice.effects.vocabulary import Create, Delete, Event, Patch, Requeue
from pumice.wire import names
from pumice.wire.batch import PENDING, RESTARTING, Job, JobPod, Task, Volume
from pumice.wire.kinds import PERSISTENT_VOLUME_CLAIMS, PODS
from pumice.wire.times import seconds, stamp
from pumice.wire.volcano import PENDING as GROUP_PENDING
from pumice.wire.volcano import POD_GROUPS, PodGroup
from pumice_jobs.controllers.job import group as groups
from pumice_jobs.controllers.job import phases
from pumice_jobs.controllers.job.defaults import template
from pumice_jobs.controllers.job.dependencies import startable
from pumice_jobs.controllers.job.effects import (
    DeleteJob,
    DropGroup,
    DropPod,
    Effect,
    Ensure,
    Require,
    WriteStatus,
    event,
)
from pumice_jobs.controllers.job.group import owner
from pumice_jobs.controllers.job.phases import FINISHED, LIVING, MOVES, RESTART_JOB, RESUME, TARGETED, Kill
from pumice_jobs.controllers.job.plugins import registry
from pumice_jobs.controllers.job.plugins.contract import Replica, add_volume, containers, pod_name
from pumice_jobs.controllers.job.requests import Request, is_target, target_of
from pumice_jobs.controllers.job.status import counted, duration, entered
from pumice_jobs.controllers.job.validation import problems, too_large

HOSTS_OF: Final = f"{names.OUR_DOMAIN}/hosts-of-generation"
"""For which generation of the Job its plugins' objects were last brought in line; nothing says: for the first."""
LAST_COMMAND: Final = f"{names.OUR_DOMAIN}/last-command"
"""Uid of the Command that was carried out last, written with what it did."""
_LIVE: Final = ("Pending", "Running", "")
BURST: Final = 500
"""Pods that are made in one go, as by Kubernetes' own controllers: a Job of any size leaves others their turn."""


@dataclass(slots=True)
class View:
    """A Job with its defaults and its status as last decided, and what belongs to it."""

    job: Job
    pods: Mapping[str, JobPod]
    """By name; those that the Job controls."""
    group: PodGroup | None
    group_spec: dict[str, Any]
    """The spec that the PodGroup should have."""
    problem: str
    """Why the Job cannot be served; empty where it can."""
    now: float
    evicted: Mapping[str, float]
    """Names of pods that are gone, and when, where an action waits for that."""


def problem_of(job: Job) -> str:
    """Return why a Job with its defaults cannot be served; its pods are made once on trial, for a template may hold anything."""
    try:
        if found := too_large(job) or registry.problem(job):
            return found
        for task in job.spec.tasks:
            body(job, task, 0, groups.group_name(job))
            groups.usage(task)
    except (MsgspecError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        return f"the template of a task cannot be read: {error}"
    return problems(job, registry.PLUGINS)


def act(view: View, action: str, request: Request) -> list[Effect]:
    """Carry an action out: the phase it leads to, or the pods that go at once while the Job restarts already."""
    job, status = view.job, view.job.status
    if request.command and status.controlled_resources.get(LAST_COMMAND) == request.command:
        return []  # a forerunner did, and died before it had deleted it
    move = MOVES.get(job.phase or PENDING, {}).get(action)
    if move is None:
        return []
    if move.kill is Kill.TARGET and job.phase == RESTARTING:
        target = target_of(action, request)
        return [DropPod(pod) for pod in view.pods.values() if not pod.terminating and is_target(pod, target)]
    if move.to == job.phase and status.state.reason == RESTART_JOB:
        return []
    reason = {Kill.ALL: RESTART_JOB, Kill.SOFT: RESUME if move.to == RESTARTING else action}.get(move.kill, action)
    after = replace(
        status, retry_count=status.retry_count + move.retried, version=status.version + (move.kill is not Kill.TARGET),
        running_duration=duration(job, view.now),
    )  # fmt: skip
    if request.command:
        after = replace(after, controlled_resources={**status.controlled_resources, LAST_COMMAND: request.command})
    acted = replace(job, status=entered(after, move.to, view.now, reason, target_of(action, request)))
    return [WriteStatus(counted(acted, view.pods.values(), lambda pod: _goes(acted, pod)), urgent=True)]


def decide(view: View) -> list[Effect]:
    """Return what is to be done next; nothing where all is as it should be."""
    job = view.job
    if job.metadata.deletion_timestamp:
        return []
    missing = list(_living(view) if job.phase in LIVING else _killed(view))
    if not all(waits_for_nothing(effect) for effect in missing):
        return missing
    return [*missing, *_counts(view), *(_expiry(view) if job.phase in FINISHED else ())]


def waits_for_nothing(effect: Effect) -> bool:
    """Return whether nothing that comes after depends on the effect."""
    return isinstance(effect, Event | Requeue) or (isinstance(effect, DropGroup) and effect.in_company) or only_counts(effect)


def only_counts(effect: Effect) -> bool:
    return isinstance(effect, WriteStatus) and effect.counts


def _counts(view: View) -> Iterator[Effect]:
    """The status with the pods' counts and the phase that follows from them."""
    job = view.job
    status = replace(counted(job, view.pods.values()), min_available=job.spec.min_available)
    phase = phases.next_phase(job, status)
    if phase != job.phase:
        yield WriteStatus(entered(status, phase, view.now), urgent=not {job.phase, phase} <= {*LIVING})
    elif status != job.status:
        yield WriteStatus(status, urgent=False, counts=True)


# -- a Job that lives -------------------------------------------------------------------------------------------------


def _living(view: View) -> Iterator[Effect]:
    job = view.job
    if view.problem:
        yield event(job, "Warning", "JobStatusError", view.problem)
        return
    if prepared := list(_preparation(job)):
        yield from prepared
        return
    if view.group is None:
        yield Create(POD_GROUPS, groups.body(job, view.group_spec))
        return
    meta = view.group.metadata
    if changed := groups.change(view.group, view.group_spec):
        yield Patch(POD_GROUPS, meta.namespace, meta.name, {"spec": changed})
    yield from _waiting(view.group, job)
    if view.group.status.phase not in ("", GROUP_PENDING) and not meta.deletion_timestamp:
        yield from _pods(view, meta.name)


def _preparation(job: Job) -> Iterator[Effect]:
    """Claims and what plugins make, as far as the status does not say that it is there; and what of it must follow the number of
    pods, once for each change of the Job."""
    if not (job.spec.plugins or job.spec.volumes):
        return
    marks = dict(job.status.controlled_resources)
    if job.phase in ("", PENDING):
        yield from _claims(job, marks)
        for name, _, _ in registry.of(job):
            if registry.mark(name) not in marks:
                marks[registry.mark(name)] = name
                yield from registry.objects(job, name)
    generation = str(job.metadata.generation)
    if job.metadata.generation > 1 and marks.get(HOSTS_OF) != generation and (follow := registry.following(job)):
        marks[HOSTS_OF] = generation
        yield from follow
    if marks != job.status.controlled_resources:
        yield WriteStatus(replace(job.status, controlled_resources=marks), urgent=False)


def _claims(job: Job, marks: dict[str, str]) -> Iterator[Effect]:
    """The volumes' that no mark speaks of, which are marked then."""
    for position, volume in enumerate(job.spec.volumes):
        name = claim_name(job, volume, position)
        if f"volume-pvc-{name}" in marks:
            continue
        marks[f"volume-pvc-{name}"] = name
        if volume.volume_claim_name:
            text = f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
            yield Require(PERSISTENT_VOLUME_CLAIMS, name, "PVCError", text)
        else:
            meta = {"name": name, "namespace": job.metadata.namespace}
            body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": volume.volume_claim}
            yield Ensure(PERSISTENT_VOLUME_CLAIMS, body)


def _waiting(group: PodGroup, job: Job) -> Iterator[Effect]:
    """The word that the scheduler has no room for it."""
    if lacks := groups.what_it_lacks(group):
        meta = job.metadata
        yield event(job, "Warning", "PodGroupPending", f"PodGroup {meta.namespace}:{meta.name} {lacks}")


def _pods(view: View, group: str) -> Iterator[Effect]:
    """Pods that are missing, so many at a time, and those that should not be."""
    job, there = view.job, 0
    numbers = {f"{job.metadata.name}-{task.name}": max(0, task.replicas) for task in job.spec.tasks}
    for name, pod in view.pods.items():
        prefix, _, number = name.rpartition("-")
        wanted = number.isdecimal() and number == str(int(number)) and int(number) < numbers.get(prefix, 0)
        there += wanted
        if (not wanted or _stale(job, pod)) and not pod.terminating:
            yield DropPod(pod)
    if there < sum(numbers.values()):
        missing = ((task, index) for task in startable(job, view.pods.values()) for index in range(task.replicas)
                   if pod_name(job, task, index) not in view.pods)  # fmt: skip
        for task, index in islice(missing, BURST):
            yield Create(PODS, _reported(body(job, task, index, group), view.evicted))


def _reported(body: dict[str, Any], evicted: Mapping[str, float]) -> dict[str, Any]:
    """A pod says of its predecessor what a controller that comes later could not know."""
    if gone := evicted.get(body["metadata"]["name"]):
        body["metadata"]["annotations"][names.PREDECESSOR_GONE] = stamp(gone)
    return body


def _stale(job: Job, pod: JobPod) -> bool:
    """Return whether an earlier controller died before it had deleted the pod."""
    notes = pod.metadata.annotations
    if names.OUT_OF_SYNC in notes:
        return True
    version = notes.get(names.JOB_VERSION, "")
    if version == str(job.status.version):
        return False
    return pod.status.phase in _LIVE and version.isdecimal() and int(version) < job.status.version


# -- a Job that ends or restarts --------------------------------------------------------------------------------------


def _killed(view: View) -> Iterator[Effect]:
    """Yield what still has to go in this phase."""
    job, status = view.job, view.job.status
    yield from (DropPod(pod) for pod in view.pods.values() if not pod.terminating and _goes(job, pod))
    if job.phase == RESTARTING and status.state.reason in TARGETED:
        return
    if view.group is not None and not view.group.metadata.deletion_timestamp:
        meta = view.group.metadata
        yield DropGroup(meta.name, meta.uid, job.phase in FINISHED and meta.labels.get(names.JOB_UID) == job.metadata.uid)
    marked = {key: name for key, name in status.controlled_resources.items() if key == registry.mark(name)}
    for name in marked.values():
        yield from (Delete(each.resource, job.metadata.namespace, each.body["metadata"]["name"])
                    for each in registry.objects(job, name))  # fmt: skip
    if marked:
        kept = {key: name for key, name in status.controlled_resources.items() if key not in marked and key != HOSTS_OF}
        yield WriteStatus(replace(status, controlled_resources=kept), urgent=False)


def _goes(job: Job, pod: JobPod) -> bool:
    status = job.status
    if job.phase == RESTARTING and status.state.reason in TARGETED:
        return is_target(pod, status.state.message) or names.OUT_OF_SYNC in pod.metadata.annotations
    last = status.retry_count >= job.spec.max_retry
    soft = job.phase != RESTARTING or status.state.reason == RESUME or last
    return not soft or pod.status.phase in _LIVE


def _expiry(view: View) -> Iterator[Effect]:
    """ttlSecondsAfterFinished."""
    job = view.job
    if job.spec.ttl_seconds_after_finished is not None:
        left = seconds(job.status.state.last_transition_time) + job.spec.ttl_seconds_after_finished - view.now
        yield Requeue(left) if left > 0 else DeleteJob()


# -- The pods of a Job as they are made ------------------------------------------------------------------------------

Json = dict[str, Any]

_PASSED_ON: Final = (names.PREEMPTABLE, names.COOLDOWN_TIME, names.REVOCABLE_ZONE)
_BUDGETS: Final = (names.JDB_MIN_AVAILABLE, names.JDB_MAX_UNAVAILABLE)
_LABELS: Final = (names.PREEMPTABLE, names.COOLDOWN_TIME)


def body(job: Job, task: Task, index: int, group: str) -> Json:
    """One pod: its task's template, what a Job says of all its pods, and what its plugins add. ``group`` names the PodGroup."""
    made = template(task)
    meta, spec = made.get("metadata") or {}, made.get("spec") or {}
    spec.setdefault("schedulerName", job.spec.scheduler_name)
    if not spec.get("priorityClassName") and job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    if spec.get("hostNetwork"):
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    pod: Json = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(job, task, index), "namespace": job.metadata.namespace, "ownerReferences": [owner(job)],
            "labels": {**(meta.get("labels") or {}), **_labels(job, task, index)},
            "annotations": {**(meta.get("annotations") or {}), **_annotations(job, task, index, group)},
        },
        "spec": spec,
    }  # fmt: skip
    if meta.get("finalizers"):
        pod["metadata"]["finalizers"] = meta["finalizers"]
    for position, volume in enumerate(job.spec.volumes):
        called = f"{job.metadata.name}-{_twelve(job, 'volume', position)}"
        claim = {"name": called, "persistentVolumeClaim": {"claimName": claim_name(job, volume, position)}}
        add_volume(pod, claim, {"name": called, "mountPath": volume.mount_path}, containers(pod))
    registry.on_pod_create(pod, Replica(job, task, index))
    return pod


def claim_name(job: Job, volume: Volume, position: int) -> str:
    """The claim of a volume: as it says, else one of its own, the same for as long as the Job lives."""
    return volume.volume_claim_name or f"{job.metadata.name}-pvc-{_twelve(job, 'claim', position)}"


def _twelve(job: Job, what: str, position: int) -> str:
    """Twelve characters that no other Job has."""
    return sha256(f"{job.metadata.uid}/{what}/{position}".encode()).hexdigest()[:12]


def _labels(job: Job, task: Task, index: int) -> dict[str, str]:
    found: dict[str, str] = {
        names.TASK_INDEX: str(index), names.TASK_SPEC: task.name, names.JOB_NAME: job.metadata.name,
        names.JOB_NAMESPACE: job.metadata.namespace, names.JOB_QUEUE: job.spec.queue,
        **{key: job.metadata.labels[key] for key in _LABELS if key in job.metadata.labels},
    }  # fmt: skip
    if task.partition_policy is not None:
        found[names.PARTITION] = str(index // max(1, task.partition_policy.partition_size))
    return found


def _annotations(job: Job, task: Task, index: int, group: str) -> dict[str, str]:
    there = job.metadata.annotations
    found: dict[str, str] = {
        names.TASK_INDEX: str(index), names.TASK_SPEC: task.name, names.GROUP_NAME: group,
        names.JOB_NAME: job.metadata.name, names.JOB_QUEUE: job.spec.queue, names.JOB_VERSION: str(job.status.version),
        names.TEMPLATE_UID: f"{job.metadata.name}-{task.name}", names.JOB_RETRIES: str(job.status.retry_count),
        **{key: there[key] for key in _PASSED_ON if key in there},
    }  # fmt: skip
    budget = next((key for key in _BUDGETS if key in there), None)
    if budget is not None:
        found[budget] = there[budget]
    if task.topology_policy:
        found[names.TOPOLOGY_POLICY] = task.topology_policy
    return found
