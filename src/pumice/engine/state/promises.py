"""Places that are promised to pods beyond the cycle, until those who hold them are gone.

A pod for which room was made waits, with its status Pipelined, for pods that were told to go. In the present its place is held on
top of theirs, in the future it is free for nobody else; no Binding rests on it before they are gone. What becomes of it then, a
cycle decides (``cycle/room/redeeming``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pumice.engine.state.agenda import Agenda
from pumice.engine.state.holdings import Receipt
from pumice.engine.state.jobs import Job, Status, Task
from pumice.engine.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Promised:
    """``awaits``: uids of those who are still to leave."""

    task: Task
    node: str
    awaits: set[str]


@dataclass(slots=True)
class Promises:
    """By the uid of the pod that waits."""

    ledger: Ledger
    agenda: Agenda
    kept: dict[str, Promised] = field(default_factory=dict)
    ripe: dict[Job, None] = field(default_factory=dict)
    """Jobs for whose pods somebody has left since they were last looked at."""
    on_trust: dict[Job, None] = field(default_factory=dict)
    """Those whose places are free, and whose queue has room for them only if somebody else goes, too."""
    seen: int = -1
    """The placer's news at which those who wait were last offered what is free."""
    lapsed: list[Task] = field(default_factory=list)
    """Pods that were promised a place in vain: their nomination is still to be taken back."""
    _awaited: dict[str, dict[str, None]] = field(default_factory=dict)
    """By who is to leave, the pods that wait for it."""

    def keep(self, task: Task, awaits: Iterable[str]) -> None:
        """A pod that was promised a place in this cycle keeps it."""
        self.ledger.keep_promise(task.uid)
        found = self.kept[task.uid] = Promised(task, task.node, set(awaits))
        task.nominated = found.node
        for uid in found.awaits:
            self._awaited.setdefault(uid, {})[task.uid] = None
        if not found.awaits and task.job is not None:
            self.ripe[task.job] = None

    def left(self, uid: str) -> None:
        """A pod is gone; those that waited for it may have their places."""
        for claimant in self._awaited.pop(uid, {}):
            found = self.kept[claimant]
            found.awaits.discard(uid)
            if found.task.job is not None:
                self.ripe[found.task.job] = None

    def answered(self) -> None:
        """An eviction is carried out, or refused: those that waited for that are looked at again."""
        self.ripe.update(self.on_trust)
        self.on_trust.clear()
        self.seen = -1

    def stays(self, uid: str) -> None:
        """A pod does not go after all: whoever was promised its place must look for another."""
        self.answered()
        for claimant in list(self._awaited.get(uid, ())):
            if claimant in self.kept:
                self.lapse_job(self.kept[claimant].task)

    def lapse_job(self, task: Task) -> None:
        """The promise holds no longer, nor do those of its gang, which would wait for it in vain."""
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
            self.agenda.activate(task.job)
        self.agenda.wake_waiting()

    def withdraw(self, task: Task) -> None:
        """The same of a promise of which nobody was told."""
        self.forget(task.uid)
        task.node = task.nominated = ""
        if task.job is not None:
            task.job.move(task, Status.PENDING)
            self.agenda.look_at(task.job)

    def forget(self, uid: str) -> None:
        """The pod that waited is gone, or has a place."""
        found = self.kept.pop(uid, None)
        if found is None:
            return
        for awaited in found.awaits:
            waiting = self._awaited.get(awaited, {})
            waiting.pop(uid, None)
            if not waiting:
                self._awaited.pop(awaited, None)
        self.ledger.unpipeline(uid)

    def put_by(self, task: Task) -> None:
        """The pod keeps beyond the cycle the idle place that it has on trial."""
        self.ledger.put_by(task.uid)
        self.kept[task.uid] = Promised(task, task.node, set())

    def take_up(self, task: Task) -> Receipt:
        """The pod has on trial what it was promised, for which nobody has to leave."""
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
