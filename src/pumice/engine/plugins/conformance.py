"""conformance: system pods are nobody's victims (spec volcano-core 11.3)."""

from __future__ import annotations

from pumice.engine.framework import Plugin
from pumice.engine.state.jobs import Task


class Conformance(Plugin):
    name = "conformance"

    @staticmethod
    def may_evict(task: Task) -> bool:
        return not task.system
