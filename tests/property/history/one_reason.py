"""One reason: whatever says why a pod waits says the same. Its condition and its PodGroup's as they were written, the PodGroup's
event, metrics, and what ``pumice explain`` and ``pumice top`` render are compared with each other, by their words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pumice.effects.vocabulary import Event, GroupStatus, SchedulerEffect
from pumice.metrics.scheduler import JobSeries
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.queues import views_as_they_are
from pumice.scheduler.explaining.workloads import as_they_wait, group_view
from pumice.scheduler.state.jobs import Job
from pumice.scheduler.state.tasks import Status

Json = dict[str, Any]
SAID = (
    ("gang", r"^pod group is|^Not enough valid tasks"),
    ("unschedulable", r"nodes are unavailable|hyperNode|has already predicated failed|network|tier|cannot|must|invalid"),
    ("releasing", r"can possibly be assigned to .* resource is released"),
    ("gang", r"can possibly be assigned to|^pod group is|gang|minAvailable"),
    ("queue", r"queue|quota|overused"),
)
"""Causes, and what tells them in the words of a condition; the first that is found."""


def words(text: str) -> str:
    """A text without its numbers and the counts of its gang, which may be rewritten later than the words."""
    return re.sub(r"\d+", "#", re.sub(r"^pod group is .*Origin reason is", "pod group, because of", text))


def contradictions(engine: Engine, tables: Mapping[str, Mapping[str, Json]], now: float) -> Iterator[str]:
    """Return what two places say differently of one pod, PodGroup or queue of an engine that is at rest."""
    queues = {view.name: {key: why for key, _, why in view.jobs} for view in views_as_they_are(engine)}
    counted: Counter[tuple[str, str]] = Counter()
    listed = {(row.job, name): row.why for row in as_they_wait(engine) for name in row.pods}
    for job in engine.state.jobs.values():
        if not job.pending or (job.group is None and not job.implicit):
            continue  # of one whose PodGroup is gone nothing is written
        conditions = _conditions(job, tables, now)
        view = group_view(engine, job, now)
        explained = {name: why for why, names in view.waiting.items() for name in names}
        for name, message in conditions.items():
            if words(explained[name]) != words(message):
                yield f"{job.namespace}/{name}: condition {message!r}, explain podgroup {explained[name]!r}"
            said = listed.get((job.key, name), "nothing")
            if words(said) != words(message.replace(f"{job.namespace}/{name}", "this pod")):
                yield f"{job.namespace}/{name}: condition {message!r}, explain waiting {said!r}"
            counted[job.queue.name, _cause(message)] += 1
        for text in _of_group(job, tables):
            _, _, origin = text.partition("Origin reason is")
            if origin and conditions and len(conditions) == len(job.pending) and not any(
                words(message) in words(origin) for message in conditions.values()
            ):
                yield f"{job.key}: its PodGroup says {origin!r}, its pods {sorted(set(conditions.values()))}"
        reported = queues.get(job.queue.name, {}).get(job.key)
        if reported is not None and conditions and len(conditions) == len(job.pending) and not any(
            words(reported) == words(message) for message in conditions.values()
        ):
            yield f"{job.key}: explain queue and top say {reported!r}, its pods {sorted(set(conditions.values()))}"
    yield from _metrics(engine, counted)


def unlike_events(effects: Iterable[SchedulerEffect]) -> Iterator[str]:
    """Events of one cycle that say of a PodGroup what its condition of the same cycle does not."""
    written, reported = dict[str, list[str]](), dict[str, str]()
    for effect in effects:
        match effect:
            case GroupStatus():
                said = [c.message.partition(": ")[2] for c in effect.conditions if c.type == "Unschedulable"]
                written[f"{effect.namespace}/{effect.name}"] = said
            case Event(kind="PodGroup", type="Warning", reason="Unschedulable"):
                reported[f"{effect.namespace}/{effect.name}"] = effect.message
    for key, message in reported.items():
        if written.get(key) and "is ready" not in message and not any(message.endswith(said) for said in written[key]):
            yield f"{key}: event {message!r}, conditions {written[key]}"


def _conditions(job: Job, tables: Mapping[str, Mapping[str, Json]], now: float) -> dict[str, str]:
    """Return what the API server was told of those of its pods that wait, by name."""
    found = {}
    for task in job.pending.values():
        pod = tables["Pod"].get(task.key)
        if pod is None or task.gated or task.puzzling or task.backoff.until > now or task.status is not Status.PENDING:
            continue
        reported = [
            c
            for c in pod.get("status", {}).get("conditions", ())
            if c["type"] == "PodScheduled" and c["status"] == "False"
        ]
        if reported and task.condition is not None:
            found[task.name] = reported[0]["message"]
    return found


def _of_group(job: Job, tables: Mapping[str, Mapping[str, Json]]) -> Iterator[str]:
    """The words of its condition, as long as it is not ready."""
    group = tables["PodGroup"].get(job.key)
    if group is None or job.is_ready():
        return
    for condition in group.get("status", {}).get("conditions") or ():
        if condition["type"] == "Unschedulable":
            yield condition["message"]


def _cause(message: str) -> str:
    return next((cause for cause, pattern in SAID if re.search(pattern, message)), message)


def _metrics(engine: Engine, counted: Counter[tuple[str, str]]) -> Iterator[str]:
    """The backlog counts at least the pods whose conditions say so."""
    shown = {(labels["queue_name"], labels["reason"]): number for labels, number in JobSeries(engine).backlog().samples}
    for key, number in counted.items():
        if shown.get(key, 0) < number:
            yield f"{number} conditions of queue {key[0]} say {key[1]}, metrics count {shown}"
