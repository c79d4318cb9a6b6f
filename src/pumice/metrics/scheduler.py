"""The scheduler's ``/metrics``: upstream's names, types and labels (spec volcano-core 22, deviceshare-nvidia 17).

Latencies are observed as they happen; everything about objects (cards, queues, jobs) is read from the engine's state at
scrape time, so a dead object leaves no series (decision 8). A page that nothing has changed since is served again as it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from pumice.engine.cycle.cycle import Plan
from pumice.engine.engine import Engine
from pumice.engine.state.jobs import Task
from pumice.metrics.devices import DeviceSeries
from pumice.metrics.jobs import JobSeries, queue_lines
from pumice.metrics.primitives import Histogram, exponential, family

SLICE = 0.002
"""Seconds of rendering before everybody else has a turn."""
KEPT_PAGE = 32 * 2**20
"""Bytes up to which the page itself is kept beside its lines; joining the lines of a longer one takes some 10 ms."""


class SchedulerMetrics:
    """Observations of one scheduler, and the page that shows them with the engine's state.

    ``changes`` tells a value that differs whenever anything may have changed; without it every page is made anew.
    """

    def __init__(self, engine: Engine, changes: Callable[[], object] | None = None) -> None:
        self._engine = engine
        self._changes = changes
        self._kept: tuple[object, bytes] = (None, b"")
        self.devices = DeviceSeries(engine)
        self.jobs = JobSeries(engine)
        self.ready = False
        self.attempts: Counter[str] = Counter({"scheduled": 0, "unschedulable": 0, "error": 0})
        self.evictions: Counter[str] = Counter()
        self.bad_configurations = 0
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

    async def fresh_page(self) -> bytes:
        """The page, rendered in slices so that cycles go on between them."""
        stamp = self._stamp()  # before the first slice: what changes during the others counts for the next page
        if not self._holds(stamp):
            await self.devices.prepare(lambda: asyncio.sleep(0), SLICE)
            await self.jobs.prepare(lambda: asyncio.sleep(0), SLICE)
        return self._page(stamp)

    def page(self) -> bytes:
        """The page as of now."""
        return self._page(self._stamp())

    def _page(self, stamp: object) -> bytes:
        if self._holds(stamp):
            return self._kept[1]
        made = b"".join([self._text(), *self.devices.section()])
        self._kept = (stamp, made) if len(made) < KEPT_PAGE else (None, b"")
        return made

    def _holds(self, stamp: object) -> bool:
        """Whether the page that was kept is still true."""
        return stamp is not None and stamp == self._kept[0]

    def _stamp(self) -> object:
        """What the page depends on, cheaply; None when that is not known."""
        if self._changes is None:
            return None
        return (self._changes(), self.moves, self.bad_configurations, self.refused_objects,
                tuple(self.refused_documents.values()))  # fmt: skip

    def _text(self) -> bytes:
        lines: list[str] = []
        for histogram in (self.e2e, self.open, self.job, self.plugin, self.action, self.task, self.stage):
            lines.extend(histogram.lines())
        lines.extend(self._counters())
        lines.extend(self.jobs.lines())
        lines.extend(queue_lines(self._engine))
        lines.extend(self.jobs.backlog())
        lines.append("")
        return "\n".join(lines).encode()

    def _counters(self) -> Iterator[str]:
        results = ({"result": result} for result in self.attempts)
        yield from family("volcano_schedule_attempts_total", "counter", "Placing attempts by result",
                          zip(results, self.attempts.values(), strict=True))  # fmt: skip
        yield from family("volcano_pod_preemption_victims", "gauge", "Victims of the last preemption", [({}, 0)])
        yield from family("volcano_total_preemption_attempts", "counter", "Preemption attempts", [({}, 0)])
        yield from family("volcano_eviction_transactions_total", "counter", "Evictions by action",
                          (({"action": action}, count) for action, count in self.evictions.items()))  # fmt: skip
        yield from family("pumice_bad_configurations_total", "counter", "Configurations refused",
                          [({}, self.bad_configurations)])  # fmt: skip
        yield from family("pumice_configuration_refused", "gauge", "Whether the newest text of a configuration is refused",
                          [({"what": what}, int(refused)) for what, refused in self.refused_documents.items()])  # fmt: skip
        problems = self.refused_objects + len(self._engine.state.problems)
        yield from family("pumice_objects_set_aside", "gauge", "Objects with unusable data", [({}, problems)])
