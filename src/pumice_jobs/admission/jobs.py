"""Admission of Jobs."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from pumice.wire.batch import Job
from pumice.wire.names import DEFAULT_QUEUE, ROOT_QUEUE
from pumice.wire.objects import decode
from pumice.wire.volcano import OPEN
from pumice_jobs.admission.review import UPDATE, Answer, Json, Patch, Request, Settings, View, put
from pumice_jobs.controllers.job.defaults import MAX_RETRY, NEEDS, completed, mapping
from pumice_jobs.controllers.job.phases import minimum
from pumice_jobs.controllers.job.plugins.registry import PLUGINS
from pumice_jobs.controllers.job.validation import TWO_TIERS, both_tiers, mistakes, never_whole, too_large

HOST_NETWORK_DNS = "ClusterFirstWithHostNet"
CHANGEABLE = "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` and `PriorityClassName`"


def mutate(request: Request, view: View, settings: Settings) -> Answer:
    job = read_job(request.object)
    if isinstance(job, str):
        return Answer(job)
    spec, patch = request.object.get("spec") or {}, Patch()
    for key, value in _filled(spec, settings).items():
        if spec.get(key) != value:
            put(patch, f"/spec/{key}", value)
    return Answer(patch=patch)


def _filled(spec: Json, settings: Settings) -> Json:
    """A spec with what it leaves out."""
    tasks = [_task(task, index) for index, task in enumerate(spec.get("tasks") or ())]
    plugins = dict(spec.get("plugins") or {})
    for plugin in list(plugins):
        for needed in NEEDS.get(plugin, ()):
            plugins.setdefault(needed, [])
    least = spec.get("minAvailable") or sum(task["minAvailable"] for task in tasks)
    return {
        **spec, "minAvailable": least, "queue": spec.get("queue") or DEFAULT_QUEUE,
        "schedulerName": spec.get("schedulerName") or settings.scheduler_name, "maxRetry": spec.get("maxRetry") or MAX_RETRY,
        **({"tasks": tasks} if tasks else {}), **({"plugins": plugins} if plugins else {}),
    }  # fmt: skip


def _task(task: Json, index: int) -> Json:
    found = copy.deepcopy(task)
    found["name"] = found.get("name") or f"default{index}"
    found["maxRetry"] = found.get("maxRetry") or MAX_RETRY
    pod = mapping(mapping(found.get("template")).get("spec"))
    if pod.get("hostNetwork") and not pod.get("dnsPolicy"):
        pod["dnsPolicy"] = HOST_NETWORK_DNS
    if found.get("minAvailable") is None:
        parts = found.get("partitionPolicy") or {}
        least = (parts.get("minPartitions") or 0) * (parts.get("partitionSize") or 0)
        found["minAvailable"] = least or found.get("replicas") or 0
    return found


def validate(request: Request, view: View, settings: Settings) -> Answer:
    job = read_job(request.object)
    if isinstance(job, str):
        return Answer(job)
    if request.operation == UPDATE:
        return Answer(_changed(request, job, settings))
    whole = completed(job)
    hint = never_whole(whole)
    problems = mistakes(whole, PLUGINS, queue_problem(whole.spec.queue, view))
    return Answer(problems, warnings=(hint,) if hint and not problems else ())


def queue_problem(name: str, view: View) -> str:
    """Return why no Job may go to the queue; empty where it may."""
    queue = view.queue(name)
    if queue is None:
        return f' unable to find job queue: queue.scheduling.volcano.sh "{name}" not found;'
    state = state_of(queue)
    if state != OPEN:
        return f" can only submit job to queue with state `Open`, queue `{name}` status is `{state}`;"
    if name == ROOT_QUEUE:
        return " can not submit job to root queue;"
    children = [other for other in view.queues() if (other.get("spec") or {}).get("parent") == name]
    if children:
        return f" can only submit job to leaf queue, queue `{name}` has {len(children)} child queues;"
    return ""


def state_of(queue: Any) -> str:
    """A queue whose state nobody has written yet is open."""
    return str((queue.get("status") or {}).get("state") or OPEN)


def _changed(request: Request, job: Job, settings: Settings) -> str:
    for task in job.spec.tasks:
        if task.replicas < 0:
            return f"'replicas' must be >= 0 in task: {task.name}"
        if task.min_available is not None and task.min_available < 0:
            return f"'minAvailable' must be >= 0 in task: {task.name}"
        if minimum(task) > task.replicas:
            return f"'minAvailable' must be <= 'replicas' in task: {task.name}"
    if found := too_large(job):
        return found
    if job.spec.min_available > sum(task.replicas for task in job.spec.tasks):
        return "job 'minAvailable' must not be greater than total replicas"
    if job.spec.min_available < 0:
        return "job 'minAvailable' must be >= 0"
    if both_tiers(job.spec.network_topology):
        return TWO_TIERS
    old, new = (request.old.get("spec") or {}), (request.object.get("spec") or {})
    if len(old.get("tasks") or ()) != len(new.get("tasks") or ()):
        return "job updates may not add or remove tasks"
    return "" if _fixed(old, settings) == _fixed(new, settings) else CHANGEABLE


def _fixed(spec: Json, settings: Settings) -> Json:
    """A spec without what may change, and without the claim names that the controller fills in. Whoever applies a file again that
    leaves things out takes back what was filled in, and means no change by it."""
    filled = copy.deepcopy(_filled(spec, settings))
    left = {key: value for key, value in filled.items() if key not in ("minAvailable", "priorityClassName")}
    for task in left.get("tasks") or ():
        task.pop("replicas", None)
        task.pop("minAvailable", None)
    for volume in left.get("volumes") or ():
        if volume.get("volumeClaim") is not None:
            volume.pop("volumeClaimName", None)
    return left


def read_job(value: Json) -> Job | str:
    """The Job, or why it is none."""
    try:
        return decode(Job, msgspec.json.encode({key: value[key] for key in ("metadata", "spec") if key in value}))
    except (msgspec.ValidationError, TypeError) as error:
        return f"no Job: {error}"
