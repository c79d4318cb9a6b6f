"""Who takes part in the next cycle: jobs are active, wait for a time or a release, or sleep until something that
their class needs changes.

What stands here nobody else writes: engine, cycle and the other parts of the state say what has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from pumice.engine.state.classes import PodClass
from pumice.engine.state.jobs import INQUEUE, Job, Task
from pumice.wire.duration import parse_duration
from pumice.wire.scheduler_conf import SchedulerConf

# -- limits of patience, from the configuration ------------------------------------------------------------------------


FOR_EVER = float("inf")
PROMISE_FOR = "pumice.promise-for"
LEAVING_FOR = "pumice.leaving-for"
LEAVING = 300.0


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds. ``promise``: a job that was started and found no room keeps the promise of its minimum for so long."""

    promise: float = FOR_EVER
    leaving: float = LEAVING
    """``leaving``: a terminating pod is waited for so much longer than its grace period."""


def patience_of(conf: SchedulerConf) -> tuple[Patience, list[str]]:
    """What the arguments of the actions say (``configurations:``), and what of it cannot be counted."""
    complaints: list[str] = []

    def duration(action: str, key: str, usual: float, words: str) -> float:
        text = conf.action(action).text(key)
        try:
            return parse_duration(text) if text else usual
        except ValueError as error:
            complaints.append(f"configuration {action}: {key}: {error}; {words}")
            return usual

    promise = duration("enqueue", PROMISE_FOR, FOR_EVER, "promises are kept for ever")
    return Patience(promise, duration("allocate", LEAVING_FOR, LEAVING, "5m is used")), complaints


# -- the agenda --------------------------------------------------------------------------------------------------------


RETELL_AFTER = 30.0
"""Seconds between two times that sleepers hear anew why they wait because the nodes changed (spec volcano-core 25)."""


@dataclass(slots=True)
class Agenda:
    """Which jobs have a reason to be looked at, and which status has to be written."""

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
    patience: Patience = field(default_factory=Patience)
    promises: dict[Job, float] = field(default_factory=dict)
    """Jobs that were tried without success, and when their promises end, where they do; the earliest first."""
    alarm: float = FOR_EVER
    """When time alone changes what some plugin says; they set the next one in each cycle."""
    next_due: float = FOR_EVER
    """No job waits for an earlier time than this."""
    released: bool = False
    """Something was released since jobs were last woken for it."""
    lending_due: bool = False
    """There was no time to lend to those who wait for it: the next cycle is due at once."""
    woken_at: int = -1
    """How far the table's gains have been offered to every sleeping class."""
    told_nodes: int = 0
    """Version of the nodes when sleepers were last told why they wait: their reasons count the nodes."""
    hoped_nodes: int = -1
    """Version of the nodes when those that take part were last asked whether there is hope for their pods again."""
    retell_at: float = 0.0
    """They are not told anew before then, for that writes to every one of them."""

    # -- what has happened ----------------------------------------------------------------------------------------

    def touch(self, job: Job) -> None:
        """Something of the job changed. One without PodGroup and without pending pods (a running bare pod, most often) has
        no status to write and nothing to try: only its queue is told."""
        if job.group is None and not job.pending:
            job.settle()
            self.settled[job.queue.name] = None
            self.waiting.pop(job, None)
            return
        self.dirty[job] = None
        self.activate(job)

    def look_at(self, job: Job) -> None:
        """Its status may have to be written at the end of the cycle."""
        self.dirty[job] = None

    def look_at_queues(self, names: Iterable[str]) -> None:
        """What they and those above them hold together may have to be written."""
        self.settled.update(dict.fromkeys(names))

    def wake_waiting(self) -> None:
        """Resources were released or promises changed: whoever waits for room may try again in the next cycle."""
        self.released = True

    def forget(self, job: Job) -> None:
        """Nothing is left of the job."""
        self.dirty.pop(job, None)
        self.waiting.pop(job, None)
        self.promises.pop(job, None)

    def start_over(self, jobs: Collection[Job], patience: Patience) -> None:
        """Another configuration decides now: everybody may try again."""
        self.patience, self.alarm = patience, FOR_EVER
        self.promises.clear()
        self.sleeping.clear()
        self.unexplained.clear()
        self.woken_at = -1
        for queue in {job.queue for job in jobs}:
            queue.active.start_over()
        for job in jobs:
            job.sort_key = None
            self.activate(job)

    # -- who takes part -------------------------------------------------------------------------------------------

    def activate(self, job: Job) -> None:
        """Let the job take part in the next cycle, unless its PodGroup is still to come."""
        self.waiting.pop(job, None)
        if (job.pending and job.implicit) or (job.group is not None and (job.pending or job.is_pending())):
            job.queue.active.join(job)

    def dismiss(self, job: Job) -> None:
        """Leave the job alone until it changes itself."""
        job.queue.active.leave(job)

    def wait(self, job: Job, until: float) -> None:
        """Leave the job alone until then (or until resources are released)."""
        self.dismiss(job)
        self.waiting[job] = until
        self.next_due = min(self.next_due, until)

    def sleep(self, job: Job, classes: Iterable[PodClass]) -> None:
        """Leave the job alone until one of these classes may fit somewhere."""
        self.dismiss(job)
        for cls in classes:
            self.sleeping.setdefault(cls, {})[job] = None

    def wake(self, cls: PodClass) -> None:
        for job in self.sleeping.pop(cls, {}):
            if job.known:
                self.activate(job)

    def offer(self, news: int, asleep: Callable[[PodClass], bool], late: Callable[[], bool]) -> None:
        """Wake the classes that something helped, as far as the time allows; the others come next time."""
        for cls in list(self.sleeping):
            if asleep(cls):
                self.sleeping[cls] = self.sleeping.pop(cls)  # to the end of the row
            else:
                self.wake(cls)
            if late():
                return
        self.woken_at = news

    def wake_due(self, now: float) -> None:
        """A cycle begins: activate the jobs whose time has come, and after a release those that wait for room."""
        self.alarm = FOR_EVER
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
            self.next_due = min(self.waiting.values(), default=FOR_EVER)

    def ring_at(self, when: float) -> None:
        """Whatever happens until then, a cycle is due."""
        self.alarm = min(self.alarm, when)

    def lend_later(self) -> None:
        """There is no time to lend in this cycle."""
        self.lending_due = True

    def lend_now(self) -> None:
        """There is time again to lend to those for whom there was none, cycles ago."""
        if self.lending_due:
            self.lending_due = False
            self.wake_waiting()

    def close(self) -> None:
        """A cycle has written what there was to write."""
        self.dirty.clear()
        self.settled.clear()

    # -- promises -------------------------------------------------------------------------------------------------

    def bound_promise(self, job: Job, now: float) -> None:
        """The job was tried, and found no room."""
        if job.inqueue and job.phase == INQUEUE and self.patience.promise < FOR_EVER:
            self.promises.setdefault(job, now + self.patience.promise)

    def end_promise(self, job: Job) -> None:
        """Nothing is promised to the job any longer until it is started anew; others may have it."""
        self.promises.pop(job, None)
        if job.inqueue and job.phase == INQUEUE and job.known:
            job.rest()
            self.dirty[job] = None
            self.wake_waiting()

    # -- reasons --------------------------------------------------------------------------------------------------

    def ask_why(self, task: Task) -> None:
        """No node took the pod, and why is to be worked out."""
        task.puzzling = True
        self.unexplained.setdefault(task.cls, {})[task] = None

    def take_unexplained(self, cls: PodClass) -> Iterable[Task]:
        """The pods of a class that wait for their reason, which the caller works out now."""
        return self.unexplained.pop(cls)

    def forget_pod(self, task: Task) -> None:
        if task.cls in self.unexplained:
            self.unexplained[task.cls].pop(task, None)

    def other_nodes(self, version: int) -> bool:
        """Whether nodes came, went or changed since this was asked last."""
        before, self.hoped_nodes = self.hoped_nodes, version
        return before != version

    def retell(self, version: int, now: float) -> None:
        """Nodes came, went or changed, and sleepers still hear of the ones before: work their reasons out anew."""
        if self.told_nodes == version or (self.sleeping and now < self.retell_at):
            return
        self.told_nodes = version
        if not self.sleeping:
            return
        self.retell_at = now + RETELL_AFTER
        for cls, jobs in self.sleeping.items():
            self.unexplained.setdefault(cls, {})
            for job in jobs:
                for task in job.pending.values():
                    if task.cls is cls and task.error:
                        self.ask_why(task)

    # -- when a cycle is due --------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """No job waits for an earlier time than this, and no promise ends before."""
        return min(self.next_due, self.alarm, next(iter(self.promises.values()), FOR_EVER))

    def pressing(self, news: int) -> bool:
        """Whether somebody who does not take part may get a place or a reason."""
        return bool(
            self.unexplained
            or ((self.released or self.lending_due) and self.waiting)
            or ((self.sleeping or self.waiting) and news != self.woken_at)
        )

    def outdated(self, version: int) -> bool:
        """Whether sleepers were told reasons that count other nodes than there are now."""
        return bool(self.sleeping) and self.told_nodes != version
