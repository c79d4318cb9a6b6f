"""The series of ``/metrics`` about jobs, queues and the backlog (spec volcano-core 22), read from the engine's state.

What a job's lines say once its gang stands hardly ever changes, so they are kept with the values they were made from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter

from pumice.engine.engine import Engine
from pumice.engine.model import Job, QueueState, Status, Task
from pumice.engine.observe import family, number
from pumice.engine.plugins.drf import Drf
from pumice.engine.plugins.proportion import Proportion
from pumice.engine.resources import CPU, MEMORY, PODS, Vector

_QUEUE_PARTS = ("allocated", "request", "deserved", "inqueue", "capacity", "real_capacity")
_STOOD = (
    ("volcano_e2e_job_scheduling_duration", "Milliseconds from creation until the gang stood"),
    ("volcano_e2e_job_scheduling_start_time", "Creation of a job"),
    ("volcano_e2e_job_scheduling_last_time", "When the gang of a job stood"),
)


_Lines = tuple[QueueState, float, float, tuple[str, str, str], str]
"""Queue, when the gang stood and share of a job, and the lines made from them: one per family of _STOOD, and the share's."""


@dataclass(slots=True)
class JobSeries:
    """The lines of one engine's jobs. ``retries`` counts cycles in which a job was tried and did not stand."""

    engine: Engine
    retries: Counter[str] = field(default_factory=Counter)
    _kept: dict[Job, _Lines] = field(default_factory=dict)

    async def prepare(self, give_way: Callable[[], Awaitable[None]], slice_: float) -> None:
        """Render what has changed, and give way every ``slice_`` seconds."""
        began = perf_counter()
        for job in list(self.engine.state.jobs.values()):
            if job.group is not None:
                self._lines_of(job)
                if perf_counter() - began > slice_:
                    await give_way()
                    began = perf_counter()

    def lines(self) -> Iterator[str]:
        """Everything about jobs."""
        jobs = self.engine.state.jobs
        short = [(job, job.min_available - job.ready_count) for job in jobs.values() if job.pending]
        short = [(job, count) for job, count in short if count > 0]
        yield from family("volcano_unschedule_task_count", "gauge", "Pods that a gang lacks",
                          (({"job_id": job.key}, count) for job, count in short))  # fmt: skip
        yield from family("volcano_unschedule_job_count", "gauge", "Jobs that cannot be scheduled", [({}, len(short))])
        for key in self.retries.keys() - jobs.keys():
            del self.retries[key]
        yield from family("volcano_job_retry_counts", "counter", "Cycles in which a job was not ready",
                          (({"job_id": key}, count) for key, count in self.retries.items()))  # fmt: skip
        self._kept = {job: self._lines_of(job) for job in jobs.values() if job.group is not None}
        stood = [kept[3] for kept in self._kept.values() if kept[1]]
        for place, (name, text) in enumerate(_STOOD):
            yield "\n".join([f"# HELP {name} {text}\n# TYPE {name} gauge", *[lines[place] for lines in stood]])
        drf = any(isinstance(plugin, Drf) for plugin in self.engine.framework.plugins)
        yield "\n".join(["# HELP volcano_job_share Dominant share of a job\n# TYPE volcano_job_share gauge",
                         *([kept[4] for kept in self._kept.values()] if drf else ())])  # fmt: skip
        for name in ("share", "weight", "weighted_share"):
            yield from family(f"volcano_namespace_{name}", "gauge", f"{name} of a namespace (not used)", ())

    def _lines_of(self, job: Job) -> _Lines:
        kept = self._kept.get(job)
        if kept is None or kept[1] != job.scheduled_at or kept[0] is not job.queue:
            kept = self._kept[job] = _render(job)
        elif kept[2] != job.share:
            kept = self._kept[job] = (kept[0], kept[1], job.share, kept[3], _share_line(job))
        return kept

    def backlog(self) -> Iterator[str]:
        """Waiting pods by queue and by why they wait."""
        waiting: Counter[tuple[str, str]] = Counter()
        for job in self.engine.state.jobs.values():
            for task in job.pending.values():
                waiting[job.queue.name, _why_waiting(task)] += 1
        yield from family("pumice_pending_pods", "gauge", "Pods that wait, by queue and reason",
                          (({"queue_name": q, "reason": r}, n) for (q, r), n in sorted(waiting.items())))  # fmt: skip


def queue_lines(engine: Engine) -> Iterator[str]:
    """Everything about queues."""
    plugin = next((p for p in engine.framework.plugins if isinstance(p, Proportion)), None)
    queues = [queue for queue in engine.state.queues.values() if queue.present]
    amounts = {queue: _queue_amounts(queue, plugin) for queue in queues}
    for part in _QUEUE_PARTS:
        found = [(queue, amounts[queue].get(part, {})) for queue in queues]
        name = f"volcano_queue_{part}"
        yield from family(f"{name}_milli_cpu", "gauge", f"{part} cpu of a queue",
                          (({"queue_name": q.name}, v.get(CPU, 0)) for q, v in found))  # fmt: skip
        yield from family(f"{name}_memory_bytes", "gauge", f"{part} memory of a queue",
                          (({"queue_name": q.name}, v.get(MEMORY, 0)) for q, v in found))  # fmt: skip
        yield from family(f"{name}_scalar_resources", "gauge", f"{part} of other resources of a queue",
                          (({"queue_name": q.name, "resource": n}, x) for q, v in found for n, x in v.items()
                           if n not in (CPU, MEMORY, PODS)))  # fmt: skip
    yield from family("volcano_queue_weight", "gauge", "Weight", (({"queue_name": q.name}, q.weight) for q in queues))
    shared = queues if plugin is not None else []
    yield from family("volcano_queue_share", "gauge", "Part of what it deserves that a queue uses",
                      (({"queue_name": q.name}, plugin.share(q) if plugin else 0) for q in shared))  # fmt: skip
    yield from family("volcano_queue_overused", "gauge", "Whether a queue uses all that it deserves",
                      (({"queue_name": q.name}, int(plugin is not None and plugin.overused(q))) for q in shared))  # fmt: skip


def _render(job: Job) -> _Lines:
    """Names need no escaping: Kubernetes lets nothing into them that would."""
    stood, queue = job.scheduled_at, job.queue
    if not stood:
        return (queue, stood, job.share, ("", "", ""), _share_line(job))
    labels = f'{{job_name="{job.name}",queue="{queue.name}",job_namespace="{job.namespace}"}} '
    texts = (
        "volcano_e2e_job_scheduling_duration" + labels + _text((stood - job.created) * 1000),
        "volcano_e2e_job_scheduling_start_time" + labels + _text(job.created),
        "volcano_e2e_job_scheduling_last_time" + labels + _text(stood),
    )
    return (queue, stood, job.share, texts, _share_line(job))


def _share_line(job: Job) -> str:
    return f'volcano_job_share{{job_ns="{job.namespace}",job_id="{job.key}"}} {_text(job.share)}'


@lru_cache(8192)
def _text(value: float) -> str:
    """Jobs of one moment have equal times, and jobs of one kind equal shares."""
    return number(round(value, 6))


def _queue_amounts(queue: QueueState, plugin: Proportion | None) -> dict[str, Vector]:
    request = dict(queue.allocated)
    for name, value in queue.pending.items():
        request[name] = request.get(name, 0) + value
    found = {"allocated": queue.allocated, "request": request, "inqueue": queue.inqueue, "capacity": queue.capability}
    part = plugin.parts.get(queue) if plugin is not None else None
    if part is not None:
        found.update(deserved=part.deserved, real_capacity=part.cap)
    return found


def _why_waiting(task: Task) -> str:
    if task.gated:
        return "gated"
    job = task.job
    if task.trial is not None:
        return "gang" if task.trial[0] is Status.ALLOCATED else "releasing"
    if job is not None and job.refusal:
        return "queue"
    return "unschedulable" if task.error else "new"
