"""Who takes part in the next cycle: jobs are active, wait for a time or a release, or sleep until something that
their class needs changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pumice.engine.state.classes import PodClass
from pumice.engine.state.jobs import INQUEUE, Job, Task
from pumice.engine.state.patience import FOR_EVER, Patience

RETELL_AFTER = 30.0
"""Seconds between two times that sleepers hear anew why they wait because the nodes changed (spec volcano-core 25)."""


@dataclass(slots=True)
class Waiting:
    """The jobs, and which of them have a reason to be looked at."""

    jobs: dict[str, Job] = field(default_factory=dict)
    dirty: dict[Job, None] = field(default_factory=dict)
    """Jobs whose status must be looked at when the cycle closes."""
    settled: dict[str, None] = field(default_factory=dict)
    """Queues whose sums changed through jobs of which nothing else is to be said."""
    waiting: dict[Job, float] = field(default_factory=dict)
    """Jobs that wait for a time: queue quota, enqueue, back-off."""
    sleeping: dict[PodClass, dict[Job, None]] = field(default_factory=dict)
    """Jobs that wait until something that their class needs changes."""
    unexplained: dict[PodClass, dict[Task, None]] = field(default_factory=dict)
    """Pods that fitted nowhere and whose reason is still to be worked out: beside the placing, not in its way."""
    next_due: float = float("inf")
    """No job waits for an earlier time than this."""
    patience: Patience = field(default_factory=Patience)
    promises: dict[Job, float] = field(default_factory=dict)
    """Jobs that were tried without success, and when their promises end, where they do; the earliest first."""
    released: bool = False
    """Something was released since jobs were last woken for it."""
    woken_at: int = -1
    """How far the table's gains have been offered to every sleeping class."""
    told_nodes: int = 0
    """Version of the nodes when sleepers were last told why they wait: their reasons count the nodes."""
    retell_at: float = 0.0
    """They are not told anew before then, for that writes to every one of them."""

    def _touch(self, job: Job) -> None:
        """Something of the job changed. One without PodGroup and without pending pods (a running bare pod, most often) has
        no status to write and nothing to try: only its queue is told."""
        if job.group is None and not job.pending:
            job.settle()
            self.settled[job.queue.name] = None
            self.waiting.pop(job, None)
            return
        self.dirty[job] = None
        self.activate(job)

    def activate(self, job: Job) -> None:
        """Let the job take part in the next cycle, unless its PodGroup is still to come."""
        self.waiting.pop(job, None)
        if (job.pending and job.implicit) or (job.group is not None and (job.pending or job.is_pending())):
            job.queue.active[job] = None

    def wait(self, job: Job, until: float) -> None:
        """Leave the job alone until then (or until resources are released)."""
        job.queue.active.pop(job, None)
        self.waiting[job] = until
        self.next_due = min(self.next_due, until)

    def sleep(self, job: Job, classes: Iterable[PodClass]) -> None:
        """Leave the job alone until one of these classes may fit somewhere."""
        job.queue.active.pop(job, None)
        for cls in classes:
            self.sleeping.setdefault(cls, {})[job] = None

    def bound_promise(self, job: Job, now: float) -> None:
        """The job was tried, and found no room."""
        if job.inqueue and job.phase == INQUEUE and self.patience.promise < FOR_EVER:
            self.promises.setdefault(job, now + self.patience.promise)

    def end_promise(self, job: Job) -> None:
        """Nothing is promised to the job any longer until it is started anew; others may have it."""
        self.promises.pop(job, None)
        if job.inqueue and job.phase == INQUEUE and self.jobs.get(job.key) is job:
            job.rest()
            self.dirty[job] = None
            self.wake_waiting()

    @property
    def due(self) -> float:
        """No job waits for an earlier time than this, and no promise ends before."""
        return min(self.next_due, next(iter(self.promises.values()), FOR_EVER))

    def wake_waiting(self) -> None:
        """Resources were released or promises changed: whoever waits for room may try again in the next cycle."""
        self.released = True

    def wake_due(self, now: float) -> None:
        """Activate the jobs whose time has come, and after a release those that wait for room."""
        while self.promises and next(iter(self.promises.values())) <= now:
            self.end_promise(next(iter(self.promises)))
        if self.released:
            self.released = False
            for job in list(self.waiting):
                if job.retry_at <= 0:
                    self.activate(job)
        if self.next_due <= now:
            for job, until in list(self.waiting.items()):
                if until <= now:
                    job.retry_at = 0.0
                    self.activate(job)
            self.next_due = min(self.waiting.values(), default=float("inf"))

    def retell(self, version: int, now: float) -> None:
        """Nodes came, went or changed, and sleepers still hear of the ones before: work their reasons out anew."""
        if self.told_nodes == version or (self.sleeping and now < self.retell_at):
            return
        self.told_nodes = version
        if not self.sleeping:
            return
        self.retell_at = now + RETELL_AFTER
        for cls, jobs in self.sleeping.items():
            puzzles = self.unexplained.setdefault(cls, {})
            for job in jobs:
                for task in job.pending.values():
                    if task.cls is cls and task.error:
                        task.puzzling = True
                        puzzles[task] = None

    def wake(self, cls: PodClass) -> None:
        for job in self.sleeping.pop(cls, {}):
            if job.key in self.jobs:
                self.activate(job)
