"""Deployment: one ReplicaSet per pod template, rolled from the old ones to the new one."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from pumice.effects.vocabulary import Create, Delete, Event, Patch
from pumice.wire.kinds import DEPLOYMENTS, REPLICA_SETS
from pumice.wire.objects import condition, holds
from pumice_lab.controllers.common import (
    Action,
    Json,
    View,
    claimed,
    is_deleting,
    owner_reference,
    share_of,
    status_patch,
    template_hash,
    with_condition,
)
from pumice_lab.controllers.replicaset import FAILURE

REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"


def reconcile(deployment: View, sets: Sequence[View], now: float) -> list[Action]:
    """``sets``: the ReplicaSets that it owns, and those of the namespace that nobody does."""
    meta, spec = deployment["metadata"], deployment["spec"]
    if is_deleting(deployment):
        return []
    reference = owner_reference(deployment, "apps/v1", "Deployment")
    actions, own = claimed(deployment, reference, spec.get("selector") or {}, REPLICA_SETS, sets)
    own = [rs for rs in own if not is_deleting(rs)]
    wanted_hash = template_hash(spec["template"])
    new = next((rs for rs in own if _hash_of(rs) == wanted_hash), None)
    old = [rs for rs in own if rs is not new]
    if not spec.get("paused"):
        if new is None:
            made = _new_set(deployment, own, wanted_hash, _first_size(deployment, old))
            actions.append(Create(REPLICA_SETS, made))
            actions += _reported(deployment, made["metadata"]["name"], 0, made["spec"]["replicas"])
        else:
            actions += _roll(deployment, new, old)
        actions += _forget_old(deployment, old)
    elif new is not None:
        actions += _scale(deployment, new, int(spec.get("replicas", 1)) - sum(_replicas(rs) for rs in old))
    revision = _revision(new) if new else _next_revision(own)
    if (meta.get("annotations") or {}).get(REVISION) != str(revision) and (new or not own):
        actions.append(Patch(DEPLOYMENTS, meta["namespace"], meta["name"],
                             {"metadata": {"annotations": {REVISION: str(revision)}}}, meta["uid"]))
    return [*actions, *status_patch(DEPLOYMENTS, deployment, _status(deployment, new, own, now))]


def _roll(deployment: View, new: View, old: Sequence[View]) -> list[Action]:
    """One step of the rollout: raise the new set, lower the old ones, within maxSurge and maxUnavailable."""
    spec = deployment["spec"]
    wanted = int(spec.get("replicas", 1))
    strategy = spec.get("strategy") or {}
    living_old = [rs for rs in old if _replicas(rs) or _present(rs)]
    actions: list[Action] = []
    if _revision(new) <= max((_revision(rs) for rs in old), default=0):  # rolled back: it is the newest again
        meta = new["metadata"]
        actions.append(Patch(REPLICA_SETS, meta["namespace"], meta["name"],
                             {"metadata": {"annotations": {REVISION: str(_next_revision(old))}}}, meta["uid"]))
    if not living_old:
        return [*actions, *_scale(deployment, new, wanted)]
    if strategy.get("type") == "Recreate":
        for rs in living_old:
            actions += _scale(deployment, rs, 0)
        return [*actions, *(() if any(_present(rs) for rs in living_old) else _scale(deployment, new, wanted))]
    rolling = strategy.get("rollingUpdate") or {}
    surge = share_of(rolling.get("maxSurge"), wanted, "25%", up=True)
    unavailable = share_of(rolling.get("maxUnavailable"), wanted, "25%", up=False)
    if not surge and not unavailable:
        unavailable = 1
    total = _replicas(new) + sum(_replicas(rs) for rs in old)
    actions += _scale(deployment, new, min(wanted, _replicas(new) + max(0, wanted + surge - total)))
    # What is not available yet protects nobody: it goes first and costs nothing.
    available = sum(_available(rs) for rs in (new, *old))
    budget = max(0, available - (wanted - unavailable))
    for rs in sorted(living_old, key=_revision):
        idle = max(0, _replicas(rs) - _available(rs))
        drop = min(budget, _available(rs))
        budget -= drop
        actions += _scale(deployment, rs, _replicas(rs) - idle - drop)
    return actions


def _scale(deployment: View, rs: View, size: int) -> list[Action]:
    size = max(0, size)
    if _replicas(rs) == size:
        return []
    meta = rs["metadata"]
    return [Patch(REPLICA_SETS, meta["namespace"], meta["name"], {"spec": {"replicas": size}}, meta["uid"]),
            *_reported(deployment, meta["name"], _replicas(rs), size)]


def _reported(deployment: View, name: str, before: int, after: int) -> list[Action]:
    way = "up" if after > before else "down"
    text = f"Scaled {way} replica set {name} from {before} to {after}"
    return [Event.on({"apiVersion": "apps/v1", "kind": "Deployment", **deployment}, "Normal", "ScalingReplicaSet", text)]


def _first_size(deployment: View, old: Sequence[View]) -> int:
    """Return the first size of a new set: everything when there is nothing to roll from."""
    spec = deployment["spec"]
    wanted = int(spec.get("replicas", 1))
    total = sum(_replicas(rs) for rs in old)
    if not total and not any(_present(rs) for rs in old):
        return wanted
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return 0
    surge = share_of((strategy.get("rollingUpdate") or {}).get("maxSurge"), wanted, "25%", up=True)
    return max(0, min(wanted, wanted + surge - total))


def _new_set(deployment: View, own: Sequence[View], name: str, size: int) -> Json:
    meta, spec = deployment["metadata"], deployment["spec"]
    template = copy.deepcopy(dict(spec["template"]))
    template_meta = template.setdefault("metadata", {})
    template_meta["labels"] = {**(template_meta.get("labels") or {}), HASH: name}
    selector = copy.deepcopy(dict(spec["selector"]))
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: name}
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{name}", "namespace": meta["namespace"], "labels": dict(template_meta["labels"]),
            "annotations": {REVISION: str(_next_revision(own))},
            "ownerReferences": [owner_reference(deployment, "apps/v1", "Deployment")],
        },
        "spec": {"replicas": size, "minReadySeconds": spec.get("minReadySeconds", 0), "selector": selector,
                 "template": template},
    }  # fmt: skip


def _forget_old(deployment: View, old: Sequence[View]) -> list[Action]:
    limit = int(deployment["spec"].get("revisionHistoryLimit", 10))
    idle = sorted((rs for rs in old if not _replicas(rs) and not _present(rs)), key=_revision)
    return [Delete(REPLICA_SETS, rs["metadata"]["namespace"], rs["metadata"]["name"], rs["metadata"]["uid"])
            for rs in idle[: max(0, len(idle) - limit)]]


def _status(deployment: View, new: View | None, own: Sequence[View], now: float) -> Json:
    wanted = int(deployment["spec"].get("replicas", 1))
    available = sum(_available(rs) for rs in own)
    total = sum(_present(rs) for rs in own)
    unavailable = share_of(((deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}).get("maxUnavailable"),
                           wanted, "25%", up=False)
    enough = available >= wanted - unavailable
    updated = _present(new) if new else 0
    done = updated == wanted and available >= wanted and total == wanted
    name = new["metadata"]["name"] if new else ""
    conditions = with_condition(
        {"kind": "Deployment", "status": deployment.get("status")}, "Available", "True" if enough else "False",
        "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        f"Deployment {'has' if enough else 'does not have'} minimum availability.", now)
    conditions = with_condition(
        {"kind": "Deployment", "status": {"conditions": conditions}}, "Progressing", "True",
        "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
        f'ReplicaSet "{name}" {"has successfully progressed" if done else "is progressing"}.', now)
    failures = [condition(rs, FAILURE) for rs in ([new] if new else own) if holds(rs, FAILURE)]
    if failures:
        conditions = with_condition({"kind": "Deployment", "status": {"conditions": conditions}}, FAILURE, "True",
                                    failures[0].get("reason", ""), failures[0].get("message", ""), now)  # fmt: skip
    else:
        conditions = [each for each in conditions if each["type"] != FAILURE]
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0), "replicas": total or None,
        "updatedReplicas": updated or None, "readyReplicas": sum(_ready(rs) for rs in own) or None,
        "availableReplicas": available or None, "unavailableReplicas": max(0, max(wanted, total) - available) or None,
        "conditions": conditions,
    }  # fmt: skip


def _hash_of(rs: View) -> str:
    """One that somebody else made may have no such label."""
    return (rs["metadata"].get("labels") or {}).get(HASH) or template_hash(rs["spec"]["template"])


def _next_revision(sets: Sequence[View]) -> int:
    return max((_revision(rs) for rs in sets), default=0) + 1


def _revision(rs: View) -> int:
    text = (rs["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _replicas(rs: View) -> int:
    return int(rs["spec"].get("replicas", 1))


def _present(rs: View) -> int:
    return int((rs.get("status") or {}).get("replicas") or 0)


def _ready(rs: View) -> int:
    return int((rs.get("status") or {}).get("readyReplicas") or 0)


def _available(rs: View) -> int:
    return int((rs.get("status") or {}).get("availableReplicas") or 0)
