"""CronJobs: a schedule with a zone that there is, a name that leaves room for the times, and a Job that can be meant.

The words are upstream's (what its tests of ``admission/cronjobs`` expect), those of the Job the same as for a Job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from zoneinfo import ZoneInfo

from pumice.wire.cron import parse_schedule
from pumice.wire.names import DEFAULT_QUEUE
from pumice_jobs.admission.jobs import queue_problem, read_job
from pumice_jobs.admission.review import Answer, Json, Request, Settings, View
from pumice_jobs.controllers.job.defaults import completed
from pumice_jobs.controllers.job.plugins.registry import PLUGINS
from pumice_jobs.controllers.job.validation import mistakes
from pumice_jobs.controllers.jobflow import steps

LONGEST_NAME: Final = 52
"""The name of a Job is that of its CronJob and eleven characters of its time (Kubernetes' rule for its own CronJobs)."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ZONE: Final = re.compile(r"[A-Za-z0-9+_]+([-/][A-Za-z0-9+_]+)*")
ZONES: Final = "https://www.iana.org/time-zones"


def validate(request: Request, view: View, settings: Settings) -> Answer:
    spec = request.object.get("spec") or {}
    return Answer("; ".join(text for text in ("".join(_spec(spec, request, view)), _name(request.name)) if text))


def _spec(spec: Json, request: Request, view: View) -> Iterator[str]:
    schedule, zone = str(spec.get("schedule") or ""), spec.get("timeZone")
    if not schedule:
        yield " schedule is required, but got empty"
    elif "TZ" in schedule:
        yield " schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field"
    else:
        try:
            parse_schedule(schedule)
        except ValueError as error:
            yield f" schedule is not a valid cron expression: {error}"
    if zone is not None:
        yield _zone(str(zone))
    job = read_job({"metadata": request.object.get("metadata") or {}, "spec": (spec.get("jobTemplate") or {}).get("spec") or {}})
    yield job if isinstance(job, str) else mistakes(completed(job), PLUGINS, queue_problem(job.spec.queue or DEFAULT_QUEUE, view))


def _zone(zone: str) -> str:
    if not zone:
        return " timeZone must be nil or non-empty string, got empty string"
    if zone.lower() == "local":
        return f" timeZone can't be Local, and must be defined in {ZONES}"
    if not _ZONE.fullmatch(zone):
        return f" unknown timeZone {zone}"
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        return f" invalid timeZone {zone}: it must be defined in {ZONES}"
    return ""


def _name(name: str) -> str:
    if len(name) > LONGEST_NAME:
        return f"invalid cronJob name {name}: must be no more than {LONGEST_NAME} characters"
    return "" if not name or _NAME.fullmatch(name) else f"invalid cronJob name {name}: it must be a lowercase RFC 1123 subdomain"


# -- JobFlows: every Job that a flow waits for is one of the flow, and none waits for itself -------------------------

NO_DAG: Final = "jobflow Flow is not DAG"
TWICE: Final = "two flows have one name: they are one Job, as the first of them says"


def validate_flow(request: Request, view: View, settings: Settings) -> Answer:
    spec = request.object.get("spec") or {}
    needs = {str(flow.get("name")): set((flow.get("dependsOn") or {}).get("targets") or ()) for flow in steps(spec)}
    warnings = (TWICE,) if len(needs) < len(spec.get("flows") or ()) else ()
    for targets in needs.values():
        if missing := sorted(targets - needs.keys()):
            return Answer(f"{NO_DAG}: vertex is not defined: {missing[0]}")
    while free := [name for name, targets in needs.items() if not targets]:
        for name in free:
            del needs[name]
        for targets in needs.values():
            targets.difference_update(free)
    return Answer(f"{NO_DAG}: {', '.join(sorted(needs))} wait for each other" if needs else "", warnings=warnings)
