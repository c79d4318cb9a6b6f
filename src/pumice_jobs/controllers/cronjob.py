"""Volcano's CronJob: a Job at each time of a schedule (its fields mean what those of Kubernetes' CronJob mean)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from pumice.effects.vocabulary import Create, Delete, Event, Patch, Requeue, Severity
from pumice.ports.cluster import Resource
from pumice.wire.batch import COMPLETED, CRON_JOBS, JOB_API, JOB_KIND, Job
from pumice.wire.cron import parse_schedule
from pumice.wire.names import CRON_TIME
from pumice.wire.times import seconds, stamp
from pumice.wire.volcano import JOBS
from pumice_jobs.controllers.job.phases import FINISHED

Json = dict[str, Any]
ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"
KEPT: Final = {True: ("successfulJobsHistoryLimit", 3), False: ("failedJobsHistoryLimit", 1)}
"""Limits of the finished Jobs that are kept, of those that succeeded and of the others: field and default."""
WINDOWS: Final = (3600, 86400, 32 * 86400, 400 * 86400, 6 * 365 * 86400)
"""Seconds back from now in which a missed time is looked for."""


Action = Create | Delete | Patch | Event | Requeue


def make(body: Json) -> Create:
    return Create(JOBS, body)


def drop(job: Job) -> Delete:
    return Delete(JOBS, job.metadata.namespace, job.metadata.name, job.metadata.uid, "Background")


def set_status(kind: Resource, obj: Mapping[str, Any], status: Json) -> Patch:
    """A CronJob's status names as active what was there before; whoever makes a Job beside adds it."""
    meta = obj["metadata"]
    return Patch(kind, meta["namespace"], meta["name"], {"status": status}, meta["uid"], "status")


def _event(cron: Mapping[str, Any], type_: Severity, reason: str, message: str) -> Event:
    return Event.on(cron, type_, reason, message, api_version=JOB_API, kind="CronJob")


def reconcile(cron: Mapping[str, Any], jobs: Sequence[Job], now: float) -> list[Action]:
    """``jobs`` are those that the CronJob controls."""
    meta, spec = cron["metadata"], cron.get("spec") or {}
    if meta.get("deletionTimestamp"):
        return []
    try:
        schedule = parse_schedule(str(spec.get("schedule", "")), str(spec.get("timeZone") or ""))
    except ValueError as error:
        return [_event(cron, "Warning", "UnParseableCronJobSchedule", str(error))]
    active = [job for job in jobs if job.phase not in FINISHED and not job.metadata.deletion_timestamp]
    actions = [*_history(spec, jobs)]
    status = cron.get("status") or {}
    last = seconds(status.get("lastScheduleTime")) or seconds(meta.get("creationTimestamp"))
    due = None
    if not spec.get("suspend"):
        due = _latest(schedule.after, last, now)
        following = schedule.after(now)
        if following is not None:
            actions.append(Requeue(max(0.1, following - now)))
    if due is not None:
        begun = [*_start(cron, active, due, now)]
        actions += begun
        started = any(isinstance(action, Create) for action in begun)
        replaced = {action.uid for action in begun if isinstance(action, Delete)}
        active = [job for job in active if job.metadata.uid not in replaced]
        if started or _is_late(spec, due, now):
            status = {**status, "lastScheduleTime": stamp(due)}
    return [*actions, *_status(cron, status, active, jobs)]


def _latest(after: Callable[[float], float | None], last: float, now: float) -> float | None:
    """The last time that has come since, looked for from now backwards: many may have been missed."""
    for window in WINDOWS:
        start, due = max(last, now - window), None
        found = after(start)
        while found is not None and found <= now:
            due, found = found, after(found)
        if due is not None or start == last:
            return due
    return None


def _is_late(spec: Mapping[str, Any], due: float, now: float) -> bool:
    deadline = spec.get("startingDeadlineSeconds")
    return deadline is not None and now - due > float(deadline)


def _start(cron: Mapping[str, Any], active: Sequence[Job], due: float, now: float) -> Iterator[Action]:
    spec, policy = cron["spec"], cron["spec"].get("concurrencyPolicy") or ALLOW
    if _is_late(spec, due, now):
        yield _event(cron, "Warning", "MissSchedule", f"Missed scheduled time to start a job: {stamp(due)}")
        return
    if policy == FORBID and active:
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        yield _event(cron, "Normal", "JobAlreadyActive", text)
        return
    if policy == REPLACE:
        yield from (drop(job) for job in active)
    body = job_body(cron, due)
    yield make(body)
    yield _event(cron, "Normal", "SuccessfulCreate", f"Created job {body['metadata']['name']}")


def job_body(cron: Mapping[str, Any], due: float) -> Json:
    """The Job of one time; its name says which, so that none is made twice."""
    meta, template = cron["metadata"], cron["spec"].get("jobTemplate") or {}
    said = template.get("metadata") or {}
    owner = {"apiVersion": JOB_API, "kind": "CronJob", "name": meta["name"], "uid": meta["uid"], "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
    which = int(due // 60) if due % 60 == 0 else int(due)  # times of ``@every`` may lie within one minute
    zone = cron["spec"].get("timeZone")
    time = datetime.fromtimestamp(due, ZoneInfo(zone) if zone else UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    notes = {**(said.get("annotations") or {}), CRON_TIME: time}
    metadata = {"name": f"{meta['name'][:52]}-{which}", "namespace": meta["namespace"], "ownerReferences": [owner],
                "labels": dict(said.get("labels") or {}), "annotations": notes}  # fmt: skip
    return {"apiVersion": JOB_API, "kind": JOB_KIND, "metadata": metadata, "spec": template.get("spec") or {}}


def _history(spec: Mapping[str, Any], jobs: Sequence[Job]) -> Iterator[Action]:
    for succeeded, (field, default) in KEPT.items():
        ended = sorted((job for job in jobs if job.phase in FINISHED and (job.phase == COMPLETED) is succeeded
                        and not job.metadata.deletion_timestamp), key=_ended)  # fmt: skip
        limit = spec.get(field)
        for job in ended[: max(0, len(ended) - (default if limit is None else int(limit)))]:
            yield drop(job)


def reference(namespace: str, name: str, uid: str) -> Json:
    """An entry of ``status.active``."""
    return {"apiVersion": JOB_API, "kind": JOB_KIND, "namespace": namespace, "name": name, "uid": uid}


def _ended(job: Job) -> float:
    return seconds(job.status.state.last_transition_time)


def _status(cron: Mapping[str, Any], wanted: Json, active: Sequence[Job], jobs: Sequence[Job]) -> Iterator[Action]:
    there = cron.get("status") or {}
    references = [reference(job.metadata.namespace, job.metadata.name, job.metadata.uid)
                  for job in sorted(active, key=lambda job: job.metadata.name)]  # fmt: skip
    succeeded = max((_ended(job) for job in jobs if job.phase == COMPLETED), default=0.0)
    if succeeded > seconds(there.get("lastSuccessfulTime")):
        wanted = {**wanted, "lastSuccessfulTime": stamp(succeeded)}
    wanted = {**wanted, "active": references}
    if {"active": [], **there} != wanted:
        yield set_status(CRON_JOBS, cron, wanted)
