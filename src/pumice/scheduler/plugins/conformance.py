"""conformance: system pods are nobody's victims (Volcano pkg/scheduler/plugins/conformance)."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.scheduler.plugins.contract import Preemptable, Reclaimable, Spared
from pumice.scheduler.state.jobs import Task


class Conformance(Preemptable, Reclaimable):
    name = "conformance"

    def not_preemptable(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        return {task.uid: "it belongs to the system" for task in victims if task.yielding.system}

    def not_reclaimable(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        return self.not_preemptable(claimant, victims)
