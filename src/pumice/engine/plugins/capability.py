"""Always on: no queue takes more than its ``spec.capability``, nor more than its parents' leave to their children together.

proportion holds a queue to its own; with plugin ``capacity``, or without either, nobody would.
"""

from __future__ import annotations

from pumice.engine.plugins.contract import FollowsPlacing, LimitsQueues, Session
from pumice.engine.state.jobs import QueueState, Status, Task
from pumice.engine.state.resources import PODS, Vector, add, amount_text, subtract
from pumice.engine.state.state import State
from pumice.wire.scheduler_conf import Arguments


class Capability(LimitsQueues, FollowsPlacing):
    name = "capability"

    def __init__(self) -> None:
        super().__init__(Arguments())
        self.state: State | None = None
        self.taken: dict[QueueState, Vector] = {}
        """What the queues with a capability and with children have, with all below them."""
        self._counted: dict[str, Vector] = {}

    def open(self, session: Session) -> None:
        state = self.state = session.state
        parents = {queue.parent for queue in state.queues.values()}
        self.taken = {q: dict(q.allocated) for q in state.queues.values() if q.capability and q.name in parents}
        self._counted.clear()
        for queue in state.queues.values() if self.taken else ():
            if queue.allocated:
                for above in state.groups.ancestors(queue):
                    if above in self.taken:
                        add(self.taken[above], queue.allocated.items())

    def placed(self, task: Task) -> None:
        if self.taken and task.job is not None and task.status is Status.ALLOCATED:
            amounts = self._counted[task.uid] = dict(task.amounts)
            for queue in self._held(task.job.queue):
                add(self.taken[queue], amounts.items())

    def removed(self, task: Task) -> None:
        amounts = self._counted.pop(task.uid, None)
        if amounts is not None and task.job is not None:
            for queue in self._held(task.job.queue):
                subtract(self.taken[queue], amounts.items())

    def allocatable(self, queue: QueueState, amounts: Vector) -> bool:
        return not self.short_of(queue, amounts)

    def short_of(self, queue: QueueState, amounts: Vector) -> str:
        if queue.capability and queue not in self.taken:
            text = _short(queue, queue.allocated, amounts)
            if text:
                return text
        for above in self._held(queue):
            text = _short(above, self.taken[above], amounts)
            if text:
                return text if above is queue else f"capability of queue {above.name}, {text}"
        return ""

    def _held(self, queue: QueueState) -> list[QueueState]:
        """The queue itself and those above it whose capability counts for all below."""
        if not self.taken or self.state is None:
            return []
        return [above for above in (queue, *self.state.groups.ancestors(queue)) if above in self.taken]


def _short(queue: QueueState, taken: Vector, amounts: Vector) -> str:
    short = []
    for name, amount in amounts.items():
        limit, used = queue.capability.get(name), taken.get(name, 0)
        if limit is not None and amount and name != PODS and used + amount > limit:
            wanted, held, most = (amount_text(name, value) for value in (amount, used, limit))
            short.append(f"{name}: {wanted} wanted, {held} of {most} in use")
    return ", ".join(short)
