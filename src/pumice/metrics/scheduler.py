"""The scheduler's ``/metrics``: upstream's names, types and labels (Volcano pkg/scheduler/metrics, Volcano
pkg/scheduler/api/devices/nvidia/vgpu/metrics.go).

Latencies are observed as they happen; everything about objects (cards, queues, jobs) is read from the engine's state at
scrape time, so a dead object leaves no series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pumice.metrics.devices import DeviceSeries
from pumice.metrics.jobs import JobSeries, queue_families
from pumice.metrics.text import Histogram, MetricFamily, Rendered, counter, exponential, gauge, render
from pumice.scheduler.cycle.cycle import Plan
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Task


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
