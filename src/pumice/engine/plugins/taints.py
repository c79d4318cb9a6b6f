"""Taints and tolerations, judged once per distinct set of taints. Rules: kubernetes.io docs "Taints and Tolerations"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.engine.state.nodes import Rows
from pumice.wire import kubernetes
from pumice.wire.objects import Taint, Toleration

if TYPE_CHECKING:
    from pumice.engine.state.classes import PodClass
    from pumice.engine.state.state import State

UNSCHEDULABLE = Taint(kubernetes.UNSCHEDULABLE_TAINT, "", "NoSchedule")


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(taint.value), int(toleration.value)
            except ValueError:
                return False
            return left > right if operator == "Gt" else left < right
    return False


def untolerated(state: State, cls: PodClass, rows: Rows | None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(cordoned and not tolerated, hard taint not tolerated) per row."""
    table = state.ledger.table
    ids = table.taint_ids if rows is None else table.taint_ids[rows]
    tolerations = cls.constraints.tolerations
    cordon_ok = tolerates(tolerations, UNSCHEDULABLE)
    cordoned = np.array([is_cordoned and not cordon_ok for is_cordoned, _ in table.taint_sets])
    tainted = np.array([
        any(t.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, t) for t in taints)
        for _, taints in table.taint_sets
    ])  # fmt: skip
    return cordoned[ids], tainted[ids]


def untolerated_soft(state: State, cls: PodClass) -> NDArray[np.int64]:
    """Number of PreferNoSchedule taints per row that the pod does not tolerate."""
    table = state.ledger.table
    # Only tolerations of that effect, or of every effect, count here (Kubernetes TaintToleration scoring).
    tolerations = [t for t in cls.constraints.tolerations if t.effect in ("", "PreferNoSchedule")]
    count = np.zeros(table.capacity, np.int64)
    for row, fact in enumerate(table.facts):
        if fact is not None and fact.taints:
            count[row] = sum(
                1 for t in fact.taints if t.effect == "PreferNoSchedule" and not tolerates(tolerations, t)
            )
    return count
