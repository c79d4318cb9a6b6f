"""conformance: system pods are nobody's victims (Volcano pkg/scheduler/plugins/conformance)."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.engine.plugins.contract import Spared, SparesFromPreempt, SparesFromReclaim
from pumice.engine.state.jobs import Task


class Conformance(SparesFromPreempt, SparesFromReclaim):
    name = "conformance"

    def spared_from_preempt(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        return {task.uid: "it belongs to the system" for task in victims if task.yielding.system}

    def spared_from_reclaim(self, claimant: Task, victims: Sequence[Task]) -> Spared:
        return self.spared_from_preempt(claimant, victims)
