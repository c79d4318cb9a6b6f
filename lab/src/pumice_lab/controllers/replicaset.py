"""ReplicaSet and ReplicationController: so many pods of one template, those that they select and nobody owns among them.

Source: Kubernetes "ReplicaSet", sections "Non-Template Pod acquisitions" and "Isolating Pods from a ReplicaSet".
"""

from __future__ import annotations

from collections.abc import Sequence

from pumice.effects.vocabulary import Create, Requeue
from pumice.ports.cluster import Resource
from pumice.wire.kinds import PODS, REPLICA_SETS
from pumice.wire.objects import condition, is_ready
from pumice_lab.controllers.common import (
    BURST,
    Action,
    Json,
    View,
    available_in,
    by_deletion_order,
    claimed,
    delete_pod,
    is_active,
    is_deleting,
    owner_reference,
    pod_from,
    status_patch,
    with_condition,
)

FAILURE = "ReplicaFailure"


def selector_of(rs: View) -> Json:
    """A ReplicationController says plain labels."""
    selector = rs["spec"].get("selector") or {}
    return dict(selector) if "matchLabels" in selector or "matchExpressions" in selector else {"matchLabels": selector}


def reconcile(rs: View, pods: Sequence[View], now: float, resource: Resource = REPLICA_SETS, refused: str = "") -> list[Action]:
    """``pods``: those that name it as their owner, and those that it selects; ``refused``: why the last pods were not made."""
    meta, spec = rs["metadata"], rs["spec"]
    api, kind = ("apps/v1", "ReplicaSet") if resource == REPLICA_SETS else ("v1", "ReplicationController")
    owner = owner_reference(rs, api, kind)
    actions, own = claimed(rs, owner, selector_of(rs), PODS, pods, is_active)
    active = [pod for pod in own if is_active(pod)]
    if not is_deleting(rs):
        wanted = int(spec.get("replicas", 1))
        actions += [Create(PODS, pod_from(spec["template"], owner, meta["namespace"], f"{meta['name']}-"))
                    for _ in range(min(wanted - len(active), BURST))]
        surplus = by_deletion_order(active)[: max(0, min(len(active) - wanted, BURST))]
        actions += [delete_pod(pod) for pod in surplus]
    waits = [available_in(pod, float(spec.get("minReadySeconds") or 0), now) for pod in active]
    lacks = refused if len(active) < int(spec.get("replicas", 1)) else ""
    status = _status(rs, active, sum(w == 0.0 for w in waits)) | {"conditions": _conditions(rs, lacks, now)}
    actions += status_patch(resource, rs, status)
    pending = [w for w in waits if w]
    return [*actions, Requeue(min(pending))] if pending else actions


def _conditions(rs: View, refused: str, now: float) -> list[Json] | None:
    """A failure that is told stays as it is: each refusal names another pod, and what changes is looked at again at once."""
    if refused and not condition(rs, FAILURE):
        return with_condition({**rs, "kind": ""}, FAILURE, "True", "FailedCreate", refused, now)
    there = (rs.get("status") or {}).get("conditions") or ()
    return [dict(each) for each in there if refused or each.get("type") != FAILURE] or None


def _status(rs: View, active: Sequence[View], available: int) -> Json:
    labels = (rs["spec"]["template"].get("metadata") or {}).get("labels") or {}
    full = sum(labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active)
    return {"replicas": len(active), "fullyLabeledReplicas": full or None,
            "readyReplicas": sum(map(is_ready, active)) or None, "availableReplicas": available or None,
            "observedGeneration": rs["metadata"].get("generation", 0)}
