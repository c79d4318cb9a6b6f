"""The queue's check of a pending pod, also with another request or without some other pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.engine import Engine
from pumice.scheduler.placing.evaluation import Choice
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import QueueState, Status, Task
from pumice.scheduler.state.resources import HUGE, add, amount_text, lacking, subtract
from pumice.wire.objects import Pod

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
        """How many pods start together with it or not at all; 0 where it starts by itself, or joins others that run."""
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
        amounts = self.engine.state.charges.of(cls, choice.allocations) or cls.amounts
        return not framework.overused(self.queue) and framework.allocatable(self.queue, amounts)
