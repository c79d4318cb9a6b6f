"""Job (batch/v1): pods until so many have succeeded. Counts from the pods that exist plus those counted before.

Kubernetes keeps a finalizer on each pod until it is counted; here a deleted pod that had ended is counted from the status
written before, so nothing is lost as long as this controller saw it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pumice.cluster.controllers.actions import Action, Create, Delete, Json, LookAgain, Tell, View
from pumice.cluster.controllers.common import (
    JOBS,
    PODS,
    condition,
    is_active,
    is_deleting,
    is_ready,
    owned_by,
    owner_reference,
    phase,
    pod_from,
    seconds_of,
    status_patch,
    timestamp,
    with_condition,
)

INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_BACKOFF, LAST_BACKOFF = 10.0, 600.0


def reconcile(job: View, pods: Sequence[View], now: float) -> list[Action]:
    job = {"apiVersion": "batch/v1", "kind": "Job", **job}  # one that was listed says neither
    meta, spec = job["metadata"], job["spec"]
    own = [pod for pod in pods if owned_by(pod, meta["uid"])]
    if is_finished(job):
        return _expire(job, now)
    if is_deleting(job):
        return []
    status = job.get("status") or {}
    active = [pod for pod in own if is_active(pod)]
    failed_pods = [pod for pod in own if phase(pod) == "Failed"]
    succeeded = max(_succeeded(spec, own), int(status.get("succeeded") or 0) if not _indexed(spec) else 0)
    failed = max(len(failed_pods), int(status.get("failed") or 0))
    start = seconds_of(status.get("startTime")) or now
    if spec.get("suspend"):
        return _suspend(job, active, now)
    wanted = spec.get("completions")
    verdict = _verdict(job, succeeded, failed, active, own, start, now)
    new: Json = {
        "active": len(active) or None, "ready": sum(map(is_ready, active)), "succeeded": succeeded or None,
        "failed": failed or None, "startTime": timestamp(start), "terminating": sum(map(is_deleting, own)),
    }  # fmt: skip
    if _indexed(spec):
        new["completedIndexes"] = _ranges(_done_indexes(own)) or None
    if verdict:
        return _finish(job, verdict, new, active, now)
    actions: list[Action] = []
    pause = _back_off(failed_pods, failed, now)
    missing = _missing(spec, succeeded, len(active), wanted)
    if missing > 0 and pause > 0:
        actions.append(LookAgain(pause))
    elif missing > 0:
        actions += _create(job, own, active, missing)
    elif missing < 0:
        actions += [_delete(pod) for pod in active[missing:]]
    if deadline := spec.get("activeDeadlineSeconds"):
        actions.append(LookAgain(max(0.1, start + float(deadline) - now)))
    if condition(job, "Suspended").get("status") == "True":
        new["conditions"] = with_condition(job, "Suspended", "False", "JobResumed", "Job resumed", now)
    return [*actions, *status_patch(JOBS, job, new)]


def is_finished(job: View) -> bool:
    return any(condition(job, kind).get("status") == "True" for kind in ("Complete", "Failed"))


def _verdict(job: View, succeeded: int, failed: int, active: Sequence[View], own: Sequence[View], start: float,
             now: float) -> tuple[str, str, str] | None:
    """(condition, reason, message) when the job is over."""
    spec = job["spec"]
    limit = int(spec.get("backoffLimit", 6))
    restarts = sum(int(s.get("restartCount") or 0) for pod in active
                   for s in (pod.get("status") or {}).get("containerStatuses") or ())
    on_failure = spec["template"]["spec"].get("restartPolicy") == "OnFailure"
    if failed > limit or (on_failure and restarts > limit):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and now >= start + float(deadline):
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    completions = spec.get("completions")
    complete = succeeded >= int(completions) if completions is not None else bool(succeeded) and not active
    if complete and not any(is_active(pod) for pod in own):
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def _missing(spec: View, succeeded: int, active: int, completions: int | None) -> int:
    parallelism = int(spec.get("parallelism", 1))
    if completions is None:
        return 0 if succeeded else parallelism - active
    return min(parallelism, int(completions) - succeeded) - active


def _create(job: View, own: Sequence[View], active: Sequence[View], count: int) -> list[Action]:
    meta, spec = job["metadata"], job["spec"]
    owner = owner_reference(job, "batch/v1", "Job")
    pods = [pod_from(spec["template"], owner, meta["namespace"], f"{meta['name']}-") for _ in range(count)]
    if _indexed(spec):
        busy = _done_indexes(own) | {i for pod in active if (i := _index(pod)) is not None}
        free = [i for i in range(int(spec.get("completions") or 0)) if i not in busy]
        pods = [_with_index(pod, index, meta["name"]) for pod, index in zip(pods, free, strict=False)]
    return [Create(PODS, pod) for pod in pods]


def _with_index(pod: Json, index: int, job: str) -> Json:
    pod["metadata"]["annotations"][INDEX] = pod["metadata"]["labels"][INDEX] = str(index)
    pod["metadata"]["generateName"] = f"{job}-{index}-"
    pod["spec"].setdefault("hostname", f"{job}-{index}")
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
    return pod


def _finish(job: View, verdict: tuple[str, str, str], status: Json, active: Sequence[View], now: float) -> list[Action]:
    kind, reason, message = verdict
    early = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    conditions = with_condition(job, early, "True", reason, message, now)
    conditions = with_condition({**job, "status": {"conditions": conditions}}, kind, "True", reason, message, now)
    status |= {"conditions": conditions, "active": None, "ready": 0}
    if kind == "Complete":
        status["completionTime"] = timestamp(now)
    told = Tell(dict(job), "Normal", "Completed", "Job completed") if kind == "Complete" else Tell(
        dict(job), "Warning", reason, message)
    return [*(_delete(pod) for pod in active), *status_patch(JOBS, job, status), told]


def _suspend(job: View, active: Sequence[View], now: float) -> list[Action]:
    conditions = with_condition(job, "Suspended", "True", "JobSuspended", "Job suspended", now)
    status: Json = {"active": None, "ready": 0, "startTime": None, "conditions": conditions}
    return [*(_delete(pod) for pod in active), *status_patch(JOBS, job, status)]


def _expire(job: View, now: float) -> list[Action]:
    """ttlSecondsAfterFinished."""
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None or is_deleting(job):
        return []
    ended = max(seconds_of(condition(job, kind).get("lastTransitionTime")) for kind in ("Complete", "Failed"))
    left = ended + float(ttl) - now
    meta = job["metadata"]
    return [LookAgain(left)] if left > 0 else [Delete(JOBS, meta["namespace"], meta["name"], meta["uid"], "Background")]


def _back_off(failed_pods: Sequence[View], failed: int, now: float) -> float:
    """Seconds until the next pod may be made after failures."""
    if not failed_pods:
        return 0.0
    last = max(_finished_at(pod) for pod in failed_pods)
    pause: float = min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** min(failed - 1, 20))
    return max(0.0, last + pause - now)


def _finished_at(pod: View) -> float:
    times = [seconds_of(((s.get("state") or {}).get("terminated") or {}).get("finishedAt"))
             for s in (pod.get("status") or {}).get("containerStatuses") or ()]
    return max([t for t in times if t] or [seconds_of(pod["metadata"].get("creationTimestamp"))])


def _indexed(spec: View) -> bool:
    return bool(spec.get("completionMode") == "Indexed")


def _succeeded(spec: View, own: Sequence[View]) -> int:
    return len(_done_indexes(own)) if _indexed(spec) else sum(phase(pod) == "Succeeded" for pod in own)


def _done_indexes(own: Sequence[View]) -> set[int]:
    return {i for pod in own if phase(pod) == "Succeeded" and (i := _index(pod)) is not None}


def _index(pod: View) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def _ranges(indexes: set[int]) -> str:
    """``1,3-5,7`` as in status.completedIndexes."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in runs)


def _delete(pod: View) -> Delete:
    meta = pod["metadata"]
    return Delete(PODS, meta["namespace"], meta["name"], meta["uid"])
