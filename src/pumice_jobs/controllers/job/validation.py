"""Mistakes of a Job in itself, in the admission's words.

The controller asks too: where no webhook ran, a Job that cannot be served says so and waits for its change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from pumice.wire.batch import Job, Policy, Task, Volume
from pumice_jobs.controllers.job.dependencies import has_cycle
from pumice_jobs.controllers.job.phases import ACTIONS, minimum, replicas
from pumice_jobs.controllers.job.requests import (
    ANY,
    POD_EVICTED,
    POD_FAILED,
    POD_PENDING,
    TASK_COMPLETED,
    TASK_FAILED,
    UNKNOWN_GROUP,
)
from pumice_jobs.controllers.job.template_rules import cpu_problems, name_problems, template_problems

NO_TASK: Final = "No task specified in job spec"
NO_CYCLE: Final = " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);"
TWO_TIERS: Final = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
MPI, MASTER = "mpi", "master"
MOST_PODS, MOST_TASKS = 150_000, 500
"""Pods that Kubernetes is made for (its page "Considerations for large clusters"); and tasks, each of whose pods may name all."""


def problems(job: Job, plugins: Collection[str]) -> str:
    """Return why the controller cannot serve the Job, which has its defaults; empty where it can."""
    if not job.spec.tasks:
        return NO_TASK
    return "".join(text for fatal, text in _mistakes(job, plugins, fatal_only=True) if fatal).strip()


def mistakes(job: Job, plugins: Collection[str], queue: str) -> str:
    """All that the admission finds in a Job, which has its defaults. ``queue``: what is wrong with its queue, which stands among
    the others."""
    if not job.spec.tasks:
        return NO_TASK
    if found := too_large(job):
        return found
    if MPI in job.spec.plugins and _flag(job.spec.plugins[MPI], MASTER) not in {task.name for task in job.spec.tasks}:
        return "The specified mpi master task was not found"
    return "".join(text for _, text in _mistakes(job, plugins, queue)).strip()


def _mistakes(job: Job, plugins: Collection[str], queue: str = "", *, fatal_only: bool = False) -> Iterator[tuple[bool, str]]:
    """(whether the Job cannot be served, what is wrong), in upstream's order. ``fatal_only``: without what keeps none from
    being served, which takes longest."""
    name, spec, seen = job.metadata.name, job.spec, set[str]()
    if both_tiers(spec.network_topology):
        yield False, TWO_TIERS
    for index, task in enumerate(spec.tasks):
        if minimum(task) > task.replicas:
            yield True, f" 'minAvailable' is greater than 'replicas' in task: {task.name}, job: {name};"
        if task.name in seen:
            yield True, f" duplicated task name {task.name};"
        seen.add(task.name)
        if fatal_only:
            continue
        yield False, policy_problems(task.policies, "spec.tasks.policies")
        longest = f"{name}-{task.name}-{max(0, task.replicas - 1)}"
        if found := name_problems(longest):
            yield False, f"create pod with name {longest} validate failed {found};"
        yield False, template_problems(task, index)
        yield False, "".join((*cpu_problems(task, index), *_partitions(task, name)))
    if found := name_problems(name):
        yield True, f"create job with name {name} validate failed {found}"
    if spec.min_available > replicas(job):
        yield True, " job 'minAvailable' should not be greater than total replicas in tasks;"
    yield False, policy_problems(spec.policies, "spec.policies")
    for plugin in spec.plugins:
        if plugin not in plugins:
            yield True, f" unable to find job plugin: {plugin};"
    yield True, "".join(_volumes(spec.volumes))
    yield False, queue
    if has_cycle(spec.tasks):
        yield True, NO_CYCLE


def too_large(job: Job) -> str:
    """Return the problem of a Job that is larger than any cluster; empty where it is none."""
    pods = sum(max(0, task.replicas) for task in job.spec.tasks)
    for found, most, what in ((pods, MOST_PODS, "pods"), (len(job.spec.tasks), MOST_TASKS, "tasks")):
        if found > most:
            return f"the job has {found} {what}, {most} at most are served"
    return ""


def never_whole(job: Job) -> str:
    """Return the warning for a Job whose gang waits for pods that wait for the gang; empty where it is none. Upstream says
    only that the plugin gang should be off then (docs/design/task-launch-order-within-job.md, Notice)."""
    first = sum(task.replicas for task in job.spec.tasks if task.depends_on is None or not task.depends_on.name)
    if not first < job.spec.min_available <= replicas(job):
        return ""
    return (f"spec.minAvailable is {job.spec.min_available}, but only {first} of the pods are made before others are "
            f"up (dependsOn): where the scheduler has the plugin gang, none will start; set it to {first} at most")  # fmt: skip


def both_tiers(topology: dict[str, Any] | None) -> bool:
    """Return whether a network topology names its highest tier twice."""
    return topology is not None and topology.get("highestTierAllowed") is not None and bool(topology.get("highestTierName"))


def _flag(arguments: Sequence[str], name: str) -> str:
    """A plugin's argument ``--name=value``, or its default, which is the name."""
    found = [text.partition("=")[2] for text in arguments if text.lstrip("-").startswith(f"{name}=")]
    return found[-1] if found else name


def _partitions(task: Task, job: str) -> Iterator[str]:
    parts = task.partition_policy
    if parts is None:
        return
    where = f"in task: {task.name}, job: {job}"
    if parts.total_partitions <= 0:
        yield f"'TotalPartitions' must be greater than 0 {where}"
    if parts.partition_size <= 0:
        yield f"'PartitionSize' must be greater than 0 {where}"
    if task.replicas != parts.total_partitions * parts.partition_size:
        yield f"'Replicas' are not equal to TotalPartitions*PartitionSize {where}"
    if parts.min_partitions and minimum(task) != parts.min_partitions * parts.partition_size:
        yield f"'MinAvailable' is not equal to MinPartitions*PartitionSize {where}"


def _volumes(volumes: Sequence[Volume]) -> Iterator[str]:
    paths = set[str]()
    for volume in volumes:
        if not volume.mount_path:
            yield " mountPath is required;"
        if volume.mount_path in paths:
            yield f" duplicated mountPath: {volume.mount_path};"
        paths.add(volume.mount_path)
        if not volume.volume_claim_name and volume.volume_claim is None:
            yield " either VolumeClaim or VolumeClaimName must be specified;"
        elif volume.volume_claim_name and volume.volume_claim is not None:
            yield " conflict: if you want to use an existing PVC, just specify VolumeClaimName, if you want to create a new PVC, "
            yield "you do not need to specify VolumeClaimName;"
        elif volume.volume_claim_name and (found := name_problems(volume.volume_claim_name)):
            yield f"invalid VolumeClaimName {volume.volume_claim_name} : {found};"


# -- Mistakes in a list of policies, in upstream's words --------------------------------------------------------------


JOB_UPDATED = "JobUpdated"
EVENTS: Final = (ANY, POD_FAILED, POD_EVICTED, POD_PENDING, UNKNOWN_GROUP, TASK_COMPLETED, TASK_FAILED, JOB_UPDATED)
"""Events that a user may name in a policy."""


def policy_problems(policies: Sequence[Policy], path: str) -> str:
    """Empty where there is nothing wrong; ``path`` is that of the list."""
    found = list(_problems(policies, path))
    if not found:
        return ""
    text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
    return f"{text} valid events are [{', '.join(EVENTS)}], valid actions are [{', '.join(ACTIONS)}];"


def _problems(policies: Sequence[Policy], path: str) -> Iterator[str]:
    seen, codes = set[str](), set[int]()
    for policy in policies:
        events = [*([policy.event] if policy.event else ()), *policy.events]
        if events and policy.exit_code is not None:
            yield "must not specify event and exitCode simultaneously"
            return
        if not events and policy.exit_code is None:
            yield "either event and exitCode should be specified"
            return
        for event in dict.fromkeys(events):
            if event not in EVENTS:
                yield f'{path}: Invalid value: "{event}": invalid policy event'
                return
            if event in seen:
                yield f"duplicate event {event}  across different policy"
                return
            seen.add(event)
        if policy.action not in ACTIONS:
            yield f'{path}: Invalid value: "{policy.action}": invalid policy action'
            return
        if policy.exit_code == 0:
            yield "0 is not a valid error code"
            return
        if policy.exit_code is not None:
            if policy.exit_code in codes:
                yield f"duplicate exitCode {policy.exit_code}"
                return
            codes.add(policy.exit_code)
    if ANY in seen and len(seen) > 1:
        yield f"if there's {ANY} here, no other policy should be here"
