"""What-if questions, answered by the scheduler's own filter and queues: would this pod, changed or with others gone, be placed?

Meant for an engine of one's own: pods are taken off the books and put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pumice.devices.offers import Occupant
from pumice.model.refusal import FitError
from pumice.scheduler.cycle.charging import cost_for
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.statement import Statement
from pumice.scheduler.engine import Engine
from pumice.scheduler.placing.among import Among
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.plugins.taints import tolerates
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import QueueState, Status, Task
from pumice.scheduler.state.resources import HUGE, add, amount_text, lacking, subtract
from pumice.wire.objects import Pod, Taint

NO_ROOM = "has no room left"
Accept = Callable[[Choice], bool]


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
    def standing_for(self, cls: PodClass) -> Iterator[Accept]:
        """Inside, the queue's books hold the pod as one of that class. Yields whether the queue may be charged for a choice of
        cards."""
        aside = self.task.aside or (self.task.job is not None and self.task.job.stalled)
        self._ask(self.task.cls, -1, aside)
        self._ask(cls, 1)
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
            self._ask(cls, -1)
            self._ask(self.task.cls, 1, aside)

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
        """Return how many pods start together with it or not at all; 0 where it starts by itself, or joins others that run."""
        job = self.task.job
        return job.min_available if job is not None and job.min_available > max(1, job.ready_count) else 0

    def _ask(self, cls: PodClass, sign: int, aside: bool = False) -> None:
        (add if sign > 0 else subtract)(self.queue.pending, cls.demand)
        self.queue.device_request(cls, sign, aside)

    def _open(self) -> None:
        """Let the plugins share the cluster out among the queues as their books are now."""
        engine = self.engine
        engine.framework.open_queues(Cycle(engine.state, engine.framework, engine.placer, self.now, ""))

    def _pays(self, cls: PodClass, choice: Choice) -> bool:
        framework = self.engine.framework
        if cls.request.best_effort and not cls.device_requests:
            return self.queue.open  # backfill places it, whatever its queue has
        amounts = cost_for(self.engine.state, self.task, cls, choice) or cls.amounts
        return not framework.overused(self.queue) and framework.allocatable(self.queue, amounts)


# -- the questions -----------------------------------------------------------------------------------------------------


HARD = ("NoSchedule", "NoExecute")


class EngineWhatIf:
    """Resources, node constraints and cards; with a ``payer`` also what the pod's queue may still take."""

    def __init__(
        self, engine: Engine, fit_errors: Sequence[FitError] | None = None, payer: Payer | None = None, among: Among | None = None
    ) -> None:
        """``fit_errors`` are the refusals of the pod in question, when they have been worked out before; ``among``: the nodes
        that
        it may have."""
        self.engine = engine
        self.state = engine.state
        self.payer = payer
        self.among = among
        self._fit_errors = fit_errors

    def fits(self, pod: Pod) -> str:
        choice = self._choose(pod)
        return "" if choice is None else choice.node

    def fits_without(self, pod: Pod, gone: Sequence[str]) -> str:
        statement = Statement(self.state, self.engine.framework)
        for uid in gone:
            statement.lift(uid)
        try:
            choice = self._choose(pod)
            return "" if choice is None else choice.node
        finally:
            statement.rollback()

    def _choose(self, pod: Pod) -> Choice | None:
        cls, placer = self.state.classes.of(pod), self.engine.placer
        if self.payer is None:
            return placer.choose(cls, among=self.among)
        with self.payer.standing_for(cls) as pays:
            return placer.choose(cls, accept=pays, among=self.among)

    def crowded(self, pod: Pod) -> Sequence[str]:
        """Nodes none of whose refusals is final, those with the smallest shortage first, as a part of what is wanted."""
        found = self._fit_errors
        if found is None:
            found = self.engine.placer.why(self.state.classes.of(pod), per_node=True, among=self.among).fit_errors
        final = {m.node for m in found if m.final}
        short: dict[str, float] = {}
        for m in found:
            if m.node not in final:
                short[m.node] = max(short.get(m.node, 0.0), (m.wanted - m.best) / max(1, m.wanted))
        return sorted(short, key=lambda node: (short[node], node))

    def taints(self, pod: Pod) -> Iterable[tuple[Taint, ...]]:
        facts = [each for each in self.state.ledger.table.facts if each is not None]
        found = (tuple(t for t in each.taints if t.effect in HARD and not tolerates(pod.spec.tolerations, t)) for each in facts)
        return dict.fromkeys(taints for taints in found if taints)

    def occupants(self, node: str) -> Sequence[Occupant]:
        ledger, tasks, found = self.state.ledger, self.state.tasks, []
        for uid, placement in (ledger.by_node.get(node, {}) if node else ledger.placements).items():
            task = tasks.get(uid)
            size = sum(
                container_device.memory
                for allocation in placement.allocations
                for container_device in allocation.container_devices
            )
            found.append(Occupant(uid, self.state.pods.name_of(uid), task.priority if task else 0, size, placement.node))
        return found

    def largest(self) -> int:
        return max((device_table.largest() for device_table in self.state.ledger.device_tables.values()), default=0)
