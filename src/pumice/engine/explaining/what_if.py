"""What-if questions, answered by the scheduler's own filter and queues: would this pod, changed or with others gone, be placed?

Meant for an engine of one's own: pods are taken off the books and put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.statement import Statement
from pumice.engine.engine import Engine
from pumice.engine.placing.among import Among
from pumice.engine.placing.evaluation import Choice
from pumice.engine.state.classes import PodClass
from pumice.engine.state.jobs import QueueState, Status, Task
from pumice.engine.state.resources import HUGE, add, amount_text, lacking, subtract
from pumice.families.offers import Holder
from pumice.model.refusal import Misfit, Short
from pumice.wire.objects import Pod

NO_ROOM = "has no room left"
Accept = Callable[[Choice], bool]


class EngineOracle:
    """Resources, node constraints and cards; with a ``payer`` also what the pod's queue may still take."""

    def __init__(
        self, engine: Engine, misfits: Sequence[Misfit] | None = None, payer: Payer | None = None, among: Among | None = None
    ) -> None:
        """``misfits`` are the refusals of the pod in question, when they have been worked out before; ``among``: the nodes that
        it may have."""
        self.engine = engine
        self.state = engine.state
        self.payer = payer
        self.among = among
        self._misfits = misfits

    def fits(self, pod: Pod) -> str:
        cls = self.state.classes.of(pod)
        with self.payer.asked(cls) if self.payer else nullcontext() as accept:
            choice = self.engine.placer.choose(cls, accept=accept, among=self.among)
        return "" if choice is None else choice.node

    def fits_without(self, pod: Pod, node: str, gone: Sequence[str]) -> bool:
        cls = self.state.classes.of(pod)
        statement = Statement(self.state, self.engine.framework)
        for uid in gone:
            statement.lift(uid)
        try:
            with self.payer.asked(cls) if self.payer else nullcontext() as accept:
                return self.engine.placer.choose(cls, only=node, accept=accept, among=self.among) is not None
        finally:
            statement.rollback()

    def crowded(self, pod: Pod) -> Sequence[str]:
        """Nodes whose refusal is not final, those with the smallest shortage first, as a part of what is wanted."""
        found = self._misfits
        if found is None:
            found = self.engine.placer.why(self.state.classes.of(pod), per_node=True, among=self.among).misfits
        misfits = [m for m in found if not m.final]
        ours = [m for m in misfits if m.short is not Short.REQUEST or "Insufficient" in m.text]
        return [m.node for m in sorted(ours, key=lambda m: ((m.wanted - m.best) / max(1, m.wanted), m.node))]

    def holders(self, node: str) -> Sequence[Holder]:
        found = []
        for uid, holding in self.state.ledger.by_node.get(node, {}).items():
            task = self.state.tasks.get(uid)
            size = sum(piece.memory for grant in holding.grants for piece in grant.pieces)
            found.append(Holder(uid, self.state.pods.name_of(uid), task.priority if task else 0, size))
        return found

    def largest(self) -> int:
        return max((book.largest() for book in self.state.ledger.books.values()), default=0)


@dataclass(slots=True)
class Payer:
    """The queue of a pending pod, as it would be with another request of that pod or without some others."""

    engine: Engine
    task: Task
    queue: QueueState
    now: float

    @classmethod
    def of(cls, engine: Engine, pod: Pod, now: float) -> Payer | None:
        """None for a pod that does not wait in a queue of this engine."""
        task = engine.state.tasks.get(pod.metadata.uid)
        if task is None or task.job is None or task.status is not Status.PENDING or not task.job.queue.present:
            return None
        return cls(engine, task, task.job.queue, now)

    @contextmanager
    def asked(self, cls: PodClass) -> Iterator[Accept]:
        """Inside, the queue's books hold the pod as one of that class. Yields whether the queue may be charged for a choice of
        cards."""
        queue = self.queue
        counted_out = self.task.cls.demand if self.task.aside or (self.task.job and self.task.job.stalled) else ()
        self._exchange(self.task.cls, cls)
        subtract(queue.aside, counted_out)
        queue.version += 1
        opened = False

        def pays(choice: Choice) -> bool:
            nonlocal opened
            if not opened:  # only where a node takes the pod at all: with many queues this is the dear part
                self._open()
                opened = True
            return self._pays(cls, choice)

        try:
            yield pays
        finally:
            self._exchange(cls, self.task.cls)
            add(queue.aside, counted_out)
            queue.version += 1

    def short(self) -> str:
        """By which of its own limits the queue cannot take the pod as it is, whatever its cards; empty where it can."""
        queue, amounts = self.queue, self.task.amounts
        self._open()
        if self.engine.framework.allocatable(queue, self.task.cls.amounts):
            return ""
        wanted = {name: value + queue.allocated.get(name, 0) for name, value in amounts.items()}
        numbers = ", ".join(
            f"{name}: {amount_text(name, amounts[name])} wanted, {amount_text(name, queue.allocated.get(name, 0))} of"
            f" {amount_text(name, queue.capability[name])} in use"
            for name in lacking(wanted, queue.capability, missing=HUGE)
        )
        return f"queue {queue.name} {NO_ROOM} for it ({numbers})" if numbers else ""

    @property
    def gang(self) -> int:
        """How many pods start together with it or not at all; 0 where it starts by itself, or joins others that run."""
        job = self.task.job
        return job.min_available if job is not None and job.min_available > max(1, job.ready_count) else 0

    def _exchange(self, old: PodClass, new: PodClass) -> None:
        for cls, change, number in ((old, subtract, -1), (new, add, 1)):
            change(self.queue.pending, cls.demand)
            if cls.quota_known_late:
                self.queue.expect(cls, number)

    def _open(self) -> None:
        """Let the plugins share the cluster out among the queues as their books are now."""
        engine = self.engine
        engine.framework.open_queues(Cycle(engine.state, engine.framework, engine.placer, self.now, ""))

    def _pays(self, cls: PodClass, choice: Choice) -> bool:
        framework = self.engine.framework
        amounts = self.engine.state.charges.of(cls, choice.grants) or cls.amounts
        return not framework.overused(self.queue) and framework.allocatable(self.queue, amounts)
