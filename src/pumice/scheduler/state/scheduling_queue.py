"""The scheduling queue: why and when a job is tried again, as one table.

A job is active, in backoff, unschedulable with a hint, gated, nominated, reserved, or idle. What happens to it is an event, and
``TRANSITIONS`` says where each event leads from where. Only ``SchedulingQueue`` moves jobs; engine, cycle and the other parts of
the state say what has happened. Compare kube-scheduler's pkg/scheduler/backend/queue and its queueing hints.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec import Struct

from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import INQUEUE, Job, Status, Task
from pumice.scheduler.state.waiting import never
from pumice.wire.quantity import parse_duration
from pumice.wire.scheduler_conf import SchedulerConf

FOR_EVER: Final = float("inf")
RENEW_AFTER: Final = 30.0
"""Seconds between two renewals (``SchedulingQueue.renew``)."""


# -- the table ------------------------------------------------------------------------------------------------------------


class JobState(Enum):
    """A job's state in the scheduling queue."""

    IDLE = auto()
    """Nothing of it is to be tried."""
    ACTIVE = auto()
    """The next cycle tries it."""
    BACKOFF = auto()
    """The API server refused a write for it: it is tried again after a pause, whatever is released meanwhile."""
    UNSCHEDULABLE = auto()
    """It was tried in vain, and its hint says what may help."""
    GATED = auto()
    """It cannot start, whatever is released: gates, missing members or PodGroup, or pods that no node can ever take."""
    NOMINATED = auto()
    """All its pending pods have a place promised, and wait for evicted pods to be gone."""
    RESERVED = auto()
    """A gang of which a part has places, kept from others until the rest is released: it takes part in every cycle."""

    __hash__ = object.__hash__  # Enum's own is a Python function


class QueueEvent(Enum):
    """The events that move a job. Six happen between cycles, a refused write at any time; the others are verdicts of a cycle."""

    CHANGED = auto()
    """The job, its PodGroup, its queue or a pod of it changed; or another configuration decides."""
    RELEASED = auto()
    """Resources, a share of a queue or a promise were released."""
    FITS = auto()
    """The hint of a class says that a node may take its pods now."""
    ELSEWHERE = auto()
    """Storage changed, or pods came or went that others select."""
    DUE = auto()
    """The time of its hint has come."""
    CYCLE_OPENS = auto()
    WRITE_REFUSED = auto()
    """The API server refused a Binding, or the removal of a gate."""
    UNPLACED = auto()
    """It was tried and lacks something that others may release."""
    INVALID = auto()
    """Only a change of the job itself can help it."""
    PART_PLACED = auto()
    """A part of its gang has places."""
    NOMINATED = auto()
    """Pods were evicted for all that it still lacks."""
    NOTHING_LEFT = auto()
    """It was tried, and no pod of it is pending."""

    __hash__ = object.__hash__


class Transition(NamedTuple):
    sources: frozenset[JobState]
    target: JobState


_ANY: Final = frozenset(JobState)
_ASIDE: Final = _ANY - {JobState.ACTIVE}
TRANSITIONS: Final[Mapping[QueueEvent, Transition]] = {
    QueueEvent.CHANGED: Transition(_ANY, JobState.ACTIVE),
    QueueEvent.RELEASED: Transition(frozenset({JobState.UNSCHEDULABLE, JobState.RESERVED}), JobState.ACTIVE),
    QueueEvent.FITS: Transition(frozenset({JobState.UNSCHEDULABLE}), JobState.ACTIVE),
    QueueEvent.ELSEWHERE: Transition(frozenset({JobState.UNSCHEDULABLE, JobState.RESERVED}), JobState.ACTIVE),
    QueueEvent.DUE: Transition(_ASIDE, JobState.ACTIVE),
    QueueEvent.CYCLE_OPENS: Transition(frozenset({JobState.RESERVED}), JobState.ACTIVE),
    QueueEvent.WRITE_REFUSED: Transition(_ANY, JobState.BACKOFF),
    QueueEvent.UNPLACED: Transition(_ANY, JobState.UNSCHEDULABLE),
    QueueEvent.INVALID: Transition(_ANY, JobState.GATED),
    QueueEvent.PART_PLACED: Transition(_ANY, JobState.RESERVED),
    QueueEvent.NOMINATED: Transition(_ANY, JobState.NOMINATED),
    QueueEvent.NOTHING_LEFT: Transition(_ANY, JobState.IDLE),
}
"""By event the states that it moves a job from, and to where; from any other state it moves none. A job that has nothing to be
tried is idle or nominated after CHANGED."""


def after(state: JobState, event: QueueEvent) -> JobState:
    """Return where a job stands after an event."""
    sources, target = TRANSITIONS[event]
    return target if state in sources else state


class Hint(Struct, frozen=True):
    """The help that a resting job waits for: a release, a node that one of its classes fits, or nothing but the time."""

    until: float = FOR_EVER
    released: bool = False
    classes: tuple[PodClass, ...] = ()


NO_HINT: Final = Hint()


class Attempt(Struct, eq=False, gc=False):
    """The findings of the running cycle about one job."""

    tried: bool = False
    """Its pods were tried, or it is known why they are not: at the end it goes where the verdict leads."""
    finished: bool = False
    """All its pods were tried, whatever time was left."""
    blocked: bool = False
    """Its queue or the enqueue check refused it."""
    short_of_share: bool = False
    """There is room for its pods, but not within the share of their queue."""
    invalid: bool = False
    """It lacks pods: only a change of the job itself can help."""
    discarded: bool = False
    """The gang was tried and taken back: it waits for whatever is released."""
    pipelined: bool = False
    """The gang has places in part on what is being released: they are kept from others until the cycle ends."""
    postponed: bool = False
    """It stays active: there was no time to go on with it."""
    explained: bool = False
    """Some of its pods got their reason."""
    planned: bool = False
    """It is one pod that was looked at to be laid out with others (``cycle/planning``)."""
    behind: Job | None = None
    """It gets no place by that layout, and comes after this job."""

    @property
    def learnt(self) -> bool:
        """Return whether the cycle has something new to say of the job."""
        return self.tried or self.blocked or self.explained


UNTRIED: Final = Attempt()
"""Of a job that the cycle has not looked at; only to be read."""


Seen = tuple[int, int, int, int, int, int]
"""The gains of nodes, the arrivals of pods, the changes of storage, the departures and the changes of claims and of DeviceClasses
that a class of pods has seen."""


class _Resting(NamedTuple):
    state: JobState
    hint: Hint


# -- limits from the configuration ----------------------------------------------------------------------------------------

NOMINATION_FOR: Final = "pumice.promise-for"
LEAVING_FOR: Final = "pumice.leaving-for"
LEAVING: Final = 300.0


@dataclass(frozen=True, slots=True)
class Patience:
    """The time that others must wait for what one job was promised, in seconds. Upstream waits for ever; the configuration may
    bound it. ``nomination``: an Inqueue job that found no room keeps the reservation of its minimum for so long."""

    nomination: float = FOR_EVER
    leaving: float = LEAVING
    """``leaving``: a terminating pod is waited for so much longer than its grace period."""


def patience_of(conf: SchedulerConf) -> tuple[Patience, list[str]]:
    """Return what the arguments of the actions say (``configurations:``), and complaints about what cannot be parsed."""
    complaints: list[str] = []

    def duration(action: str, key: str, usual: float, words: str) -> float:
        text = conf.action(action).text(key)
        try:
            return parse_duration(text) if text else usual
        except ValueError as error:
            complaints.append(f"configuration {action}: {key}: {error}; {words}")
            return usual

    nomination = duration("enqueue", NOMINATION_FOR, FOR_EVER, "promises are kept for ever")
    return Patience(nomination, duration("allocate", LEAVING_FOR, LEAVING, "5m is used")), complaints


# -- the queue ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SchedulingQueue:
    """All jobs by their state, and what else makes a cycle due: statuses and reasons to be written, and times."""

    attempts: defaultdict[Job, Attempt] = field(default_factory=lambda: defaultdict(Attempt))
    """Of the running cycle; empty between cycles."""
    unschedulable: dict[PodClass, Seen] = field(default_factory=dict)
    """Classes that fitted nowhere, with what they had seen by then (``Placer.is_unschedulable``)."""
    unschedulable_now: list[PodClass] = field(default_factory=list)
    """Those that became so in the running cycle."""
    unresolvable: dict[PodClass, int] = field(default_factory=dict)
    """Classes that no node can hold, whatever leaves, by the version of the nodes of which that was found."""
    dirty: dict[Job, None] = field(default_factory=dict)
    """Jobs whose status must be looked at when the cycle closes."""
    recounted: dict[str, None] = field(default_factory=dict)
    """Queues whose sums changed through jobs that have no status to write."""
    unexplained: dict[PodClass, dict[Task, None]] = field(default_factory=dict)
    """Pods that fitted nowhere and whose reason is still to be worked out: beside the placing, not in its way."""
    patience: Patience = field(default_factory=Patience)
    reserved: Mapping[Job, frozenset[int]] = field(default_factory=dict)
    """Gangs of which the last cycle held a part (the rest waits for something to be released), with their rows."""
    renewals: int = 0
    """The number of renewals so far. A pod's condition of which only numbers changed is written once for each."""
    _renew_at: float = 0.0
    """The next renewal is not before then, for it writes to every waiting pod."""
    _put_off: dict[Job, None] = field(default_factory=dict)
    """Jobs with a condition of which only numbers changed, which the next renewal writes."""
    _resting: dict[Job, _Resting] = field(default_factory=dict)
    """Jobs that are neither active nor idle. A queue's active jobs stand in its line (``QueueState.active``)."""
    _timed: dict[Job, float] = field(default_factory=dict)
    """Of those, the ones whose hint names a time."""
    _by_class: dict[PodClass, dict[Job, None]] = field(default_factory=dict)
    """Of those, the ones whose hint names classes."""
    _inqueue_until: dict[Job, float] = field(default_factory=dict)
    """Inqueue jobs that were tried in vain, and when the reservation of their minimum ends, where it does; the earliest first."""
    _cycle_at: float = FOR_EVER
    """Time at which some plugin says something else though nothing happens; plugins set it in each cycle."""
    _next_due: float = FOR_EVER
    """No job rests until an earlier time than this."""
    _released: bool = False
    """Something was released since jobs were last activated for it."""
    _lending_due: dict[Job, None] = field(default_factory=dict)
    """Jobs to which a cycle had no time to lend: they are tried again once there is time, from the next cycle on."""
    _lending_next: bool = False
    """Everybody within a share was tried: those are tried when the next cycle opens."""
    _elsewhere: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Changes of storage, of claims and of pods that others select, as far as jobs that mind them have seen them."""
    _offered: int = -1
    """Revision up to which gains have been offered to every unschedulable class."""
    _offering: int = -1
    _unasked: dict[PodClass, None] = field(default_factory=dict)
    """Classes for which there was no time yet when the gain ``_offering`` was offered."""
    _counted_nodes: int = 0
    """Version of the nodes at the last renewal."""
    _resolved_nodes: int = -1
    """Version of the nodes when active jobs were last asked whether there is hope for their pods again."""

    # -- what has happened ----------------------------------------------------------------------------------------

    def changed(self, job: Job) -> None:
        """Something of the job changed. One without PodGroup and without pending pods (a running bare pod, most often) has
        no status to write and nothing to try: only its queue's status is due."""
        if job.group is None and not job.pending:
            job.recount()
            self.recounted[job.queue.name] = None
            if job in self._resting:
                self.activate(job)
            return
        self.dirty[job] = None
        self.activate(job)

    def activate(self, job: Job) -> None:
        """Let the next cycle try the job, unless its PodGroup is still to come."""
        if job in self._resting:
            self._leave(job)
        if (job.pending and job.implicit) or (job.group is not None and (job.pending or job.is_pending())):
            job.queue.active.join(job)
        elif job.counts[Status.PIPELINED] and job not in job.queue.active:
            self._resting[job] = _Resting(JobState.NOMINATED, NO_HINT)

    def released(self) -> None:
        """Resources were released or nominations changed: jobs that wait for that may try again in the next cycle."""
        self._released = True

    def released_to(self, jobs: Iterable[Job]) -> None:
        """Activate those of the jobs that wait for a release: what was kept from them when they were tried is free again."""
        self._happens(QueueEvent.RELEASED, [job for job in jobs if job in self._resting and self._resting[job].hint.released])

    def write_status(self, job: Job) -> None:
        """The job's status may have to be written at the end of the cycle."""
        self.dirty[job] = None

    def write_queues(self, names: Iterable[str]) -> None:
        """The status of these queues, and of those above them, may have to be written."""
        self.recounted.update(dict.fromkeys(names))

    def forget(self, job: Job) -> None:
        """Nothing is left of the job."""
        self.dirty.pop(job, None)
        self._put_off.pop(job, None)
        self._inqueue_until.pop(job, None)
        if job in self._resting:
            self._leave(job)

    def start_over(self, jobs: Collection[Job], patience: Patience) -> None:
        """Another configuration decides now: every job may try again."""
        self.patience, self._cycle_at, self._offered, self._offering = patience, FOR_EVER, -1, -1
        for memory in (self._inqueue_until, self._put_off, self._unasked, self._lending_due, self.unexplained,
                       self.unschedulable, self.unresolvable):  # fmt: skip
            memory.clear()
        self.reserved = {}
        for queue in {job.queue for job in jobs}:
            queue.active.start_over()
        for job in jobs:
            job.sort_key = None
            self.activate(job)

    # -- transitions ----------------------------------------------------------------------------------------------

    def state_of(self, job: Job) -> JobState:
        found = self._resting.get(job)
        if found is not None:
            return found.state
        return JobState.ACTIVE if job in job.queue.active else JobState.IDLE

    def rest(self, job: Job, event: QueueEvent, hint: Hint = NO_HINT) -> None:
        """Move the job to where the event leads, until what the hint names happens, or the job changes."""
        state = after(self.state_of(job), event)
        job.queue.active.leave(job)
        if job in self._resting:
            self._leave(job)
        if state is JobState.IDLE:
            return
        self._resting[job] = _Resting(state, hint)
        if hint.until < FOR_EVER:
            self._timed[job] = hint.until
            self._next_due = min(self._next_due, hint.until)
        for cls in hint.classes:
            self._by_class.setdefault(cls, {})[job] = None

    def _leave(self, job: Job) -> None:
        """The job rests no longer."""
        _, hint = self._resting.pop(job)
        self._timed.pop(job, None)
        for cls in hint.classes:
            jobs = self._by_class[cls]
            del jobs[job]
            if not jobs:
                del self._by_class[cls]

    def _happens(self, event: QueueEvent, jobs: Iterable[Job]) -> None:
        """Activate those of the jobs that the event moves."""
        for job in list(jobs):
            if after(self._resting[job].state, event) is JobState.ACTIVE:
                self.activate(job)

    def open(self, now: float) -> None:
        """A cycle begins: activate the jobs whose time has come, and after a release those that wait for one."""
        self._cycle_at = FOR_EVER
        while self._inqueue_until and next(iter(self._inqueue_until.values())) <= now:
            self.end_inqueue(next(iter(self._inqueue_until)))
        if self._lending_next:
            due, self._lending_due, self._lending_next = self._lending_due, {}, False
            self.released_to(due)
        if self._released:
            self._released = False
            self._happens(QueueEvent.RELEASED, [job for job in self._timed if self._resting[job].hint.released])
        if self._next_due <= now:
            self._happens(QueueEvent.DUE, [job for job, until in self._timed.items() if until <= now])
            self._next_due = min(self._timed.values(), default=FOR_EVER)

    def take_reserved(self) -> None:
        """Gangs that hold a part take it again before other jobs see it as free."""
        self._happens(QueueEvent.CYCLE_OPENS, [job for job in self.reserved if job in self._resting])

    def keep_reserved(self, job: Job, rows: Iterable[int]) -> None:
        """A search over cycles held these rows for the gang until now."""
        self.reserved = {**self.reserved, job: self.reserved.get(job, frozenset()) | frozenset(rows)}

    def reserve(self, rows: Mapping[Job, frozenset[int]]) -> None:
        """A cycle ends in which these gangs held a part, on these rows."""
        self.reserved = rows

    def offer_elsewhere(self, seen: tuple[int, int, int, int]) -> None:
        """Activate the jobs that wait for a time and mind storage, claims or other pods, where such have changed."""
        before, self._elsewhere = self._elsewhere, seen
        minding = [] if before == seen else [
            job for job in self._timed
            if any(t.cls.constraints.awaits_pods or t.cls.constraints.claims or t.cls.device_claims for t in job.pending.values())
        ]  # fmt: skip
        self._happens(QueueEvent.ELSEWHERE, minding)

    def offer(self, news: int, unschedulable: Callable[[PodClass], bool], late: Callable[[], bool]) -> None:
        """Activate the jobs of classes whose hint says that something helped, as far as the time allows; the others come next
        time. ``news`` is the number of the last gain."""
        if self._offered == news:
            return
        if self._offering != news:  # classes that an earlier gain was not offered to come first
            self._offering, self._unasked = news, {**self._unasked, **dict.fromkeys(self._by_class)}
        for cls in list(self._unasked):
            del self._unasked[cls]
            if cls in self._by_class and not unschedulable(cls):  # else its jobs were activated for another class of theirs
                self._happens(QueueEvent.FITS, self._by_class[cls])
            if self._unasked and late():
                return
        self._offered = news

    def close(self) -> None:
        """A cycle has written what there was to write."""
        self.attempts.clear()
        self.unschedulable_now.clear()
        self.dirty.clear()
        self.recounted.clear()

    # -- lending, and reservations of Inqueue jobs -----------------------------------------------------------------

    def lend_later(self, jobs: Iterable[Job]) -> None:
        """There is no time to lend to these jobs in this cycle."""
        self._lending_due.update(dict.fromkeys(jobs))

    def lend_now(self) -> None:
        """Everybody within a share was tried: the jobs for which there was no time to lend come next."""
        self._lending_next = bool(self._lending_due)

    def bound_inqueue(self, job: Job, now: float) -> None:
        """The Inqueue job was tried in vain: the reservation of its minimum ends after a while."""
        if job.inqueue and job.phase == INQUEUE and self.patience.nomination < FOR_EVER:
            self._inqueue_until.setdefault(job, now + self.patience.nomination)

    def end_inqueue(self, job: Job) -> None:
        """Nothing is promised to the job any longer until it is enqueued anew; others may have it."""
        self._inqueue_until.pop(job, None)
        if job.inqueue and job.phase == INQUEUE and job.known:
            job.rest()
            self.dirty[job] = None
            self.released()

    # -- reasons --------------------------------------------------------------------------------------------------

    def ask_why(self, task: Task) -> None:
        """No node took the pod, and why is to be worked out."""
        task.unexplained = True
        self.unexplained.setdefault(task.cls, {})[task] = None

    def take_unexplained(self, cls: PodClass) -> Iterable[Task]:
        """Return the pods of a class that wait for their reason, which the caller works out now."""
        return self.unexplained.pop(cls)

    def forget_pod(self, task: Task) -> None:
        if task.cls in self.unexplained:
            self.unexplained[task.cls].pop(task, None)

    def nodes_changed(self, version: int) -> bool:
        """Return whether nodes came, went or changed since this was asked last."""
        before, self._resolved_nodes = self._resolved_nodes, version
        return before != version

    def put_off(self, job: Job) -> None:
        """Only numbers changed in what a pod of the job was told: that is written with the next renewal."""
        self._put_off[job] = None

    def renew(self, version: int, now: float) -> None:
        """Renew reasons if it is time to. A reason is worked out when its pod is tried, and written at once where its words
        change. Whatever else changes in it waits for a renewal: where nodes came, went or changed, the reasons of those that
        nobody tries again soon are worked out anew, and what was put off is written. A nominated pod's names its node and counts
        none."""
        outdated = self.outdated(version)
        if not self._resting:
            self._counted_nodes = version  # who is active is tried in this cycle
        if now < self.renews_at(version):
            return
        self._counted_nodes = version
        self.renewals += 1
        self._renew_at = now + RENEW_AFTER
        for job in self._put_off:
            self.attempts[job].explained = True
        self._put_off.clear()
        for job in self._resting if outdated else ():
            for task in job.pending.values():
                if task.error and (never(task) or job in self._by_class.get(task.cls, ())):
                    self.ask_why(task)

    def renews_at(self, version: int) -> float:
        """Return when the next renewal is due; infinity where nobody was told anything that is another now."""
        return self._renew_at if self._put_off or self.outdated(version) else FOR_EVER

    # -- when a cycle is due --------------------------------------------------------------------------------------

    def cycle_at(self, when: float) -> None:
        """Whatever happens until then, a cycle is due at that time."""
        self._cycle_at = min(self._cycle_at, when)

    @property
    def due(self) -> float:
        """Return the earliest time at which a job, a reservation or a plugin needs a cycle; infinity where none does."""
        first = next(iter(self._inqueue_until.values()), FOR_EVER)
        return min(self._next_due if self._timed else FOR_EVER, self._cycle_at, first)

    def pressing(self, news: int) -> bool:
        """Return whether a job that is not active may get a place or a reason."""
        return bool(
            self.unexplained
            or self._lending_due
            or (self._released and self._timed)
            or ((self._by_class or self._timed) and news != self._offered)
        )

    def outdated(self, version: int) -> bool:
        """Return whether unschedulable pods were told reasons that count other nodes than there are now."""
        return bool(self._resting) and self._counted_nodes != version

    # -- invariants -----------------------------------------------------------------------------------------------

    def validate(self, jobs: Iterable[Job]) -> Iterator[str]:
        """Yield what does not hold between cycles: each job is in one state, its hint and the indexes agree, and no job with
        something to be tried is forgotten."""
        timed = {job: resting.hint.until for job, resting in self._resting.items() if resting.hint.until < FOR_EVER}
        if timed != self._timed:
            yield "the index of times is not that of the hints"
        if self._next_due > min(timed.values(), default=FOR_EVER):
            yield "a job rests until an earlier time than a cycle is due"
        by_class = {(cls, job) for job, resting in self._resting.items() for cls in resting.hint.classes}
        if by_class != {(cls, job) for cls, there in self._by_class.items() for job in there} or not all(self._by_class.values()):
            yield "the index of classes is not that of the hints"
        if self.attempts:
            yield "attempts outlive their cycle"
        known = set(jobs)
        for job, (state, hint) in self._resting.items():
            if job not in known or not job.known:
                yield f"{job.key} is gone and still {state.name}"
            if job in job.queue.active:
                yield f"{job.key} is active and {state.name}"
            if state in (JobState.IDLE, JobState.ACTIVE):
                yield f"{job.key} rests and is {state.name}"
            if state in (JobState.BACKOFF, JobState.RESERVED) and hint.until == FOR_EVER:
                yield f"{job.key} is {state.name} without a time"
            if state is JobState.UNSCHEDULABLE and hint == NO_HINT:
                yield f"{job.key} is unschedulable and nothing would help it"
            if hint.released and hint.until == FOR_EVER:
                yield f"{job.key} waits for a release alone"  # what nobody thought of is caught by the time
        for job in known:
            for other in job.queue.active:
                if other not in known:
                    yield f"{other.key} is gone and still active"
            if job.pending and (job.implicit or job.group is not None) and self.state_of(job) is JobState.IDLE:
                yield f"{job.key} has pending pods and is forgotten"
