"""Job (batch/v1): pods until so many have succeeded. Counts from the pods that exist plus those counted before.

Kubernetes keeps a finalizer on each pod until it is counted; here a deleted pod that had ended is counted from the status
written before, so nothing is lost as long as this controller saw it. In which order a Job's ends are looked for, and their
reasons and messages: job_controller.go of Kubernetes 1.36, syncJob.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.effects.vocabulary import Delete, Event, Requeue
from pumice.wire.kinds import JOBS, PODS
from pumice.wire.objects import condition, holds, is_ready
from pumice.wire.times import seconds, stamp
from pumice_lab.controllers.common import (
    Action,
    Json,
    View,
    claimed,
    delete_pod,
    is_deleting,
    owned_by,
    owner_reference,
    phase,
    selector_of,
    status_patch,
    with_condition,
)
from pumice_lab.controllers.job_pods import (
    Seen,
    failure_rule,
    indexed,
    manage,
    observe,
    per_index,
    success_rule,
)

OURS = "kubernetes.io/job-controller"  # spec.managedBy (KEP-4368)
FIRST_TOLD = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}  # that it will be, while its pods still end


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: str
    reason: str
    message: str


def reconcile(job: View, pods: Sequence[View], now: float) -> list[Action]:
    job = {"apiVersion": "batch/v1", "kind": "Job", **job}  # one that was listed says neither
    if is_finished(job):
        return _expire(job, now)
    if is_deleting(job) or (job["spec"].get("managedBy") or OURS) != OURS:
        return []
    claims, own = _claimed(job, pods)
    return [*claims, *_go_on(job, observe(job, own), now)]


def _go_on(job: View, seen: Seen, now: float) -> list[Action]:
    spec = job["spec"]
    started = (job.get("status") or {}).get("startTime") or stamp(now)
    new: Json = {
        "active": len(seen.active) or None, "ready": sum(map(is_ready, seen.active)), "succeeded": seen.succeeded or None,
        "failed": seen.failed or None, "startTime": started, "terminating": len(seen.ending),
    }  # fmt: skip
    if indexed(spec):
        new["completedIndexes"] = str(seen.done) or None
    if per_index(spec):
        new["failedIndexes"] = str(seen.lost)
    start = seconds(started)
    if verdict := _verdict(job, seen, start, now):
        return _finish(job, verdict, new, seen, now)
    if spec.get("suspend"):
        return _suspend(job, new, seen, now)
    actions = manage(job, seen, now)
    if deadline := spec.get("activeDeadlineSeconds"):
        actions.append(Requeue(max(0.1, start + float(deadline) - now)))
    if holds(job, "Suspended"):
        new["conditions"] = with_condition(job, "Suspended", "False", "JobResumed", "Job resumed", now)
    return [*actions, *status_patch(JOBS, job, new)]


def _claimed(job: View, pods: Sequence[View]) -> tuple[list[Action], list[View]]:
    selector = selector_of(job)
    if selector is None:
        return [], [pod for pod in pods if owned_by(pod, job["metadata"]["uid"])]
    return claimed(job, owner_reference(job, "batch/v1", "Job"), selector, PODS, pods)


def is_finished(job: View) -> bool:
    return any(holds(job, kind) for kind in FIRST_TOLD)


def _verdict(job: View, seen: Seen, start: float, now: float) -> Verdict | None:
    """Return the condition that ends the Job, if it is over."""
    spec = job["spec"]
    for kind, early in FIRST_TOLD.items():
        if holds(job, early):
            reported = condition(job, early)
            return Verdict(kind, reported.get("reason", ""), reported.get("message", ""))
    for pod in seen.failed_pods:
        rule = failure_rule(spec, pod)
        if rule and rule.action == "FailJob":
            return Verdict("Failed", "PodFailurePolicy", rule.message)
    if seen.failed > int(spec.get("backoffLimit", 6)) or _restarts_too_often(spec, seen.own):
        return Verdict("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not spec.get("suspend") and now >= start + float(deadline):
        return Verdict("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    completions = spec.get("completions")
    if seen.lost.runs:
        if seen.lost.total > int(spec.get("maxFailedIndexes", completions)):
            message = "Job has exceeded the specified maximal number of failed indexes"
            return Verdict("Failed", "MaxFailedIndexesExceeded", message)
        if seen.lost.total + seen.done.total >= int(completions):
            return Verdict("Failed", "FailedIndexes", "Job has failed indexes")
    if indexed(spec) and (met := success_rule(spec, seen.done)):
        return Verdict("Complete", "SuccessPolicy", met)
    if seen.succeeded >= (1 if completions is None else int(completions)) and not seen.active:
        return Verdict("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    return None


def _restarts_too_often(spec: View, own: Sequence[View]) -> bool:
    """Of pods that restart their containers themselves (pastBackoffLimitOnFailure)."""
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        int(entry.get("restartCount") or 0)
        for pod in own if phase(pod) in ("Pending", "Running")
        for kind in ("initContainerStatuses", "containerStatuses")
        for entry in (pod.get("status") or {}).get(kind) or ()
    )  # fmt: skip
    return restarts >= max(1, int(spec.get("backoffLimit", 6)))


def _finish(job: View, verdict: Verdict, status: Json, seen: Seen, now: float) -> list[Action]:
    """First what the end will be, and the end itself once no pod is left that runs."""
    early, left = FIRST_TOLD[verdict.kind], len(seen.active) + len(seen.ending)
    deletes = [delete_pod(pod) for pod in seen.active]
    conditions = with_condition(job, early, "True", verdict.reason, verdict.message, now)
    status |= {"conditions": conditions, "active": None, "ready": 0, "terminating": left}
    if verdict.kind == "Failed" and not holds(job, early):
        status["failed"] = seen.failed + left or None  # those that had not ended have failed with their Job
    if left:
        return [*deletes, *status_patch(JOBS, job, status)]
    decided = {**job, "status": {"conditions": conditions}}
    status["conditions"] = with_condition(decided, verdict.kind, "True", verdict.reason, verdict.message, now)
    if verdict.kind == "Complete":
        status["completionTime"] = stamp(now)
        reported = Event.on(job, "Normal", "Completed", "Job completed", api_version="batch/v1", kind="Job")
    else:
        reported = Event.on(job, "Warning", verdict.reason, verdict.message, api_version="batch/v1", kind="Job")
    return [*status_patch(JOBS, job, status), reported]


def _suspend(job: View, status: Json, seen: Seen, now: float) -> list[Action]:
    status |= {"active": None, "ready": 0, "startTime": None, "terminating": len(seen.active) + len(seen.ending)}
    status["conditions"] = with_condition(job, "Suspended", "True", "JobSuspended", "Job suspended", now)
    return [*(delete_pod(pod) for pod in seen.active), *status_patch(JOBS, job, status)]


def _expire(job: View, now: float) -> list[Action]:
    """ttlSecondsAfterFinished."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or is_deleting(job):
        return []
    ended = max(seconds(condition(job, kind).get("lastTransitionTime")) for kind in ("Complete", "Failed"))
    left = ended + float(ttl) - now
    meta = job["metadata"]
    return [Requeue(left)] if left > 0 else [Delete(JOBS, meta["namespace"], meta["name"], meta["uid"], "Background")]
