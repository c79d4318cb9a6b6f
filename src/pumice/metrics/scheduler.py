"""The scheduler's ``/metrics``: upstream's names, types and labels (Volcano pkg/scheduler/metrics, Volcano
pkg/scheduler/api/devices/nvidia/vgpu/metrics.go).

Latencies are observed as they happen; everything about objects (cards, queues, jobs) is read from the engine's state at
scrape time, so a dead object leaves no series.

The series of ``/metrics`` about jobs, queues and the backlog (Volcano pkg/scheduler/metrics), read from the engine's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from pumice.metrics.devices import DeviceSeries
from pumice.metrics.text import (
    Histogram,
    Lines,
    MetricFamily,
    Rendered,
    counter,
    each,
    ending,
    exponential,
    gauge,
    render,
)
from pumice.scheduler.cycle.cycle import Plan
from pumice.scheduler.engine import Engine
from pumice.scheduler.plugins.contract import HierarchicalQueueOrder, QueueShares, Standing
from pumice.scheduler.plugins.drf import Drf
from pumice.scheduler.state.jobs import Job, QueueState, Task
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


class SchedulerMetrics:
    """Observations of one scheduler, and the page that shows them with the engine's state."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.devices = DeviceSeries(engine)
        self.jobs = JobSeries(engine)
        self.attempts: Counter[str] = Counter({"scheduled": 0, "unschedulable": 0, "error": 0})
        self.evictions: Counter[str] = Counter()
        self.preemption_attempts = self.victims = 0
        self.bad_configurations = 0
        self.journal: bool | None = None
        """True while the journal is kept, False while it cannot be written; None: there is none."""
        self.refused_objects = 0
        self.refused_documents: dict[str, bool] = {}
        """Configurations by what they are, and whether the newest text of each is refused."""
        self.moves = 0
        """Counts what was observed: a page made before is out of date when it differs."""
        prefix = "volcano_"
        self.e2e = Histogram(f"{prefix}e2e_scheduling_latency_milliseconds", "Whole cycle", exponential(1, 5000, 20))
        self.open = Histogram(f"{prefix}open_session_duration_milliseconds", "Opening a cycle", exponential(1, 5000, 20))
        self.job = Histogram(
            f"{prefix}e2e_job_scheduling_latency_milliseconds", "Job seen to ready", exponential(100, 120000, 30)
        )
        self.plugin = Histogram(
            f"{prefix}plugin_scheduling_latency_milliseconds", "Plugin hooks", exponential(0.1, 100, 15),
            ("plugin", "OnSession"),
        )  # fmt: skip
        self.action = Histogram(
            f"{prefix}action_scheduling_latency_milliseconds", "Actions", exponential(1, 2000, 20), ("action",)
        )
        self.task = Histogram(
            f"{prefix}task_scheduling_latency_milliseconds", "Pod created to stage", exponential(50, 60000, 30), ("stage",)
        )
        self.stage = Histogram(
            f"{prefix}scheduling_stage_duration_milliseconds", "Duration of a stage", exponential(0.1, 500, 20), ("stage",)
        )

    # -- observing ----------------------------------------------------------------------------------------------

    def observe(self, plan: Plan) -> None:
        measures = plan.measures
        self.moves += 1
        self.e2e.observe(measures.total * 1000)
        self.open.observe(measures.open * 1000)
        for action, seconds in measures.actions.items():
            self.action.observe(seconds * 1000, action)
        for (plugin, hook), seconds in measures.plugins.items():
            self.plugin.observe(seconds * 1000, plugin, hook)
        for seconds in measures.jobs:
            self.job.observe(seconds * 1000)
        for stage, seconds in measures.stages:
            self.stage.observe(seconds * 1000, stage)
        for seconds in measures.assumed:
            self.task.observe(seconds * 1000, "Assumed")
        self.jobs.tried(measures.unready)
        self.attempts["scheduled"] += measures.placed
        self.attempts["unschedulable"] += measures.refused
        self.preemption_attempts += measures.preemption_attempts
        for action, victims in measures.evictions.items():
            self.evictions[action] += 1
            self.victims = victims

    def reached(self, stage: str, task: Task | None, now: float) -> None:
        """A pod came to a stage of its way: Watched, PreBound or Bound (Assumed comes with the plan)."""
        self.moves += 1
        if task is not None and task.created:
            self.task.observe(max(0.0, now - task.created) * 1000, stage)

    def took(self, stage: str, seconds: float) -> None:
        """A stage of a pod's way took so long: PreBind or Bind (Predicate and Scoring come with the plan)."""
        self.moves += 1
        self.stage.observe(seconds * 1000, stage)

    def failed(self) -> None:
        """A Binding came to nothing."""
        self.moves += 1
        self.attempts["error"] += 1

    def evicted(self, action: str) -> None:
        """A pod is evicted in the name of ``action``."""
        self.moves += 1
        self.evictions[action] += 1

    # -- the page -----------------------------------------------------------------------------------------------

    def stamp(self) -> tuple[object, ...]:
        """A cheap stamp of the inputs of the page beside the scheduler's state."""
        return self.moves, self.bad_configurations, self.refused_objects, *self.refused_documents.values()

    def prepare(self) -> Iterator[None]:
        """Make what is long of the next page, a step at a time."""
        yield from self.devices.prepare()
        yield from self.jobs.prepare()

    def page(self) -> bytes:
        """The page as of now."""
        return "".join([render(self._families()), *self.devices.section()]).encode()

    def _families(self) -> Iterator[Rendered]:
        yield from (self.e2e, self.open, self.job, self.plugin, self.action, self.task, self.stage)
        yield from self._counters()
        yield from self.jobs.families()
        yield from queue_families(self._engine)
        yield self.jobs.backlog()

    def _counters(self) -> Iterator[MetricFamily]:
        yield counter("volcano_schedule_attempts_total", "Placing attempts by result",
                      (({"result": result}, count) for result, count in self.attempts.items()))  # fmt: skip
        yield gauge("volcano_pod_preemption_victims", "Victims of the last preemption", [({}, self.victims)])
        yield counter("volcano_total_preemption_attempts", "Preemption attempts", [({}, self.preemption_attempts)])
        yield counter("volcano_eviction_transactions_total", "Evictions by action",
                      (({"action": action}, count) for action, count in self.evictions.items()))  # fmt: skip
        if self.journal is not None:
            yield gauge("pumice_journal_recording", "Whether the journal is kept; 0: it cannot be written, and the log says why",
                        [({}, int(self.journal))])  # fmt: skip
        yield counter("pumice_bad_configurations_total", "Configurations refused", [({}, self.bad_configurations)])
        yield gauge("pumice_configuration_refused", "Whether the newest text of a configuration is refused",
                    (({"what": what}, int(refused)) for what, refused in self.refused_documents.items()))  # fmt: skip
        yield gauge("pumice_nodes_held_for_gangs", "Nodes that are held for a gang that waits",
                    (({"podgroup": found.job.key, "queue_name": found.job.queue.name}, len(found.nodes))
                     for found in self._engine.state.reservations.held.values()))  # fmt: skip
        problems = self.refused_objects + len(self._engine.state.problems)
        yield gauge("pumice_objects_set_aside", "Objects with unusable data", [({}, problems)])
