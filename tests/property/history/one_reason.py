"""One reason: whatever says why a pod waits says the same. Its condition and its PodGroup's as they were written, the PodGroup's
event, metrics, what the dashboards' panels show of them, and what ``pumice explain`` (of a pod, a PodGroup, a queue, a Job, a
Deployment, all that wait) and ``pumice top`` render are compared with each other, by their words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kit.dashboards import DASHBOARDS, PENDING

from pumice.effects.vocabulary import Bind, Event, Evict, GroupStatus, Nominate, SchedulerEffect
from pumice.metrics.scheduler import JobSeries, queue_families
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import explain
from pumice.scheduler.explaining.queues import views_as_they_are
from pumice.scheduler.explaining.workloads import as_they_wait, group_view, workload_view
from pumice.scheduler.state.jobs import Job
from pumice.scheduler.state.tasks import Status
from pumice.wire.objects import Pod, convert

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
            if words(said) != words(message.replace(f"Pod {job.namespace}/{name} can", "Pod this pod can")):
                yield f"{job.namespace}/{name}: condition {message!r}, explain waiting {said!r}"
            counted[job.queue.name, _cause(message)] += 1
        yield from _workload(engine, job, tables, conditions, now)
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


def other_counts(engine: Engine, tables: Mapping[str, Mapping[str, Json]], now: float) -> Iterator[str]:
    """Return the conditions of pods and PodGroups that count other nodes than there are."""
    there = len(tables["Node"])
    for job in engine.state.jobs.values():
        if not job.pending or (job.group is None and not job.implicit):
            continue
        told = [(f"{job.namespace}/{name}", message) for name, message in _conditions(job, tables, now).items()]
        for key, message in told + [(job.key, text) for text in _of_group(job, tables)]:
            if any(int(number) != there for number in re.findall(r"0/(\d+) nodes are unavailable", message)):
                yield f"{key}: of {there} nodes its condition says {message!r}"


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
        if pod is None or task.gated or task.unexplained or task.backoff.until > now or task.status is not Status.PENDING:
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


def _workload(
    engine: Engine, job: Job, tables: Mapping[str, Mapping[str, Json]], conditions: Mapping[str, str], now: float
) -> Iterator[str]:
    """The pods as those of a Job with this PodGroup, and each that a ReplicaSet owns as a Deployment's."""
    objects = {task.name: tables["Pod"].get(task.key) for task in job.tasks.values()}
    pods = {name: convert(Pod, found) for name, found in objects.items() if found is not None}
    owned = [name for name, pod in pods.items() if pod.metadata.owner_references]
    for kind, members in (("Job", list(pods)), *(("Deployment", [name]) for name in owned)):
        view = workload_view(engine, kind, job.key, [pods[name] for name in members], [job.key] if kind == "Job" else [], now)
        explained = {name: why for why, names in view.waiting.items() for name in names}
        for name in members:
            if name in conditions and words(explained.get(name, "nothing")) != words(conditions[name]):
                yield f"{job.namespace}/{name}: condition {conditions[name]!r}, explain {kind} {explained.get(name)!r}"
        for group in view.groups:
            if group.name == job.key and group != group_view(engine, job, now):
                yield f"{job.key}: explain {kind} says {group.summary!r} of its PodGroup"


def unlike_explanations(engine: Engine, now: float) -> Iterator[str]:
    """Return what ``explain pod`` and the other views say differently of one pod, another one each time: of an engine made from
    the objects, as the commands make it, which should not be used further. Where its cycle places somebody, the room is
    another afterwards; and a pod of a gang hears what is left beside the others of it."""
    jobs = [job for job in engine.state.jobs.values() if len(job.pending) == 1]
    waiting = [task for job in jobs for task in job.pending.values()]
    if not waiting:
        return
    asked = waiting[int(now) % len(waiting)]
    effects = engine.cycle_for_answers(now).effects
    if any(isinstance(effect, (Bind, Evict, Nominate)) for effect in effects):
        return
    said = {asked.key: explain(engine, asked.pod, gates=False)} if asked.pod is not None else {}
    for row in as_they_wait(engine):
        for key in (f"{row.job.partition('/')[0]}/{name}" for name in row.pods):
            found = said.get(key)
            if found is None or not re.match(r"0/\d+ nodes are unavailable", row.why):
                continue
            if "held for gang" in row.why:  # by this very cycle
                continue
            summary = found.summary.removeprefix("can never run: ").removeprefix("cannot be tried yet: ")
            if not found.node and summary != row.why and not (found.refusals and summary in row.why):
                yield f"{key}: explain pod {found.summary!r}, explain waiting {row.why!r}"


def panel(board: str, title: str, page: Mapping[str, Iterable[tuple[Mapping[str, str], float]]]) -> dict[str, float]:
    """Return what a panel of one query shows of a page of metrics, by its legend. Two forms of queries are known."""
    (panel,) = [panel for panel in DASHBOARDS[board].panels if panel.title == title]
    ((legend, query),) = panel.queries.items()
    summed = re.fullmatch(r"sum by \((\w+)\) \((\w+)\)", query)
    chosen = re.fullmatch(r"(\w+)\{queue_name=~\"\$queue\"\}", query)
    assert summed or chosen, query
    shown: Counter[str] = Counter()
    for labels, value in page[summed[2] if summed else chosen[1]]:  # type: ignore[index]
        line = legend
        for name in [summed[1]] if summed else labels:
            line = line.replace("{{" + name + "}}", labels[name])
        shown[line] += value  # type: ignore[assignment]
    return dict(shown)


def _metrics(engine: Engine, counted: Counter[tuple[str, str]]) -> Iterator[str]:
    """The backlog counts at least the pods whose conditions say so, and so do the panels of the dashboards."""
    page = {family.name: family.samples for family in (JobSeries(engine).backlog(), *queue_families(engine))}
    by_queue, by_reason = panel("queue", PENDING, page), panel("cluster", PENDING, page)
    for (queue, reason), number in counted.items():
        if by_queue.get(f"{queue} {reason}", 0) < number:
            yield f"{number} conditions of queue {queue} say {reason}, the dashboard of queues shows {by_queue}"
    for reason in {reason for _, reason in counted}:
        number = sum(count for (_, each), count in counted.items() if each == reason)
        if by_reason.get(reason, 0) < number:
            yield f"{number} conditions say {reason}, the dashboard of the cluster shows {by_reason}"
    if sum(by_queue.values()) != sum(by_reason.values()):
        yield f"the dashboard of queues shows {by_queue}, that of the cluster {by_reason}"
