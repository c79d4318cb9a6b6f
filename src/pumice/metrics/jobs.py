"""The series of ``/metrics`` about jobs, queues and the backlog (Volcano pkg/scheduler/metrics), read from the engine's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from pumice.metrics.text import Lines, MetricFamily, Rendered, counter, each, ending, gauge
from pumice.scheduler.engine import Engine
from pumice.scheduler.plugins.contract import HierarchicalQueueOrder, QueueShares, Standing
from pumice.scheduler.plugins.drf import Drf
from pumice.scheduler.state.jobs import Job, QueueState
from pumice.scheduler.state.resources import CPU, MEMORY, PODS, Vector, add
from pumice.scheduler.state.waiting import Waiting

_QUEUE_PARTS = ("allocated", "request", "deserved", "inqueue", "capacity", "real_capacity")
_FAMILIES = (
    ("volcano_e2e_job_scheduling_duration", "Milliseconds from creation until the gang stood"),
    ("volcano_e2e_job_scheduling_start_time", "Creation of a job"),
    ("volcano_e2e_job_scheduling_last_time", "When the gang of a job stood"),
    ("volcano_job_share", "Dominant share of a job"),
)
_DURATION, _START, _LAST, _SHARE = (name for name, _ in _FAMILIES)

BLOCK = 256
"""Jobs whose lines are made without a look at the time."""


@dataclass(slots=True)
class JobSeries:
    """The lines of one engine's jobs. ``retries`` counts cycles in which a job was tried and did not stand.

    They are made afresh for each page that is not the last one again: a microsecond a job, which costs less than finding
    out job by job which lines still hold, and no memory between scrapes.
    """

    engine: Engine
    retries: Counter[str] = field(default_factory=Counter)
    _made: tuple[list[str], ...] | None = None

    def tried(self, keys: list[str]) -> None:
        """These jobs were tried in a cycle and do not stand."""
        self.retries.update(keys)
        if len(self.retries) > 2 * len(self.engine.state.jobs) + 1000:  # nobody may ever ask for the page
            self._prune()

    def _prune(self) -> None:
        for key in self.retries.keys() - self.engine.state.jobs.keys():
            del self.retries[key]

    def prepare(self) -> Iterator[None]:
        """Make the lines of the next page, a block of jobs at each step."""
        made: tuple[list[str], ...] = ([], [], [], [])
        for block in self._blocks():
            _render(block, made)
            yield
        self._made = made

    def families(self) -> Iterator[Rendered]:
        """Everything about jobs."""
        jobs = self.engine.state.jobs
        short = [(job, job.min_available - job.ready_count) for job in jobs.values() if job.pending]
        short = [(job, count) for job, count in short if count > 0]
        yield gauge("volcano_unschedule_task_count", "Pods that a gang lacks",
                    (({"job_id": job.key}, count) for job, count in short))  # fmt: skip
        yield gauge("volcano_unschedule_job_count", "Jobs that cannot be scheduled", [({}, len(short))])
        self._prune()
        yield counter("volcano_job_retry_counts", "Cycles in which a job was not ready",
                      (({"job_id": key}, count) for key, count in self.retries.items()))  # fmt: skip
        if self._made is None:
            for _ in self.prepare():
                pass
        made, self._made = self._made, None
        assert made is not None, "prepared"
        drf = any(isinstance(plugin, Drf) for plugin in self.engine.framework.plugins)
        for (name, text), series in zip(_FAMILIES, made, strict=True):
            yield Lines(name, text, series if drf or name != _SHARE else ())
        for name in ("share", "weight", "weighted_share"):
            yield gauge(f"volcano_namespace_{name}", f"{name} of a namespace (not used)")

    def _blocks(self) -> Iterator[list[Job]]:
        jobs = list(self.engine.state.jobs.values())
        for start in range(0, len(jobs), BLOCK):
            yield [job for job in jobs[start : start + BLOCK] if job.group is not None]

    def backlog(self) -> MetricFamily:
        """Waiting pods by queue and by why they wait."""
        waiting: Counter[tuple[str, str]] = Counter()
        for job in self.engine.state.jobs.values():
            reasons = Waiting(job)
            for task in job.pending.values():
                waiting[job.queue.name, reasons.of(task).cause.value] += 1
        return gauge("pumice_pending_pods", "Pods that wait, by queue and reason",
                     (({"queue_name": q, "reason": r}, n) for (q, r), n in sorted(waiting.items())))  # fmt: skip


def queue_families(engine: Engine) -> Iterator[MetricFamily]:
    """Everything about queues."""
    plugin = engine.framework.knows_shares
    queues = [queue for queue in engine.state.queues.values() if queue.present]
    amounts = {queue: _queue_amounts(queue, plugin) for queue in queues}
    if isinstance(plugin, HierarchicalQueueOrder) and plugin.hierarchical:
        _roll_up(engine, amounts)
    for part in _QUEUE_PARTS:
        found = [(queue, amounts[queue].get(part, {})) for queue in queues]
        name = f"volcano_queue_{part}"
        yield gauge(f"{name}_milli_cpu", f"{part} cpu of a queue", (({"queue_name": q.name}, v.get(CPU, 0)) for q, v in found))
        yield gauge(f"{name}_memory_bytes", f"{part} memory of a queue",
                    (({"queue_name": q.name}, v.get(MEMORY, 0)) for q, v in found))  # fmt: skip
        yield gauge(f"{name}_scalar_resources", f"{part} of other resources of a queue",
                    (({"queue_name": q.name, "resource": n}, x) for q, v in found for n, x in v.items()
                     if n not in (CPU, MEMORY, PODS)))  # fmt: skip
    yield gauge("volcano_queue_weight", "Weight", (({"queue_name": q.name}, q.weight) for q in queues))
    shared = queues if plugin is not None else []
    yield gauge("volcano_queue_share", "Part of what it deserves that a queue uses",
                (({"queue_name": q.name}, plugin.share(q) if plugin else 0) for q in shared))  # fmt: skip
    yield gauge("volcano_queue_overused", "Whether a queue uses all that it deserves while it holds or wants more",
                (({"queue_name": q.name}, int(_overused(q, plugin.standing(q))) if plugin else 0) for q in shared))  # fmt: skip


def _roll_up(engine: Engine, amounts: dict[QueueState, dict[str, Vector]]) -> None:
    """Where queues are a tree, what they hold, ask for and were promised counts for all above them."""
    own = {queue: {part: dict(found[part]) for part in ("allocated", "request", "inqueue")} for queue, found in amounts.items()}
    for queue, parts in own.items():
        for above in engine.state.groups.tree.above(queue):
            for part, vector in parts.items() if above in amounts else ():
                total = amounts[above][part] = dict(amounts[above][part])
                add(total, vector.items())


def _overused(queue: QueueState, found: Standing) -> bool:
    """All that it deserves is in use. A queue that has what it asked for, and no more than it deserves, is short of nothing; nor
    is one of whose waiting pods no node can ever hold any."""
    waits = any(value > queue.aside.get(name, 0) for name, value in queue.pending.items())
    beyond = any(value < found.taken.get(name, 0) for name, value in found.deserved.items())
    return (waits or beyond) and bool(found.deserved) and all(v <= found.taken.get(n, 0) for n, v in found.deserved.items())


def _render(jobs: list[Job], into: tuple[list[str], ...]) -> None:
    """Append the lines of some jobs, one text per family. Names need no escaping: Kubernetes lets nothing into them that would.

    The labels are written out here: a format that is put together at run time takes four times as long.
    """
    durations, starts, lasts, shares = into
    stood = [job for job in jobs if job.scheduled_at]
    labels = [f'job_name="{job.name}",queue="{job.queue.name}",job_namespace="{job.namespace}"' for job in stood]
    durations.append(each(_DURATION, labels, [_ending((job.scheduled_at - job.created) * 1000) for job in stood]))
    starts.append(each(_START, labels, [_ending(job.created) for job in stood]))
    lasts.append(each(_LAST, labels, [_ending(job.scheduled_at) for job in stood]))
    labels = [f'job_ns="{job.namespace}",job_id="{job.key}"' for job in jobs]
    shares.append(each(_SHARE, labels, [_ending(job.share) for job in jobs]))


@lru_cache(8192)
def _ending(value: float) -> str:
    """Jobs of one moment have equal times, and jobs of one kind equal shares."""
    return ending(round(value, 6))


def _queue_amounts(queue: QueueState, plugin: QueueShares | None) -> dict[str, Vector]:
    request = dict(queue.allocated)
    add(request, queue.pending.items())
    found = {"allocated": queue.allocated, "request": request, "inqueue": queue.inqueue, "capacity": queue.capability}
    if plugin is not None:
        standing = plugin.standing(queue)
        found.update(deserved=standing.deserved, real_capacity=standing.most)
    return found
