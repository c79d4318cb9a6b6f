"""cdp: a pod that names a cooldown time is spared for so long after it started (Volcano pkg/scheduler/plugins)."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.scheduler.plugins.contract import Preemptable, Reclaimable, Session, Spared
from pumice.scheduler.state.jobs import Task
from pumice.wire.scheduler_conf import Arguments


class Cdp(Preemptable, Reclaimable):
    name = "cdp"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._wall = 0.0

    def open(self, session: Session) -> None:
        self._wall = session.wall

    def not_preemptable(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        found = {}
        for task in victims:
            started, cooldown = task.yielding.started, task.yielding.cooldown
            if cooldown and (not started or self._wall < started + cooldown):
                found[task.uid] = f"its cooldown time of {cooldown:g} s is not over"
        return found

    def not_reclaimable(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        return self.not_preemptable(claimant, victims)
