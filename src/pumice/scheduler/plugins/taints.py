"""Taints and tolerations, judged once per distinct set of taints. Rules: kubernetes.io docs "Taints and Tolerations"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.state import State
from pumice.wire import kubernetes
from pumice.wire.objects import Taint, Toleration

Tolerations = tuple[Toleration, ...]
TOLERATIONS_KEPT = 256
"""Different lists of tolerations whose verdicts are remembered."""
FEW_ROWS = 6
"""Up to so many nodes are judged one by one."""
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
    tolerations = cls.constraints.tolerations
    if rows is not None and len(rows) <= FEW_ROWS:
        judged = [_judge(tolerations, table.taint_sets[number]) for number in table.taint_ids[rows]]
        return np.array([j.cordoned for j in judged], bool), np.array([j.hard for j in judged], bool)
    verdicts = _verdicts(state, tolerations)
    ids = table.taint_ids if rows is None else table.taint_ids[rows]
    return verdicts.cordoned[ids], verdicts.hard[ids]


def untolerated_soft(state: State, cls: PodClass) -> NDArray[np.int64]:
    """Number of PreferNoSchedule taints, per set of taints, that the pod does not tolerate."""
    return _verdicts(state, cls.constraints.tolerations).soft


class _Judged(NamedTuple):
    cordoned: bool
    hard: bool
    soft: int


def _judge(tolerations: Tolerations, marks: tuple[bool, tuple[Taint, ...]]) -> _Judged:
    """Return the cordon and taints of one node that the tolerations do not cover."""
    is_cordoned, taints = marks
    # Only tolerations of that effect, or of every effect, count for the soft ones (Kubernetes TaintToleration scoring).
    gentle = [t for t in tolerations if t.effect in ("", "PreferNoSchedule")]
    return _Judged(
        is_cordoned and not tolerates(tolerations, UNSCHEDULABLE),
        any(t.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, t) for t in taints),
        sum(t.effect == "PreferNoSchedule" and not tolerates(gentle, t) for t in taints),
    )


@dataclass(slots=True)
class TaintVerdicts:
    """Per set of taints (``NodeTable.taint_sets``) what some tolerations leave standing; ``cursor``: what is up to date."""

    cursor: int = -1
    cordoned: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    hard: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    soft: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def _verdicts(state: State, tolerations: Tolerations) -> TaintVerdicts:
    """Remembered; sets that are new since then are judged alone."""
    table, kept = state.ledger.table, state.taint_verdicts
    found = kept.get(tolerations)
    if found is None:
        if len(kept) >= TOLERATIONS_KEPT:
            kept.clear()
        found = kept[tolerations] = TaintVerdicts()
    changed = table.taint_changes.since(found.cursor)
    if changed != []:
        size = len(table.taint_sets)
        for name in ("cordoned", "hard", "soft"):
            before = getattr(found, name)
            longer = np.zeros(size, before.dtype)
            longer[: len(before)] = before
            setattr(found, name, longer)
        for number in range(size) if changed is None or found.cursor < 0 else changed:
            judged = _judge(tolerations, table.taint_sets[number])
            found.cordoned[number], found.hard[number], found.soft[number] = judged
        found.cursor = table.taint_changes.end
    return found
