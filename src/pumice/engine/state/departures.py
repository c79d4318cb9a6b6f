"""Pods that are told to go, those that are going, and those that were told in vain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice.engine.state.agenda import Agenda
from pumice.engine.state.holdings import Receipt
from pumice.engine.state.jobs import Job, QueueState, Task
from pumice.engine.state.ledger import Ledger
from pumice.engine.state.promises import Promises
from pumice.engine.state.resources import Vector
from pumice.engine.state.statuses import Status

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds for which a pod is not told to go again after its eviction was refused: twice as many each time."""


@dataclass(slots=True)
class Eviction:
    """``shown``: what the watch shows instead. ``queue`` was charged ``amounts`` for the pod until it was told to go."""

    task: Task
    receipt: Receipt
    shown: Status
    queue: QueueState
    amounts: Vector


@dataclass(slots=True)
class Search:
    """The search so far for a job of which not all pods have been tried: who shall go, and who was promised a place for it.
    It is held on the books from cycle to cycle as if it were told, and nobody was told yet."""

    leaving: dict[str, str] = field(default_factory=dict)
    """Uids of pods, with the nodes that they leave."""
    claimants: list[str] = field(default_factory=list)
    action: str = ""
    known: dict[Any, Any] = field(default_factory=dict)
    """Knowledge of the nodes, for the next cycle of the search."""
    choices: dict[str, Any] = field(default_factory=dict)
    """By the uid of a claimant, the place that is idle and held for it."""
    revisions: dict[int, int] = field(default_factory=dict)
    """Rows on which something is held, as they were then; a row that has changed since is missing."""
    nominated: dict[str, str] = field(default_factory=dict)
    """The nodes for which the API server says that claimants are nominated."""
    passed_over: dict[str, None] = field(default_factory=dict)
    """Uids of pods that were tried and have no place; they are not tried again in this search."""
    failed_roles: set[str] = field(default_factory=set)
    short_of_share: bool = False
    """Whether its queue lacked the share for one of them."""
    meanwhile: dict[Job, None] = field(default_factory=dict)
    """Other jobs that were tried while this was held."""


@dataclass(slots=True)
class Departures:
    """By the uid of the pod."""

    agenda: Agenda
    ledger: Ledger
    promises: Promises
    tasks: Mapping[str, Task]
    _evictions: dict[str, Eviction] = field(default_factory=dict)
    """Pods that are being evicted and of which the watch shows nothing of it yet."""
    untold: dict[Job, Search] = field(default_factory=dict)
    """By the job for which room is being made."""
    _until: dict[str, float] = field(default_factory=dict)
    """When terminating pods should be gone at the latest."""
    _refused: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Until when pods whose eviction was refused are left alone, and how often it was."""

    # -- told by us -----------------------------------------------------------------------------------------------

    def evicting(self, uid: str) -> Task | None:
        """The pod is going to be deleted: from now on it is Releasing, whatever older events say (spec 12.2), unless the eviction
        is refused. It stays charged until it is gone. None when it holds nothing."""
        task = self.tasks.get(uid)
        if task is None or task.job is None or uid not in self.ledger.holdings:
            return None
        receipt = self.ledger.terminate(uid)
        if receipt is not None:
            self.expect(receipt, task, task.status)
        task.job.move(task, Status.RELEASING)
        self.agenda.look_at(task.job)
        return task

    def expect(self, receipt: Receipt, task: Task, shown: Status) -> None:
        """A pod was terminated in the ledger, and the watch still shows it as that."""
        assert task.job is not None
        self._evictions[receipt.uid] = Eviction(task, receipt, shown, task.job.queue, task.amounts)

    @property
    def unanswered(self) -> Collection[Eviction]:
        return self._evictions.values()

    def withdraw(self, job: Job) -> None:
        """There is no room for all of its pods: whoever was to go for them stays, and was told nothing."""
        found = self.untold.pop(job)
        for uid in found.leaving:
            task, eviction = self.tasks.get(uid), self._evictions.pop(uid, None)
            if task is not None and task.job is not None and eviction is not None:
                self.ledger.undo(eviction.receipt)
                task.job.move(task, eviction.shown)
                self.agenda.look_at(task.job)
        for uid in found.claimants:
            if uid in self.promises.kept:
                task = self.promises.kept[uid].task
                self.promises.withdraw(task)
                task.nominated = found.nominated.get(uid, "")
        for other in found.meanwhile:
            if other in self.agenda.waiting:
                self.agenda.activate(other)

    def told(self, uid: str) -> Eviction | None:
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
        _, times = self._refused.get(uid, (0.0, 0))
        self._refused[uid] = (now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(times, 12)), times + 1)
        task.spared = True
        self.agenda.look_at(task.job)
        self.promises.stays(uid)
        return task

    def ask_again(self, now: float) -> None:
        """Those that were left alone for long enough may be told again."""
        for uid, (until, _) in self._refused.items():
            if until <= now and uid in self.tasks:
                self.tasks[uid].spared = False

    # -- seen by the watch ----------------------------------------------------------------------------------------

    def seen(self, uid: str, status: Status) -> Status:
        """What the pod is, of which the watch shows that: what has begun to go does not come back by an older event."""
        if status in (Status.BOUND, Status.RUNNING) and self.ledger.is_terminating(uid):
            if uid in self._evictions:
                self._evictions[uid].shown = status
            return Status.RELEASING
        if status not in (Status.PENDING, Status.UNKNOWN):
            self._known(uid)  # it goes, or has ended, whatever becomes of our own eviction
        return status

    def _known(self, uid: str) -> None:
        """What it held is its queue's no more: who waited for a share of it may have it."""
        if self._evictions.pop(uid, None) is not None:
            self.promises.answered()
            self.agenda.wake_waiting()

    def expected(self, uid: str, until: float) -> None:
        """The watch shows that the pod is going; it should be gone by then."""
        if uid not in self._until and self.ledger.is_terminating(uid):
            self._until[uid] = until

    @property
    def first_overdue(self) -> float:
        """When the first terminating pod should be gone."""
        return min(self._until.values(), default=float("inf"))

    def take_overdue(self, now: float) -> list[str]:
        """Terminating pods that have had their time; each is named once."""
        found = [uid for uid, until in self._until.items() if until <= now]
        for uid in found:
            del self._until[uid]
        return found

    def gone(self, uid: str) -> None:
        self._known(uid)
        self._until.pop(uid, None)
        self._refused.pop(uid, None)
