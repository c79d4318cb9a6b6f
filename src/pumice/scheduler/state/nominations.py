"""Places kept beyond a cycle: nominations, evictions that make their room, and nodes held for gangs.

A nominated pod waits, with its status Pipelined, for evicted pods to be gone. In the present its place is held on top of theirs,
in the future it is free for nobody else; no Binding rests on it before they are gone (``cycle/preemption/nominating``).
A node is held for a gang for the configured time at most (plugin gang-reservation), and then for nobody until it was open to all
for as long as it was held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice.effects.backoff import Backoff
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.ledger import Ledger, Receipt
from pumice.scheduler.state.resources import Vector
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.scheduler.state.tasks import NO_BACKOFF, Retry, Status

# -- nominations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Nominated:
    """A nomination. ``awaits``: uids of those who are still to leave."""

    task: Task
    node: str
    awaits: set[str]


@dataclass(slots=True)
class Nominations:
    """By the uid of the pod that waits."""

    ledger: Ledger
    scheduling_queue: SchedulingQueue
    kept: dict[str, Nominated] = field(default_factory=dict)
    ripe: dict[Job, None] = field(default_factory=dict)
    """Jobs for whose pods somebody has left since they were last looked at."""
    on_trust: dict[Job, None] = field(default_factory=dict)
    """Those whose places are free, and whose queue has room for them only if somebody else goes, too."""
    seen: int = -1
    """The placer's news at which those who wait were last offered what is free."""
    lapsed: list[Task] = field(default_factory=list)
    """Pods that were nominated in vain: their nomination is still to be taken back."""
    _awaited: dict[str, dict[str, None]] = field(default_factory=dict)
    """By who is to leave, the pods that wait for it."""

    def keep(self, task: Task, awaits: Iterable[str]) -> None:
        """A pod that was nominated in this cycle keeps it."""
        self.ledger.keep_nomination(task.uid)
        found = self.kept[task.uid] = Nominated(task, task.node, set(awaits))
        task.nominated = found.node
        for uid in found.awaits:
            self._awaited.setdefault(uid, {})[task.uid] = None
        if not found.awaits and task.job is not None:
            self.ripe[task.job] = None

    def left(self, uid: str) -> None:
        """A pod is gone; those that waited for it may have their places."""
        for preemptor in self._awaited.pop(uid, {}):
            found = self.kept[preemptor]
            found.awaits.discard(uid)
            if found.task.job is not None:
                self.ripe[found.task.job] = None

    def answered(self) -> None:
        """An eviction is carried out, or refused: those that waited for that are looked at again."""
        self.ripe.update(self.on_trust)
        self.on_trust.clear()
        self.seen = -1

    def stays(self, uid: str) -> None:
        """A pod does not go after all: whoever was nominated for its place must look for another."""
        self.answered()
        for preemptor in list(self._awaited.get(uid, ())):
            if preemptor in self.kept:
                self.lapse_job(self.kept[preemptor].task)

    def lapse_job(self, task: Task) -> None:
        """The nomination holds no longer, nor do those of its gang, which would wait for it in vain."""
        members = [task] if task.job is None else [t for t in task.job.tasks.values() if t.uid in self.kept]
        for member in members:
            self.lapse(member)

    def lapse(self, task: Task) -> None:
        self.lapsed.append(task)
        self.take_back(task)

    def take_back(self, task: Task) -> None:
        """The pod waits for a place like any other; what was held for it is free."""
        self.withdraw(task)
        if task.job is not None:
            self.scheduling_queue.activate(task.job)
        self.scheduling_queue.released()

    def withdraw(self, task: Task, *, gain: bool = True) -> None:
        """The same of a nomination of which nobody was told."""
        self.forget(task.uid, gain=gain)
        task.node = task.nominated = ""
        if task.job is not None:
            task.job.move(task, Status.PENDING)
            self.scheduling_queue.write_status(task.job)

    def claimant_gone(self, uid: str) -> None:
        """The pod that waited is gone, or has a place: what its gang was promised beside it may await nobody now, and is looked
        at again."""
        found = self.kept.get(uid)
        self.forget(uid)
        if found is not None and found.task.job is not None:
            self.ripe[found.task.job] = None

    def forget(self, uid: str, *, gain: bool = True) -> None:
        """Drop a nomination. ``gain``: others are offered its place."""
        found = self.kept.pop(uid, None)
        if found is None:
            return
        for awaited in found.awaits:
            waiting = self._awaited.get(awaited, {})
            waiting.pop(uid, None)
            if not waiting:
                self._awaited.pop(awaited, None)
        self.ledger.unpipeline(uid, gain=gain)

    def put_by(self, task: Task) -> None:
        """The pod keeps beyond the cycle the idle place that it has on trial."""
        self.ledger.put_by(task.uid)
        self.kept[task.uid] = Nominated(task, task.node, set())

    def take_up(self, task: Task) -> Receipt:
        """The pod has on trial that for which it was nominated, for which nobody has to leave."""
        assert not self.kept[task.uid].awaits, "its place is not free yet"
        del self.kept[task.uid]
        return self.ledger.take_up(task.uid)

    def drop_node(self, name: str) -> None:
        """The node is gone, and the places on it."""
        for found in [found for found in self.kept.values() if found.node == name]:
            if found.task.uid in self.kept:
                self.lapse_job(found.task)

    def drop_all(self) -> None:
        """Another configuration decides now."""
        for found in list(self.kept.values()):
            self.take_back(found.task)


# -- evictions and terminating pods ------------------------------------------------------------------------------------


EVICT_AGAIN = Backoff(5.0, 60.0)
"""Seconds for which a pod is not told to go again after its eviction was refused: twice as many each time."""


@dataclass(slots=True)
class Eviction:
    """An eviction that was told. ``shown``: what the watch shows instead. ``queue`` was charged ``amounts`` for the pod until
    it was told to go."""

    task: Task
    receipt: Receipt
    shown: Status
    queue: QueueState
    amounts: Vector


@dataclass(slots=True)
class Search:
    """The search so far for a job of which not all pods have been tried: who shall go, and who was nominated for it.
    It is held in the ledger from cycle to cycle as if it were told, and nobody was told yet."""

    leaving: dict[str, str] = field(default_factory=dict)
    """Uids of pods, with the nodes that they leave."""
    preemptors: list[str] = field(default_factory=list)
    action: str = ""
    known: dict[Any, Any] = field(default_factory=dict)
    """Knowledge of the nodes, for the next cycle of the search."""
    choices: dict[str, Any] = field(default_factory=dict)
    """By the uid of a preemptor, the place that is idle and held for it."""
    revisions: dict[int, int] = field(default_factory=dict)
    """Rows on which something is held, as they were then; a row that has changed since is missing."""
    devices: int | None = 0
    """The state of devices that many nodes may use (``DevicesInUse.state``); None once somebody else has changed it."""
    nominated: dict[str, str] = field(default_factory=dict)
    """The nodes for which the API server says that preemptors are nominated."""
    passed_over: dict[str, None] = field(default_factory=dict)
    """Uids of pods that were tried and have no place; they are not tried again in this search."""
    failed_roles: set[str] = field(default_factory=set)
    short_of_share: bool = False
    """True where its queue lacked the share for one of them."""
    meanwhile: dict[Job, None] = field(default_factory=dict)
    """Other jobs that were tried while this was held."""


@dataclass(slots=True)
class TerminatingPods:
    """By the uid of the pod."""

    scheduling_queue: SchedulingQueue
    ledger: Ledger
    nominations: Nominations
    tasks: Mapping[str, Task]
    _evictions: dict[str, Eviction] = field(default_factory=dict)
    """Pods that are being evicted and of which the watch shows nothing of it yet."""
    gang_searches: dict[Job, Search] = field(default_factory=dict)
    """By the job for which room is being made."""
    _refused: dict[str, Retry] = field(default_factory=dict)
    """Pods whose eviction was refused, and until when they are left alone."""

    # -- evicted by us -----------------------------------------------------------------------------------------------

    def evicting(self, uid: str) -> Task | None:
        """The pod is going to be deleted: from now on it is Releasing, whatever older events say (Volcano
        pkg/scheduler/cache/cache.go), unless the eviction
        is refused. It stays charged until it is gone. None when it holds nothing."""
        task = self.tasks.get(uid)
        if task is None or task.job is None or uid not in self.ledger.placements:
            return None
        receipt = self.ledger.terminate(uid)
        if receipt is not None:
            self.expect(receipt, task, task.status)
        task.job.move(task, Status.RELEASING)
        self.scheduling_queue.write_status(task.job)
        return task

    def expect(self, receipt: Receipt, task: Task, shown: Status) -> None:
        """A pod was terminated in the ledger, and the watch still shows it as that."""
        assert task.job is not None
        self._evictions[receipt.uid] = Eviction(task, receipt, shown, task.job.queue, task.amounts)

    @property
    def unanswered(self) -> Collection[Eviction]:
        return self._evictions.values()

    def withdraw(self, job: Job, *, gain: bool = True) -> None:
        """There is no room for all of its pods: whoever was to go for them stays, and was told nothing. ``gain``: others are
        offered at once what was held; devices of claims always."""
        found = self.gang_searches.pop(job)
        for uid in found.leaving:
            task, eviction = self.tasks.get(uid), self._evictions.pop(uid, None)
            if task is not None and task.job is not None and eviction is not None:
                self.ledger.undo(eviction.receipt)
                task.job.move(task, eviction.shown)
                self.scheduling_queue.write_status(task.job)
        for uid in found.preemptors:
            if uid in self.nominations.kept:
                task = self.nominations.kept[uid].task
                self.nominations.withdraw(task, gain=gain or bool(task.cls.device_claims))
                task.nominated = found.nominated.get(uid, "")
        self.scheduling_queue.released_to(found.meanwhile)

    def eviction(self, uid: str) -> Eviction | None:
        """Return what is known of a pod that goes by our word; None where it is gone, or goes by another's."""
        return self._evictions.get(uid)

    def refused(self, uid: str, now: float) -> Task | None:
        """The pod stays after all: it is again what the watch last showed, and nobody asks for it for a while. None when it is
        going all the same."""
        task, eviction = self.tasks.get(uid), self._evictions.pop(uid, None)
        if task is None or task.job is None or eviction is None:
            return None
        self.ledger.undo(eviction.receipt)
        task.job.move(task, eviction.shown)
        self._refused[uid] = self._refused.get(uid, NO_BACKOFF).refused(now, EVICT_AGAIN)
        task.spared = True
        self.scheduling_queue.write_status(task.job)
        self.nominations.stays(uid)
        return task

    def ask_again(self, now: float) -> None:
        """Those that were left alone for long enough may be told again."""
        for uid, retry in self._refused.items():
            if retry.until <= now and uid in self.tasks:
                self.tasks[uid].spared = False

    # -- seen by the watch ----------------------------------------------------------------------------------------

    def seen(self, uid: str, status: Status) -> Status:
        """Return what the pod is, of which the watch shows that: what has begun to go does not come back by an older event."""
        if status in (Status.BOUND, Status.RUNNING) and self.ledger.is_terminating(uid):
            if uid in self._evictions:
                self._evictions[uid].shown = status
            return Status.RELEASING
        if status not in (Status.PENDING, Status.UNKNOWN):
            self._known(uid)  # it goes, or has ended, whatever becomes of our own eviction
        return status

    def _known(self, uid: str) -> None:
        """Note that its queue is charged for it no more: a job that waited for a share may have it."""
        if self._evictions.pop(uid, None) is not None:
            self.nominations.answered()
            self.scheduling_queue.released()

    def gone(self, uid: str) -> None:
        self._known(uid)
        self._refused.pop(uid, None)


# -- nodes held for gangs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation of nodes. ``since`` and ``until`` by the clock of the cycles."""

    job: Job
    nodes: frozenset[str]
    since: float
    until: float

    def binds(self, job: Job | None) -> bool:
        """Return whether that job is kept off the nodes: not the gang itself, nor who is more important, nor who never had its
        minimum either, is as important, of the same queue and older."""
        if job is None or job is self.job or job.priority > self.job.priority:
            return False
        alike = job.queue is self.job.queue and job.priority == self.job.priority and not job.stood
        return not (alike and job.order() < self.job.order())


@dataclass(slots=True)
class Reservations:
    """By the gang that they are for."""

    ledger: Ledger
    scheduling_queue: SchedulingQueue
    held: dict[Job, Reservation] = field(default_factory=dict)
    rest: dict[str, float] = field(default_factory=dict)
    """Nodes that are not held again before."""
    paused: dict[Job, float] = field(default_factory=dict)
    """Gangs for which nothing is held before: their time was over, or no nodes would take them."""
    again: float = 0.0
    """No nodes are looked for before."""
    read: bool = False
    """True once what an earlier scheduler held has been looked for."""

    def hold(self, found: Reservation) -> None:
        self.held[found.job] = found
        self.scheduling_queue.write_status(found.job)

    def end(self, job: Job, now: float) -> None:
        """The nodes are everybody's again."""
        found = self.held.pop(job)
        until = now + max(0.0, now - found.since)
        for node in found.nodes:
            self.rest[node] = until
            row = self.ledger.table.row_of.get(node)
            if row is not None:
                self.ledger.table.touch(row, gain=True)
        self.scheduling_queue.released()

    def tidy(self, now: float) -> None:
        """Forget what matters no longer."""
        self.rest = {node: until for node, until in self.rest.items() if until > now}
        self.paused = {job: until for job, until in self.paused.items() if until > now and job.known}

    def against(self, job: Job | None) -> Iterator[Reservation]:
        """Those that keep the job's pods off nodes."""
        return (found for found in self.held.values() if found.binds(job))
