"""Transitions of a Job's status, whichever controller writes it: what contradicts itself is refused when it changes
(KEP-4368; validateJobStatus and getStatusValidationOptions of Kubernetes 1.36)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pumice.wire.objects import condition, holds
from pumice_lab.apiserver.errors import UNSAID, FieldProblem, duplicate, invalid_value, required
from pumice_lab.apiserver.strategies.job_spec import runs_of

Json = dict[str, Any]
Problems = list[FieldProblem]
_COUNTERS = ("active", "succeeded", "failed", "ready", "terminating")


def validate_job_status(job: Json, old: Json) -> Problems:
    status, before = job.get("status") or {}, old.get("status") or {}
    problems = [
        invalid_value(f"status.{field}", status[field], "must be greater than or equal to 0")
        for field in _COUNTERS if (status.get(field) or 0) < 0
    ]  # fmt: skip
    problems += _uncounted(status.get("uncountedTerminatedPods") or {})
    problems += _conditions(job, old)
    problems += _times(job, old)
    problems += _counters(job, old)
    return problems + _indexes(job["spec"], status, before)


def _conditions(job: Json, old: Json) -> Problems:
    is_now = {kind: holds(job, kind) for kind in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")}
    was = {kind: holds(old, kind) for kind in is_now}
    new = {kind for kind in is_now if is_now[kind] != was[kind]}
    complete, failed, target, met = is_now.values()
    wrong = [
        (complete and failed and new & {"Complete", "Failed"}, "cannot set Complete=True and Failed=true conditions"),
        (complete and target and new & {"Complete", "FailureTarget"},
         "cannot set Complete=True and FailureTarget=true conditions"),
        (failed and not target and "Failed" in new, "cannot set Failed=True condition without the FailureTarget=true condition"),
        (complete and not met and new & {"Complete", "SuccessCriteriaMet"},
         "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
        (met and failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (met and target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
        *((was[kind] and not is_now[kind], f"cannot disable the terminal {kind}=True condition")
          for kind in ("Failed", "Complete", "FailureTarget")),
        (was["SuccessCriteriaMet"] and not met, "cannot disable the SuccessCriteriaMet=True condition"),
        (was["Complete"] and not was["SuccessCriteriaMet"] and met,
         "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"),
    ]  # fmt: skip
    return [invalid_value("status.conditions", UNSAID, detail) for bad, detail in wrong if bad]


def _times(job: Json, old: Json) -> Problems:
    status, before, spec = job.get("status") or {}, old.get("status") or {}, job["spec"]
    start, end = status.get("startTime"), status.get("completionTime")
    complete = holds(job, "Complete")
    start_changed, end_changed = start != before.get("startTime"), end != before.get("completionTime")
    problems: Problems = []
    if complete != holds(old, "Complete") or end_changed:
        if end and not complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            problems.append(invalid_value("status.completionTime", end, detail))
        if complete and not end:
            problems.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if (start_changed or end_changed) and start and end and end < start:
        problems.append(invalid_value("status.completionTime", end, "must be equal to or after `startTime`"))
    if end and before.get("completionTime") and end_changed:
        problems.append(invalid_value("status.completionTime", end, "field is immutable"))
    never_ran = bool(spec.get("suspend")) and spec.get("completions") == 0
    if not start and _finished(job) and (_finished(job) != _finished(old) or start_changed) and not never_ran:
        problems.append(required("status.startTime", "startTime is required for finished job"))
    resumes = holds(old, "Suspended") and condition(job, "Suspended").get("status") == "False"
    if before.get("startTime") and start_changed and not resumes and not spec.get("suspend"):
        problems.append(invalid_value("status.startTime", start, "field is immutable for unsuspended job once set"))
    return problems


def _counters(job: Json, old: Json) -> Problems:
    spec, status, before = job["spec"], job.get("status") or {}, old.get("status") or {}
    over = _finished(job)
    now = {field: int(status.get(field) or 0) for field in _COUNTERS}
    was = {field: int(before.get(field) or 0) for field in _COUNTERS}

    def changed(field: str) -> bool:
        return over != _finished(old) or status.get(field) != before.get(field)

    shrinks = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    uncounted = status.get("uncountedTerminatedPods") or {}
    wrong = [
        ("failed", now["failed"] < was["failed"], "cannot decrease the failed counter"),
        ("succeeded", now["succeeded"] < was["succeeded"] and not shrinks, "cannot decrease the succeeded counter"),
        ("active", over and now["active"] > 0 and changed("active"), "active>0 is invalid for finished job"),
        ("terminating", over and now["terminating"] > 0 and changed("terminating"), "terminating>0 is invalid for finished job"),
        ("ready", "ready" in status and now["ready"] > now["active"] and (changed("ready") or changed("active")),
         "cannot set more ready pods than active"),
        ("uncountedTerminatedPods", over and any(uncounted.values()) and changed("uncountedTerminatedPods"),
         "must be empty for finished job"),
    ]  # fmt: skip
    return [invalid_value(f"status.{field}", status.get(field, 0), detail) for field, bad, detail in wrong if bad]


def _indexes(spec: Json, status: Json, before: Json) -> Problems:
    done, lost = status.get("completedIndexes") or "", status.get("failedIndexes")
    done_changed = done != (before.get("completedIndexes") or "")
    lost_changed = lost != before.get("failedIndexes")
    completions, problems = spec.get("completions"), []
    if done_changed and done and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        problems.append(invalid_value("status.completedIndexes", done, detail))
    if lost_changed and lost is not None and spec.get("backoffLimitPerIndex") is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        problems.append(invalid_value("status.failedIndexes", lost, detail))
    if completions is None:
        return problems
    runs = []
    for field, text, wanted in (("completedIndexes", done, done_changed),
                                ("failedIndexes", lost, lost_changed and spec.get("backoffLimitPerIndex") is not None)):
        try:
            runs += list(runs_of(text or "", completions))
        except ValueError as why:
            if wanted:
                problems.append(invalid_value(f"status.{field}", text, f"error parsing {field}: {why}"))
    if (done_changed or lost_changed) and lost is not None:
        runs.sort()
        for (_, last), (first, _) in pairwise(runs):
            if first <= last:
                detail = f"failedIndexes and completedIndexes overlap at index: {first}"
                return [*problems, invalid_value("status.failedIndexes", lost, detail)]
    return problems


def _uncounted(pods: Json) -> Problems:
    problems: Problems = []
    seen: set[str] = set()
    for kind in ("succeeded", "failed"):
        for place, uid in enumerate(pods.get(kind) or ()):
            path = f"status.uncountedTerminatedPods.{kind}[{place}]"
            if not uid:
                problems.append(invalid_value(path, uid, "must not be empty"))
            elif uid in seen:
                problems.append(duplicate(path, uid))
            seen.add(uid)
    return problems


def _finished(job: Json) -> bool:
    return holds(job, "Complete") or holds(job, "Failed")
