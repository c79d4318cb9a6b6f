"""JobFlow: Jobs of templates, one after the other as they depend on each other (types of Volcano's flow.volcano.sh/v1alpha1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from pumice.effects.vocabulary import Event, Severity
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
from pumice.wire.volcano import JOB_FLOWS
from pumice_jobs.controllers.cronjob import Action, drop, make, set_status

Json = dict[str, Any]


SUCCEED: Final = "Succeed"
ALL, ANY = "all", "any"
"""The strategies of a step: it waits for all of its targets, or for one."""
LISTS: Final = {"pendingJobs": PENDING, "runningJobs": RUNNING, "failedJobs": FAILED, "completedJobs": COMPLETED,
                "terminatedJobs": TERMINATED}  # fmt: skip
UNKNOWN_LIST: Final = "unKnowJobs"


@dataclass(frozen=True, slots=True)
class Check:
    """A pod of this task, in one of these Jobs, answers at the port; where ``path`` is given, to an HTTP GET."""

    jobs: tuple[str, ...]
    task: str
    port: int
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask: once all checks have an answer, the step may start."""

    step: str
    checks: tuple[Check, ...]


def reconcile(flow: Mapping[str, Any], templates: Mapping[str, Json], jobs: Sequence[Job],
              answered: Set[str] = frozenset()) -> list[Action | Probe]:  # fmt: skip
    """``templates`` are those of its namespace by name, ``jobs`` those that the flow controls, ``answered`` the steps whose
    probes have been answered."""
    meta, spec = flow["metadata"], flow.get("spec") or {}
    if meta.get("deletionTimestamp"):
        return []
    flows = steps(spec)
    if problem := _problem(flows):
        return [_event(flow, "Warning", "InvalidJobFlow", problem)]
    by_name = {job.metadata.name: job for job in jobs}
    done = (flow.get("status") or {}).get("state", {}).get("phase") == SUCCEED
    if done and spec.get("jobRetainPolicy") == "delete":
        return [drop(job) for job in jobs if not job.metadata.deletion_timestamp]
    actions: list[Action | Probe] = [] if done else [*_starts(flow, flows, templates, by_name, answered)]
    status = _status(flow, flows, by_name)
    there = flow.get("status") or {}
    # Who makes a flow may change it at once, as upstream writes no status before the first Job.
    if (by_name or there or not flows) and any(there.get(key) != value for key, value in status.items()):
        actions.append(set_status(JOB_FLOWS, flow, status))
    return actions


def _event(flow: Mapping[str, Any], type_: Severity, reason: str, message: str) -> Event:
    return Event.on(flow, type_, reason, message, api_version=FLOW_API, kind="JobFlow")


def steps(spec: Mapping[str, Any]) -> list[Json]:
    """One for each name, which is its Job's: of those that have it twice the first, as upstream makes no second Job."""
    found: dict[str, Json] = {}
    for step in spec.get("flows") or ():
        found.setdefault(str(step.get("name", "")), step)
    return [*found.values()]


def job_name(flow: Mapping[str, Any], step: str) -> str:
    return f"{flow['metadata']['name']}-{step}"


def _starts(flow: Mapping[str, Any], flows: Sequence[Json], templates: Mapping[str, Json], jobs: Mapping[str, Job],
            answered: Set[str]) -> Iterator[Action | Probe]:  # fmt: skip
    for step in flows:
        name = step["name"]
        if job_name(flow, name) in jobs or not _is_met(flow, step.get("dependsOn") or {}, jobs):
            continue
        template = templates.get(name)
        if template is None:
            yield _event(flow, "Warning", "JobTemplateNotFound", f"JobTemplate {name} is not there; the flow waits for it")
        elif name not in answered and (checks := tuple(_checks(flow, step.get("dependsOn") or {}))):
            yield Probe(name, checks)
        else:
            try:
                yield make(job_body(flow, template, step.get("patch") or {}))
            except (AttributeError, TypeError, ValueError) as error:
                yield _event(flow, "Warning", "InvalidJobFlow", f"the patch of {name} cannot be applied: {error}")


def _checks(flow: Mapping[str, Any], needs: Mapping[str, Any]) -> Iterator[Check]:
    probe, jobs = needs.get("probe") or {}, tuple(job_name(flow, target) for target in sorted(_targets(needs)))
    for each in probe.get("httpGetList") or ():
        header = each.get("httpHeader") or {}
        headers = ((str(header["name"]), str(header.get("value", ""))),) if header.get("name") else ()
        yield Check(jobs, each.get("taskName", ""), each.get("port", 0), each.get("path") or "/", headers)
    for each in probe.get("tcpSocketList") or ():
        yield Check(jobs, each.get("taskName", ""), each.get("port", 0))


def _targets(needs: Mapping[str, Any]) -> set[str]:
    return {*(needs.get("targets") or ()), *(each["name"] for each in needs.get("targetsWithStatus") or ())}


def job_body(flow: Mapping[str, Any], template: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """The Job of a step. Its patch stands under ``jobSpec``, as the kind has it, or ``spec``, as its design document has it."""
    meta, name = flow["metadata"], template["metadata"]["name"]
    marks = {names.OF_TEMPLATE: f"{meta['namespace']}.{name}", names.OF_FLOW: f"{meta['namespace']}.{meta['name']}"}
    owner = {"apiVersion": FLOW_API, "kind": "JobFlow", "name": meta["name"], "uid": meta["uid"], "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
    metadata = {"name": job_name(flow, name), "namespace": meta["namespace"], "labels": marks, "annotations": dict(marks),
                "ownerReferences": [owner]}  # fmt: skip
    return {"apiVersion": JOB_API, "kind": JOB_KIND, "metadata": metadata,
            "spec": patched(template.get("spec") or {}, patch.get("jobSpec") or patch.get("spec") or {})}  # fmt: skip


def _is_met(flow: Mapping[str, Any], needs: Mapping[str, Any], jobs: Mapping[str, Job]) -> bool:
    """Where probes are given, they say of the plain targets when the step may start, instead of their end. By the strategy
    ``any`` one target is enough."""
    probe = needs.get("probe") or {}
    wanted = [(target, "" if any(probe.values()) else COMPLETED) for target in needs.get("targets") or ()]
    wanted += [(each["name"], each.get("phase") or COMPLETED) for each in needs.get("targetsWithStatus") or ()]
    found = [job is not None and (not phase or job.phase == phase)
             for job, phase in ((jobs.get(job_name(flow, target)), phase) for target, phase in wanted)]  # fmt: skip
    if found and not (any(found) if needs.get("strategy") == ANY else all(found)):
        return False
    tasks = probe.get("taskStatusList") or ()
    counts = [job.status.task_status_count for target in _targets(needs)
              if (job := jobs.get(job_name(flow, target))) is not None]  # fmt: skip
    return all(any(_has(found, each) for found in counts) for each in tasks)


def _has(counts: Mapping[str, TaskState], wanted: Mapping[str, Any]) -> bool:
    """Return whether a pod of the task is in the phase."""
    found = counts.get(wanted.get("taskName", ""))
    return found is not None and found.phase.get(wanted.get("phase", RUNNING), 0) > 0


def _problem(flows: Sequence[Json]) -> str:
    """Unknown steps, and circles, in which no Job would ever start."""
    for step in flows:
        if (said := (step.get("dependsOn") or {}).get("strategy") or ALL) not in (ALL, ANY):
            return f"the strategy of {step['name']} is {said!r}; {ALL} and {ANY} are there"
    left = {step["name"]: _targets(step.get("dependsOn") or {}) for step in flows}
    for step in flows:
        if any(((step.get("dependsOn") or {}).get("probe") or {}).values()) and not left[step["name"]]:
            return f"the probes of {step['name']} ask nobody: it names no targets"
    known = set(left)
    while free := [name for name, needs in left.items() if not needs & left.keys() and needs <= known]:
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


# -- template patch ---------------------------------------------------------------------------------------------------

# The Job of a JobTemplate, changed as a step of a JobFlow says (design document of Volcano's JobFlow, "Job Template Parameter
# Overriding"): what is not named stays, and entries of lists are told apart by a field of theirs.

BY: Final[Mapping[str, tuple[str, ...]]] = {
    "tasks": ("name",), "containers": ("name",), "initContainers": ("name",), "env": ("name",), "hostAliases": ("ip",),
    "tolerations": ("key",), "volumes": ("name", "mountPath"), "volumeMounts": ("mountPath", "name"),
    "ports": ("containerPort",),
}  # fmt: skip
"""Lists that are merged, and what tells their entries apart: the first of these that an entry has. Others are replaced."""
WHOLE: Final = frozenset({"affinity", "securityContext", "livenessProbe", "readinessProbe", "startupProbe", "networkTopology"})
"""Objects that are replaced."""
WHOLE_ENTRIES: Final = frozenset({"env", "hostAliases", "tolerations", "ports"})
"""Lists whose entries are."""
ADDED: Final = "plugins"
"""Lists that are added to the arguments that a plugin has already."""


def patched(spec: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """The spec of a Job with a patch. Raises ValueError, in words, where it cannot be told what the patch is about."""
    found = dict(spec)
    for key, value in patch.items():
        there = spec.get(key)
        if key == "tasks":
            value = _named(there or (), value)
        found[key] = _more_arguments(there or {}, value) if key == ADDED else _merged(key, there, value)
    return found


def _more_arguments(there: Mapping[str, Sequence[str]], more: Mapping[str, Sequence[str]]) -> Json:
    return {**there, **{name: [*(there.get(name) or ()), *(new or ())] for name, new in more.items()}}


def _named(tasks: Sequence[Json], patches: Sequence[Json]) -> list[Json]:
    """A patch of a task that names none is about the only one."""
    found = []
    for patch in patches:
        if not patch.get("name") and len(tasks) != 1:
            raise ValueError(f"a task of the patch names none of the {len(tasks)} tasks")
        found.append(patch if patch.get("name") or "name" not in tasks[0] else {**patch, "name": tasks[0]["name"]})
    return found


def _merged(key: str, there: Any, new: Any) -> Any:
    if isinstance(there, dict) and isinstance(new, dict) and key not in WHOLE:
        return {**there, **{name: _merged(name, there.get(name), value) for name, value in new.items()}}
    if isinstance(there, list) and isinstance(new, list) and key in BY:
        return _list(key, there, new)
    return new


def _list(key: str, there: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    found = list(there)
    for entry in new:
        at = next((index for index, old in enumerate(found) if _same(key, old, entry)), None)
        if at is None:
            found.append(entry)
        elif key in WHOLE_ENTRIES or (key == "volumes" and "name" in entry):
            found[at] = entry
        else:
            found[at] = _merged("", found[at], entry)
    return found


def _same(key: str, old: Any, new: Any) -> bool:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return bool(old == new)
    by = next((name for name in BY[key] if name in new), None)
    return old.get(by) == new[by] if by is not None else not any(name in old for name in BY[key])
