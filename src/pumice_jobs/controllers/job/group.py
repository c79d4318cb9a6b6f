"""The PodGroup of a Job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from pumice.wire import names
from pumice.wire.batch import JOB_API, JOB_KIND, Job, Task
from pumice.wire.objects import Pod
from pumice.wire.volcano import PENDING, SCHEDULING_API, PodGroup
from pumice_jobs.controllers.job import defaults
from pumice_jobs.controllers.job.phases import minimum
from pumice_jobs.controllers.podgroup import as_quantities, quota_usage

Json = dict[str, Any]
Priorities = Mapping[str, int]
"""Values of the priority classes by name."""


def group_name(job: Job) -> str:
    return f"{job.metadata.name}-{job.metadata.uid}"


def owner(job: Job) -> Json:
    meta = job.metadata
    return {"apiVersion": JOB_API, "kind": JOB_KIND, "name": meta.name, "uid": meta.uid, "controller": True,
            "blockOwnerDeletion": True}  # fmt: skip


def body(job: Job, spec: Json) -> Json:
    """The group as it is made, pending."""
    meta = job.metadata
    metadata: Json = {
        "name": group_name(job), "namespace": meta.namespace, "labels": {**meta.labels, names.JOB_UID: meta.uid},
        "annotations": {key: text for key, text in meta.annotations.items() if not key.startswith("kubectl.")},
        "ownerReferences": [owner(job)],
    }  # fmt: skip
    return {
        "apiVersion": SCHEDULING_API, "kind": "PodGroup",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": spec, "status": {"phase": PENDING},
    }  # fmt: skip


def spec(job: Job, priorities: Priorities) -> Json:
    """Return the spec of the PodGroup of a Job that has its defaults."""
    found: Json = {
        "minMember": job.spec.min_available,
        "minTaskMember": {task.name: minimum(task) for task in job.spec.tasks},
        "queue": job.spec.queue,
        "minResources": min_resources(job, priorities),
    }
    if job.spec.priority_class_name:
        found["priorityClassName"] = job.spec.priority_class_name
    if job.spec.network_topology is not None:
        found["networkTopology"] = job.spec.network_topology
    if parts := [_sub_group(job, task) for task in job.spec.tasks if task.partition_policy is not None]:
        found["subGroupPolicy"] = parts
    return found


def change(group: PodGroup, wanted: Json) -> Json:
    """Return the change of the PodGroup that its Job asks for; empty where it asks for none."""
    spec = group.spec
    if (spec.min_member, spec.min_task_member, spec.min_resources or {}, spec.priority_class_name) == (
        wanted.get("minMember"), wanted.get("minTaskMember"), wanted.get("minResources"), wanted.get("priorityClassName", ""),
    ):  # fmt: skip
        return {}
    there = {
        "minMember": group.spec.min_member, "minTaskMember": group.spec.min_task_member,
        "minResources": group.spec.min_resources or {}, "priorityClassName": group.spec.priority_class_name,
    }  # fmt: skip
    changed: Json = {key: wanted.get(key, "") for key, value in there.items() if wanted.get(key, "") != value}
    for key in ("minTaskMember", "minResources"):  # a merge patch keeps what it does not name
        if key in changed:
            gone = set(there[key]) - set(wanted[key])  # type: ignore[call-overload]
            changed[key] = {**wanted[key], **dict.fromkeys(gone)}
    return changed


def what_it_lacks(group: PodGroup) -> str:
    """Return the words of the newest condition that holds of a group that is not scheduled; empty where it is, or none holds."""
    newest = next((each for each in reversed(group.status.conditions) if each.status == "True"), None)
    if newest is None or newest.type == "Scheduled":
        return ""
    return f"{newest.type.lower()}, reason: {newest.message}"


def min_resources(job: Job, priorities: Priorities) -> dict[str, str]:
    """The usage of the pods that must stand, the important ones first."""
    tasks = sorted(job.spec.tasks, key=lambda task: -priorities.get(_priority_class(job, task), 0))
    left = job.spec.min_available
    if left < sum(minimum(task) for task in tasks):
        counts = list(_first(left, [task.replicas for task in tasks]))
    else:
        least = [min(minimum(task), task.replicas) for task in tasks]
        rest = _first(left - sum(least), [task.replicas - few for task, few in zip(tasks, least, strict=True)])
        counts = [few + more for few, more in zip(least, rest, strict=True)]
    return dict(_total(tuple((bytes(task.template), count) for task, count in zip(tasks, counts, strict=True) if count)))


@lru_cache(1024)
def _total(pods: tuple[tuple[bytes, int], ...]) -> Mapping[str, str]:
    """Return the usage of so many pods of each template."""
    total: dict[str, Fraction] = {}
    for written, count in pods:
        for name, value in _usage(written).items():
            total[name] = total.get(name, Fraction(0)) + value * count
    return as_quantities(total)


def _first(count: int, of: list[int]) -> Iterator[int]:
    """Return the number of pods of each task that are taken when so many are taken in order."""
    for there in of:
        taken = max(0, min(count, there))
        count -= taken
        yield taken


def usage(task: Task) -> Mapping[str, Fraction]:
    """Return the usage of one pod of a task, in the names of a quota. Raises ValidationError where its template is none."""
    return _usage(bytes(task.template))


@lru_cache(1024)
def _usage(written: bytes) -> Mapping[str, Fraction]:
    """Thousands of Jobs are of one template."""
    return quota_usage(msgspec.convert({"spec": defaults.read(written).get("spec") or {}}, Pod, strict=False))


def _priority_class(job: Job, task: Task) -> str:
    return _named_class(bytes(task.template)) or job.spec.priority_class_name


@lru_cache(1024)
def _named_class(written: bytes) -> str:
    return str((defaults.read(written).get("spec") or {}).get("priorityClassName") or "")


def _sub_group(job: Job, task: Task) -> Json:
    parts = task.partition_policy
    assert parts is not None
    found: Json = {
        "name": task.name, "labelSelector": {"matchLabels": {names.TASK_SPEC: task.name, names.JOB_NAME: job.metadata.name}},
        "matchLabelKeys": [names.PARTITION], "subGroupSize": parts.partition_size, "minSubGroups": parts.min_partitions,
    }  # fmt: skip
    if parts.network_topology is not None:
        found["networkTopology"] = parts.network_topology
    return found
