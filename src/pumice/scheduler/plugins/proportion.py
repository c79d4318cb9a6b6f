"""proportion: queues share the cluster by weight (Volcano pkg/scheduler/plugins/proportion).

What they share is what they can have: the nodes without what pods of other schedulers hold there. Of the whole cluster queues
would deserve more than there is, none would be over its share, and nothing could be claimed back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from pumice.scheduler.plugins.contract import (
    PERMIT,
    REJECT,
    Allocatable,
    AllocationHandler,
    JobEnqueueable,
    Overused,
    Preemptive,
    QueueOrder,
    QueueShares,
    Reclaimable,
    Session,
    Spared,
    Standing,
)
from pumice.scheduler.plugins.shares import Shares, may_reclaim, not_reclaimable_victims
from pumice.scheduler.state.groups import together
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.resources import (
    PODS,
    Vector,
    add,
    amount_text,
    exceeded,
    lacking,
    of_claims,
    raise_to,
    subtract,
)
from pumice.scheduler.state.tasks import by_queue
from pumice.wire.scheduler_conf import Arguments

WAITERS_ASKED = 300
"""Of each queue so many waiting jobs are asked what they could use of its share, in order of arrival."""


class Proportion(
    QueueOrder, JobEnqueueable, Overused, Allocatable, AllocationHandler, Preemptive, Reclaimable, QueueShares
):
    name = "proportion"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self.shares = Shares()
        self._total: Vector = {}
        self._reclaims = False
        self._claims: _Claims | None = None

    def open(self, session: Session) -> None:
        state = session.state
        total = {n: v for n, v in state.elsewhere.left().items() if n != PODS}
        kinds = state.ledger.card_kinds_version
        self.shares.divide(state.queues.values(), total, state.charges.expected, kinds)
        self._total, self._reclaims, self._claims = total, "reclaim" in session.actions, None

    def queue_order_key(self, queue: QueueState) -> tuple[int, float]:
        return (-queue.priority, self.share(queue))

    def overused(self, queue: QueueState) -> bool:
        """Everything that the queue deserves is in use. One whose pods ask for devices by claim alone deserves none of what is
        shared here, and lacks none of it."""
        part = self.shares.part(queue)
        if part is None or not part.deserved or not any(n != PODS and v for n, v in part.request.items()):
            return False
        return all(v <= queue.allocated.get(n, 0) for n, v in part.deserved.items())

    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        if not queue.open:
            return False
        part = self.shares.part(queue)
        if part is None:
            return True
        allocated, deserved = together(queue.allocated, queue.awaited), part.deserved
        for name, value in amounts.items():
            if name != PODS and not of_claims(name) and allocated.get(name, 0) + value > deserved.get(name, 0):
                return False
        return True

    def may_borrow(self, queue: QueueState, amounts: Vector) -> bool:
        """Where reclaim runs, all that is idle: it can be had back. Else what the others cannot claim within their shares."""
        part = self.shares.part(queue)
        if part is None or not queue.open:
            return queue.open
        taken = together(queue.allocated, queue.awaited)
        if any(taken.get(n, 0) + v > part.cap.get(n, 0) for n, v in amounts.items() if n != PODS and not of_claims(n)):
            return False
        if self._reclaims:
            return True
        if self._claims is None:
            self._claims = _claims(self.shares, self._total)
        return self._claims.leave(queue, amounts)

    def excess(self, queue: QueueState, amounts: Vector) -> float:
        part = self.shares.part(queue)
        if part is None:
            return 0.0
        over = (
            (queue.allocated.get(n, 0) + v - part.deserved.get(n, 0)) / self._total[n]
            for n, v in amounts.items()
            if self._total.get(n, 0) > 0
        )
        return max(over, default=0.0)

    def placed(self, task: Task) -> None:
        if self._claims is not None:
            add(self._claims.taken, task.amounts.items())

    def removed(self, task: Task) -> None:
        if self._claims is not None:
            subtract(self._claims.taken, task.amounts.items())

    def short_of(self, queue: QueueState, amounts: Vector) -> str:
        if not queue.open:
            return queue.closed_text
        part = self.shares.part(queue)
        if part is None:
            return ""
        wanted = {n: v + queue.allocated.get(n, 0) for n, v in amounts.items() if not of_claims(n)}
        return ", ".join(
            f"{name}: {amount_text(name, amounts[name])} wanted, {amount_text(name, queue.allocated.get(name, 0))} of"
            f" {amount_text(name, part.deserved.get(name, 0))} in use"
            for name in lacking(wanted, part.deserved)
        )

    def preemptive(self, queue: QueueState, task: Task) -> bool:
        return queue.open and self.shares.part(queue) is not None and may_reclaim((queue,), task.amounts, self.standing)

    def not_reclaimable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        return not_reclaimable_victims(preemptor, victims, lambda queue: (queue,), self.standing)

    def standing(self, queue: QueueState) -> Standing:
        part = self.shares.part(queue)
        taken = together(queue.allocated, queue.awaited)
        return Standing(taken, {}, {}, {}) if part is None else Standing(taken, part.cap, part.deserved, queue.guarantee)

    def job_enqueueable(self, job: Job) -> int:
        queue = job.queue
        if not queue.open:
            job.refusal = by_queue(queue.closed_text)
            return REJECT
        part = self.shares.part(queue)
        if job.min_resources is None or part is None:
            return PERMIT
        wanted = {
            n: v + queue.allocated.get(n, 0) + queue.inqueue.get(n, 0) - queue.elastic.get(n, 0)
            for n, v in job.min_resources.items()
            if v > 0 and not of_claims(n)
        }
        short = lacking(wanted, part.cap)
        if not short:
            return PERMIT
        words = ", ".join(f"insufficient {name}" for name in short)
        job.refusal = by_queue(f"queue resource quota insufficient: {words}")
        return REJECT

    def share(self, queue: QueueState) -> float:
        part = self.shares.part(queue)
        if part is None:
            return 0.0
        return max((_ratio(queue.allocated.get(n, 0), v) for n, v in part.deserved.items()), default=0.0)


@dataclass(slots=True)
class _Claims:
    """The rest of the cluster after every queue within its share has its claims, and the queues that may still claim of it."""

    idle: Vector
    of: dict[QueueState, Vector]
    total: Vector
    taken: Vector = field(default_factory=dict)
    """Lent since."""

    def leave(self, queue: QueueState, amounts: Vector) -> bool:
        """Return whether the queue may borrow so much without touching what others can claim."""
        own = self.of.get(queue, {})
        return all(
            self.taken.get(n, 0) + v <= self.idle.get(n, 0) - self.total.get(n, 0) + own.get(n, 0)
            for n, v in amounts.items()
            if n != PODS and not of_claims(n)
        )


def _claims(shares: Shares, total: Vector) -> _Claims:
    idle, claimed = dict(total), dict[str, int]()
    of: dict[QueueState, Vector] = {}
    for queue in shares.queues():
        subtract(idle, queue.allocated.items())
        part = shares.part(queue) if queue.waiters else None
        claim = _claim(queue, exceeded(part.deserved, queue.allocated)) if part is not None else None
        if claim:
            of[queue] = claim
            add(claimed, claim.items())
    return _Claims(idle, of, claimed)


def _claim(queue: QueueState, room: Vector) -> Vector:
    """Return the amount that a queue can use within its share: whole pods and gangs that wait for a node. A queue whose
    smallest one is larger than that room has no use for it."""
    claim: Vector = {}
    if not room or not queue.open:
        return claim
    seen = set()
    for job in islice(queue.waiters, WAITERS_ASKED):
        unit = {} if job.stalled else job.unit()
        if id(unit) in seen or not unit:
            continue
        if job.min_available <= 1:
            seen.add(id(unit))  # shared by all pods of a class
        times = min((room.get(n, 0) // v for n, v in unit.items() if v > 0 and n != PODS and not of_claims(n)), default=0)
        if times:
            raise_to(claim, {n: v * times for n, v in unit.items() if n != PODS})
    return claim


def _ratio(part: int, whole: int) -> float:
    if whole:
        return part / whole
    return 1.0 if part else 0.0
