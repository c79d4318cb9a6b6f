"""JobFlow: Jobs of templates, one after the other as they depend on each other (types of Volcano's flow.volcano.sh/v1alpha1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pumice.controllers.cronjob import Action, DropJob, MakeJob, SetStatus
from pumice.controllers.job.effects import Tell
from pumice.wire import names
from pumice.wire.batch import (
    COMPLETED,
    FAILED,
    FLOW_API,
    JOB_API,
    JOB_KIND,
    PENDING,
    RUNNING,
    TERMINATED,
    Job,
    TaskState,
)

Json = dict[str, Any]
SUCCEED: Final = "Succeed"
LISTS: Final = {"pendingJobs": PENDING, "runningJobs": RUNNING, "failedJobs": FAILED, "completedJobs": COMPLETED,
                "terminatedJobs": TERMINATED}  # fmt: skip
UNKNOWN_LIST: Final = "unKnowJobs"


def reconcile(flow: Mapping[str, Any], templates: Mapping[str, Json], jobs: Sequence[Job]) -> list[Action]:
    """``templates`` are those of its namespace by name, ``jobs`` those that the flow controls."""
    meta, spec = flow["metadata"], flow.get("spec") or {}
    if meta.get("deletionTimestamp"):
        return []
    flows: list[Json] = spec.get("flows") or []
    if problem := _problem(flows):
        return [Tell("Warning", "InvalidJobFlow", problem)]
    by_name = {job.metadata.name: job for job in jobs}
    done = (flow.get("status") or {}).get("state", {}).get("phase") == SUCCEED
    if done and spec.get("jobRetainPolicy") == "delete":
        return [DropJob(job.metadata.name, job.metadata.uid) for job in jobs if not job.metadata.deletion_timestamp]
    actions: list[Action] = [] if done else [*_starts(flow, flows, templates, by_name)]
    status = _status(flow, flows, by_name)
    there = flow.get("status") or {}
    if any(there.get(key) != value for key, value in status.items()):
        actions.append(SetStatus(status))
    return actions


def job_name(flow: Mapping[str, Any], step: str) -> str:
    return f"{flow['metadata']['name']}-{step}"


def _starts(flow: Mapping[str, Any], flows: Sequence[Json], templates: Mapping[str, Json],
            jobs: Mapping[str, Job]) -> Iterator[Action]:  # fmt: skip
    for step in flows:
        name = step["name"]
        if job_name(flow, name) in jobs or not _is_met(flow, step.get("dependsOn") or {}, jobs):
            continue
        template = templates.get(name)
        if template is None:
            yield Tell("Warning", "JobTemplateNotFound", f"JobTemplate {name} is not there; the flow waits for it")
        elif _probes(step):
            yield Tell("Warning", "WithoutEffect", f"{name} waits: probes by HTTP and TCP are not made here yet")
        else:
            yield MakeJob(job_body(flow, template))


def _probes(step: Mapping[str, Any]) -> bool:
    probe = (step.get("dependsOn") or {}).get("probe") or {}
    return bool(probe.get("httpGetList") or probe.get("tcpSocketList"))


def job_body(flow: Mapping[str, Any], template: Mapping[str, Any]) -> Json:
    meta, name = flow["metadata"], template["metadata"]["name"]
    marks = {names.OF_TEMPLATE: f"{meta['namespace']}.{name}", names.OF_FLOW: f"{meta['namespace']}.{meta['name']}"}
    owner = {"apiVersion": FLOW_API, "kind": "JobFlow", "name": meta["name"], "uid": meta["uid"], "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
    metadata = {"name": job_name(flow, name), "namespace": meta["namespace"], "labels": marks, "annotations": dict(marks),
                "ownerReferences": [owner]}  # fmt: skip
    return {"apiVersion": JOB_API, "kind": JOB_KIND, "metadata": metadata, "spec": template.get("spec") or {}}


def _is_met(flow: Mapping[str, Any], needs: Mapping[str, Any], jobs: Mapping[str, Job]) -> bool:
    wanted = [(target, COMPLETED) for target in needs.get("targets") or ()]
    wanted += [(each["name"], each.get("phase") or COMPLETED) for each in needs.get("targetsWithStatus") or ()]
    for target, phase in wanted:
        job = jobs.get(job_name(flow, target))
        if job is None or job.phase != phase:
            return False
    tasks = (needs.get("probe") or {}).get("taskStatusList") or ()
    counts = [job.status.task_status_count for target in {target for target, _ in wanted}
              if (job := jobs.get(job_name(flow, target))) is not None]  # fmt: skip
    return all(any(_has(found, each) for found in counts) for each in tasks)


def _has(counts: Mapping[str, TaskState], wanted: Mapping[str, Any]) -> bool:
    """Whether a pod of the task is in the phase."""
    found = counts.get(wanted.get("taskName", ""))
    return found is not None and found.phase.get(wanted.get("phase", RUNNING), 0) > 0


def _problem(flows: Sequence[Json]) -> str:
    """Steps twice, unknown ones, and circles, in which no Job would ever start."""
    steps = [str(step.get("name", "")) for step in flows]
    if len(set(steps)) < len(steps):
        return "two flows have one name"
    left = {step["name"]: {*((step.get("dependsOn") or {}).get("targets") or ()),
                           *(each["name"] for each in (step.get("dependsOn") or {}).get("targetsWithStatus") or ())}
            for step in flows}  # fmt: skip
    while free := [name for name, needs in left.items() if not needs & left.keys() and needs <= set(steps)]:
        for name in free:
            del left[name]
    return f"flows {', '.join(sorted(left))} wait for each other or for one that is not there" if left else ""


def _status(flow: Mapping[str, Any], flows: Sequence[Json], jobs: Mapping[str, Job]) -> Json:
    lists: dict[str, list[str]] = {key: [] for key in (*LISTS, UNKNOWN_LIST)}
    conditions: Json = {}
    for step in flows:
        job = jobs.get(job_name(flow, step["name"]))
        if job is None:
            continue
        name, phase = job.metadata.name, job.phase or PENDING
        lists[next((key for key, each in LISTS.items() if each == phase), UNKNOWN_LIST)].append(name)
        conditions[name] = {"phase": phase, "createTime": job.metadata.creation_timestamp}
    if flows and len(lists["completedJobs"]) == len(flows):
        phase = SUCCEED
    elif lists["failedJobs"] or lists["terminatedJobs"]:
        phase = FAILED
    else:
        phase = RUNNING if lists["runningJobs"] or lists["completedJobs"] else PENDING
    states = [{"name": name, "state": jobs[name].phase or PENDING, "restartCount": jobs[name].status.retry_count}
              for name in conditions]  # fmt: skip
    return {**lists, "conditions": conditions, "jobStatusList": states, "state": {"phase": phase}}
