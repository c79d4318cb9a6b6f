"""The pods of a Job as they are made."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from pumice.wire import names
from pumice.wire.batch import Job, Task, Volume
from pumice_jobs.controllers.job.group import owner
from pumice_jobs.controllers.job.plugins import registry
from pumice_jobs.controllers.job.plugins.contract import Seat, add_volume, containers, pod_name
from pumice_jobs.controllers.job.templates import template

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
    registry.dress(pod, Seat(job, task, index))
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
