"""ReplicaSet: so many pods of one template."""

from __future__ import annotations

from collections.abc import Sequence

from pumice.cluster.controllers.actions import Action, Create, Delete, Json, LookAgain, View
from pumice.cluster.controllers.common import (
    PODS,
    REPLICA_SETS,
    available_in,
    by_deletion_order,
    is_active,
    is_deleting,
    is_ready,
    owned_by,
    owner_reference,
    pod_from,
    status_patch,
)

BURST = 500  # pods made or deleted in one pass


def reconcile(rs: View, pods: Sequence[View], now: float) -> list[Action]:
    """``pods``: all of the namespace that might be its own."""
    meta, spec = rs["metadata"], rs["spec"]
    own = [pod for pod in pods if owned_by(pod, meta["uid"])]
    active = [pod for pod in own if is_active(pod)]
    actions: list[Action] = []
    if not is_deleting(rs):
        wanted = int(spec.get("replicas", 1))
        owner = owner_reference(rs, "apps/v1", "ReplicaSet")
        actions += [Create(PODS, pod_from(spec["template"], owner, meta["namespace"], f"{meta['name']}-"))
                    for _ in range(min(wanted - len(active), BURST))]
        surplus = by_deletion_order(active)[: max(0, min(len(active) - wanted, BURST))]
        actions += [Delete(PODS, meta["namespace"], p["metadata"]["name"], p["metadata"]["uid"]) for p in surplus]
    waits = [available_in(pod, float(spec.get("minReadySeconds") or 0), now) for pod in active]
    actions += status_patch(REPLICA_SETS, rs, _status(rs, active, sum(w == 0.0 for w in waits)))
    pending = [w for w in waits if w]
    return [*actions, LookAgain(min(pending))] if pending else actions


def _status(rs: View, active: Sequence[View], available: int) -> Json:
    labels = (rs["spec"]["template"].get("metadata") or {}).get("labels") or {}
    full = sum(labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active)
    return {"replicas": len(active), "fullyLabeledReplicas": full or None,
            "readyReplicas": sum(map(is_ready, active)) or None, "availableReplicas": available or None,
            "observedGeneration": rs["metadata"].get("generation", 0)}
