"""pdb: nobody goes by whom a PodDisruptionBudget would be broken (Volcano pkg/scheduler/plugins).

Where the configuration takes its vote away (``enablePreemptable: false``, ``enableReclaimable: false``) a broken budget is a
cost: the fewest are broken that can be.
"""

from __future__ import annotations

from collections.abc import Sequence

from pumice.scheduler.plugins.contract import Preemptable, Reclaimable, Session, Spared
from pumice.scheduler.state.budgets import Budgets
from pumice.scheduler.state.jobs import Task
from pumice.wire.scheduler_conf import Arguments


class Pdb(Preemptable, Reclaimable):
    name = "pdb"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._budgets = Budgets()

    def open(self, session: Session) -> None:
        self._budgets = session.state.budgets

    def not_preemptable(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        return {uid: f"PodDisruptionBudget {name} would be broken" for uid, name in self._budgets.spared(victims).items()}

    def not_reclaimable(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        return self.not_preemptable(claimant, victims)
