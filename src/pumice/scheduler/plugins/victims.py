"""conformance, pdb, cdp: pods that are evicted for nobody, whether their queue is preempted or reclaimed (Volcano
pkg/scheduler/plugins)."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.scheduler.plugins.contract import Preemptable, Reclaimable, Session, Spared
from pumice.scheduler.state.budgets import Budgets
from pumice.scheduler.state.jobs import Task
from pumice.wire.scheduler_conf import Arguments


class _Sparing(Preemptable, Reclaimable):
    """Spares from reclaim whom it spares from preemption."""

    def not_reclaimable(self, preemptor: Task, victims: Sequence[Task]) -> Spared | None:
        return self.not_preemptable(preemptor, victims)


class Conformance(_Sparing):
    """Pods of the system."""

    name = "conformance"

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        return {task.uid: "it belongs to the system" for task in victims if task.yielding.system}


class Pdb(_Sparing):
    """Pods whose PodDisruptionBudget would be broken. Where the configuration takes its vote away (``enablePreemptable: false``,
    ``enableReclaimable: false``) a broken budget is a cost: the fewest are broken that can be."""

    name = "pdb"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._budgets = Budgets()

    def open(self, session: Session) -> None:
        self._budgets = session.state.budgets

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        return {uid: f"PodDisruptionBudget {name} would be broken" for uid, name in self._budgets.spared(victims).items()}


class Cdp(_Sparing):
    """Pods that name a cooldown time, for so long after they started."""

    name = "cdp"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._wall = 0.0

    def open(self, session: Session) -> None:
        self._wall = session.wall

    def not_preemptable(self, preemptor: Task, victims: Sequence[Task]) -> Spared:
        found = {}
        for task in victims:
            started, cooldown = task.yielding.started, task.yielding.cooldown
            if cooldown and (not started or self._wall < started + cooldown):
                found[task.uid] = f"its cooldown time of {cooldown:g} s is not over"
        return found
