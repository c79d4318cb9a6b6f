"""What a pod's cards come to for a queue that pays by memory: known only once they are chosen (``PodClass.quota_known_late``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.letting_in import beside_others
from pumice.engine.placing.evaluation import Choice
from pumice.engine.state.jobs import QueueState, Task
from pumice.engine.state.resources import Vector

May = Callable[[QueueState, Vector], bool]
"""Whether a queue may be charged so much more."""


@dataclass(slots=True)
class Price:
    """``declined``: the amounts that were too much, when some were."""

    cycle: Cycle
    task: Task
    may: May
    declined: Vector | None = None

    def accepted(self, choice: Choice) -> bool:
        assert self.task.job is not None
        amounts = self.cycle.state.charges.of(self.task.cls, choice.grants)
        if amounts is None:
            return True  # what the class says was looked at before
        if self.may(self.task.job.queue, beside_others(self.task, amounts)):
            return True
        self.declined = amounts
        return False


def price_of(cycle: Cycle, task: Task, may: May) -> Price | None:
    """None for a pod whose class says all that it costs."""
    return Price(cycle, task, may) if task.cls.quota_known_late else None


def agreed(cycle: Cycle, task: Task) -> Callable[[Choice], bool] | None:
    """Whether its queue takes it with these cards; None where that was known before."""
    price = price_of(cycle, task, cycle.framework.allocatable)
    return None if price is None else price.accepted
