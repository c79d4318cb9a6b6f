"""CronJob (batch/v1): a Job at each time of a schedule, of which so many are kept.

Source: Kubernetes "CronJob", sections "Deadline for delayed Job start", "Concurrency policy" and "Jobs history limits".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pumice.effects.vocabulary import Create, Delete, Event, Requeue
from pumice.wire.cron import parse_schedule
from pumice.wire.kinds import CRON_JOBS, JOBS
from pumice.wire.objects import condition
from pumice.wire.times import seconds, stamp
from pumice_lab.controllers.common import (
    Action,
    Json,
    View,
    is_deleting,
    owner_reference,
    status_patch,
)

_API = "batch/v1"
_DAY = 86400.0
_KEPT = (("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1))


def reconcile(cron: View, jobs: Sequence[View], now: float) -> list[Action]:
    """``jobs``: those that it owns."""
    meta, spec, status = cron["metadata"], cron["spec"], cron.get("status") or {}
    if is_deleting(cron):
        return []
    about = {"apiVersion": _API, "kind": "CronJob", "metadata": meta}
    try:
        after = parse_schedule(str(spec.get("schedule", "")), str(spec.get("timeZone") or "")).after
    except ValueError as problem:
        return [Event.on(about, "Warning", "UnParseableCronJobSchedule", str(problem))]
    active = [job for job in jobs if not _ended(job) and not is_deleting(job)]
    actions = _history(spec, jobs)
    last, due = status.get("lastScheduleTime"), None
    if not spec.get("suspend"):
        due = _latest(after, seconds(last or meta.get("creationTimestamp")), now)
        following = after(now)
        actions += [Requeue(max(0.1, following - now))] if following is not None else []
    if due is not None:
        made, over = _start(cron, jobs, active, due, now, about)
        actions += made
        last = stamp(due) if over else last
    named = [{"apiVersion": _API, "kind": "Job", **{key: job["metadata"][key] for key in ("namespace", "name", "uid")}}
             for job in sorted(active, key=lambda job: str(job["metadata"]["name"]))]  # fmt: skip
    succeeded = max((_since(job) for job in jobs if _ended(job) == "Complete"), default=0.0)
    best = stamp(succeeded) if succeeded else status.get("lastSuccessfulTime")
    wanted = {"active": named or None, "lastScheduleTime": last, "lastSuccessfulTime": best}
    return [*actions, *status_patch(CRON_JOBS, cron, wanted)]


def _latest(after: Callable[[float], float | None], last: float, now: float) -> float | None:
    """The last time that has come since. Of many that were missed only those of a day are looked through."""
    for start in sorted({max(last, now - _DAY), last}, reverse=True):
        due, found = None, after(start)
        while found is not None and found <= now:
            due, found = found, after(found)
        if due is not None:
            return due
    return None


def _start(cron: View, jobs: Sequence[View], active: Sequence[View], due: float, now: float,
           about: Json) -> tuple[list[Action], bool]:  # fmt: skip
    """Return the actions for a scheduled time that has come, and whether they settle it."""
    meta, spec = cron["metadata"], cron["spec"]
    name = f"{meta['name'][:52]}-{int(due // 60)}"  # says which time, so that none is made twice
    if any(job["metadata"]["name"] == name for job in jobs):
        return [], True
    deadline, policy = spec.get("startingDeadlineSeconds"), spec.get("concurrencyPolicy") or "Allow"
    if deadline is not None and now - due > float(deadline):
        return [Event.on(about, "Warning", "MissSchedule", f"Missed scheduled time to start a job: {stamp(due)}")], True
    if policy == "Forbid" and active:
        why = "Not starting job because prior execution is running and concurrency policy is Forbid"
        return [Event.on(about, "Normal", "JobAlreadyActive", why)], False
    gone = [_drop(job) for job in active] if policy == "Replace" else []
    template: Mapping[str, Json] = spec.get("jobTemplate") or {}
    said = template.get("metadata") or {}
    metadata = {"name": name, "namespace": meta["namespace"], "ownerReferences": [owner_reference(cron, _API, "CronJob")],
                "labels": dict(said.get("labels") or {}), "annotations": dict(said.get("annotations") or {})}  # fmt: skip
    body = {"apiVersion": _API, "kind": "Job", "metadata": metadata, "spec": template.get("spec") or {}}
    return [*gone, Create(JOBS, body), Event.on(about, "Normal", "SuccessfulCreate", f"Created job {name}")], True


def _history(spec: View, jobs: Sequence[View]) -> list[Action]:
    actions: list[Action] = []
    for how, field, default in _KEPT:
        ended = sorted((job for job in jobs if _ended(job) == how and not is_deleting(job)), key=_since)
        limit = spec.get(field)
        actions += [_drop(job) for job in ended[: max(0, len(ended) - (default if limit is None else int(limit)))]]
    return actions


def _drop(job: View) -> Action:
    meta = job["metadata"]
    return Delete(JOBS, meta["namespace"], meta["name"], meta["uid"], "Background")


def _ended(job: View) -> str:
    return next((kind for kind, _, _ in _KEPT if condition(job, kind).get("status") == "True"), "")


def _since(job: View) -> float:
    return seconds(condition(job, _ended(job)).get("lastTransitionTime"))
