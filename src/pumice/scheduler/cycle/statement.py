"""A statement: tentative steps on the live ledger, taken back to any mark (Volcano pkg/scheduler/framework/statement.go).

Each step is a value: what was done to which pod, the ledger's receipt for it, and what the pod was before. There is one undo for
all of them, last step first, after which ledger, job and queue are what they were. What becomes of a statement is decided
elsewhere (``concluding``).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from msgspec import Struct

from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.claim_charges import ClaimCharge, Part
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.ledger import Placement, Receipt
from pumice.scheduler.state.resources import Vector
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import Status

Mark = NewType("Mark", int)
START = Mark(0)


class Before(NamedTuple):
    """The fields of one of our pods that a step changes."""

    status: Status
    node: str
    charged: Vector | None
    unresolvable: bool
    shared_claims: tuple[Part, ...] = ()


class Place(Struct, frozen=True):
    """The pod takes what is idle."""

    task: Task
    receipt: Receipt
    before: Before
    choice: Choice


class Nomination(Struct, frozen=True):
    """The pod is nominated for what is being released."""

    task: Task
    receipt: Receipt
    before: Before
    choice: Choice


class Evict(Struct, frozen=True):
    """The pod shall go: it stays charged on its node, what it holds can be nominated for, and its queue has its share back."""

    task: Task
    receipt: Receipt
    before: Before
    reason: str


class Lift(Struct, frozen=True):
    """The pod is off the ledger, for a question. ``task`` is None for one of another scheduler."""

    task: Task | None
    receipt: Receipt
    before: Before | None


Step = Place | Nomination | Evict | Lift


@dataclass(slots=True)
class Statement:
    """Steps in the order in which they were taken."""

    state: State
    framework: Framework
    steps: list[Step] = field(default_factory=list)
    evicts: int = 0
    """Number of steps that evict somebody."""

    def place(self, task: Task, choice: Choice) -> None:
        """Reserve the chosen cards and node for a pending pod."""
        before = _before(task)
        receipt = self.state.ledger.reserve(self._placement(task, choice))
        self._charge(task, choice)
        _move(task, Status.ALLOCATED, choice.node, unresolvable=False)
        self.steps.append(Place(task, receipt, before, choice))
        self.framework.placed(task)

    def put_by(self) -> None:
        """Keep beyond the cycle every place that was taken, as a nomination for which nobody has to leave."""
        for step in self.steps:
            if isinstance(step, Place):
                self.state.nominations.put_by(step.task)
                _move(step.task, Status.PIPELINED, step.choice.node, unresolvable=step.before.unresolvable)
                step.task.shared_claims = step.before.shared_claims
                step.task.charged = step.before.charged  # now that its queue has back what it was charged for these cards

    def take_up(self, task: Task, choice: Choice) -> None:
        """Give a pod the place that is kept for it and that nobody has to leave first."""
        before = Before(Status.PENDING, "", None, task.unresolvable)
        receipt = self.state.nominations.take_up(task)
        self._charge(task, choice)
        _move(task, Status.ALLOCATED, choice.node, unresolvable=False)
        self.steps.append(Place(task, receipt, before, choice))
        self.framework.placed(task)

    def nominate(self, task: Task, choice: Choice) -> None:
        """Nominate a pending pod for a place that is not free yet."""
        before = _before(task)
        receipt = self.state.ledger.pipeline(self._placement(task, choice))
        _move(task, Status.PIPELINED, choice.node, unresolvable=task.unresolvable)
        self.steps.append(Nomination(task, receipt, before, choice))
        self.framework.placed(task)

    def evict(self, task: Task, reason: str) -> bool:
        """Let a pod go that holds a place. False: it holds none for good, or goes already."""
        before = _before(task)
        receipt = None if task.status is Status.ALLOCATED else self.state.ledger.terminate(task.uid)
        if receipt is None:
            return False
        _move(task, Status.RELEASING, task.node, unresolvable=task.unresolvable)
        self.steps.append(Evict(task, receipt, before, reason))
        self.evicts += 1
        return True

    def lift(self, uid: str) -> None:
        """Take a pod off the ledger that holds its place for good, whoever scheduled it."""
        task = self.state.tasks.get(uid)
        tentative = task is not None and task.status in (Status.ALLOCATED, Status.PIPELINED)
        receipt = None if tentative else self.state.ledger.lift(uid)
        if receipt is None:
            return
        before = None if task is None else _before(task)
        if task is not None:
            _move(task, Status.RELEASING, task.node, unresolvable=task.unresolvable)
        self.steps.append(Lift(task, receipt, before))

    def take_back(self, step: Step) -> None:
        """Undo one step, whatever came after it: no two steps are about one pod, so their order does not matter."""
        del self.steps[bisect_left(self.steps, step.receipt.serial, key=_serial)]  # a gang's may be thousands
        self._undo(step)

    def mark(self) -> Mark:
        return Mark(len(self.steps))

    def rollback(self, mark: Mark = START) -> list[Step]:
        """Take back whatever was done since the mark. Returns it, in the order of the undoing."""
        undone = []
        while len(self.steps) > mark:
            step = self.steps.pop()
            self._undo(step)
            undone.append(step)
        return undone

    def _placement(self, task: Task, choice: Choice) -> Placement:
        claims = self.state.ledger.device_claims.reservations(task.uid, choice.claims) if choice.claims else ()
        return Placement(task.uid, choice.node, task.request, choice.allocations, marks=task.marks, features=task.features,
                       claims=claims)  # fmt: skip

    def _charge(self, task: Task, choice: Choice) -> None:
        """Find what its queue is charged for these cards and devices, before it is."""
        claims = charge_by_claims(self.state, task, choice)
        task.charged, task.shared_claims = self.state.charges.of(task.cls, choice.allocations, claims.own), claims.shared

    def _undo(self, step: Step) -> None:
        self.state.ledger.undo(step.receipt)
        self.evicts -= isinstance(step, Evict)
        task, before = step.task, step.before
        if task is None or before is None:
            return
        _move(task, before.status, before.node, unresolvable=before.unresolvable)
        if isinstance(step, Place | Nomination):
            self.framework.removed(task)
        task.charged, task.shared_claims = before.charged, before.shared_claims


def charge_by_claims(state: State, task: Task, choice: Choice) -> ClaimCharge:
    """Return what the devices that were chosen for a pod's claims cost its queue."""
    if not choice.claims:
        return ClaimCharge()
    claims = state.device_claims
    return claims.charge_of(task.uid, zip(claims.keys_of(task.uid), choice.claims, strict=True))


def _serial(step: Step) -> int:
    return step.receipt.serial


def _before(task: Task) -> Before:
    return Before(task.status, task.node, task.charged, task.unresolvable, task.shared_claims)


def _move(task: Task, status: Status, node: str, *, unresolvable: bool) -> None:
    task.node = node
    if task.job is not None:
        task.job.set_unresolvable(task, unresolvable)
        task.job.move(task, status)
