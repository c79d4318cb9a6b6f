"""Taints and tolerations, judged once per distinct set of taints. Rules: kubernetes.io docs "Taints and Tolerations"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.engine.nodes import Rows
from pumice.wire.objects import Taint, Toleration

if TYPE_CHECKING:
    from pumice.engine.classes import PodClass
    from pumice.engine.state import State

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


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
    facts = state.ledger.table.facts
    numbers: Sequence[int] = range(state.ledger.table.capacity) if rows is None else rows.tolist()
    cordoned = np.zeros(len(numbers), bool)
    tainted = np.zeros(len(numbers), bool)
    tolerations = cls.constraints.tolerations
    known: dict[tuple[Taint, ...], bool] = {(): False}
    cordon_ok: bool | None = None
    for place, row in enumerate(numbers):
        fact = facts[row] if row < len(facts) else None
        if fact is None:
            continue
        if fact.unschedulable:
            if cordon_ok is None:
                cordon_ok = tolerates(tolerations, UNSCHEDULABLE)
            cordoned[place] = not cordon_ok
        if fact.taints:
            bad = known.get(fact.taints)
            if bad is None:
                bad = known[fact.taints] = any(
                    taint.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint)
                    for taint in fact.taints
                )
            tainted[place] = bad
    return cordoned, tainted


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
