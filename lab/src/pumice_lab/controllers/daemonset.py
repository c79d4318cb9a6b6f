"""DaemonSet: one pod on every node that its template selects.

The pods are bound here, by spec.nodeName: a node agent must not wait for a scheduler that may itself need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pumice.effects.vocabulary import Create, Requeue
from pumice.wire.kinds import DAEMON_SETS, PODS
from pumice.wire.objects import NAME_FIELD, is_ready, parse_node_term
from pumice_lab.controllers.common import (
    Action,
    Json,
    View,
    available_in,
    delete_pod,
    is_deleting,
    owned_by,
    owner_reference,
    phase,
    pod_from,
    share_of,
    status_patch,
    template_hash,
)

HASH = "controller-revision-hash"
# Taints that Kubernetes lets every DaemonSet pod tolerate.
TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/disk-pressure",
             "node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure", "node.kubernetes.io/unschedulable")
RETRY_FAILED = 1.0


def reconcile(ds: View, nodes: Sequence[View], pods: Sequence[View], now: float) -> list[Action]:
    meta, spec = ds["metadata"], ds["spec"]
    current = template_hash(spec["template"])
    own = [pod for pod in pods if owned_by(pod, meta["uid"])]
    on: dict[str, list[View]] = {}
    for pod in own:
        on.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
    wanted = {node["metadata"]["name"] for node in nodes if fits(spec["template"]["spec"], node)}
    actions: list[Action] = []
    if not is_deleting(ds):
        for node in sorted(wanted):
            actions += _one_per_node(ds, node, on.get(node, []), current)
        for node, there in on.items():
            if node not in wanted:
                actions += [delete_pod(pod) for pod in there if not is_deleting(pod)]
        actions += _update(ds, [pod for node in wanted for pod in on.get(node, [])], current)
    status = _status(ds, wanted, on, current, now)
    return [*actions, *status_patch(DAEMON_SETS, ds, status)]


def _one_per_node(ds: View, node: str, there: Sequence[View], current: str) -> list[Action]:
    failed = [pod for pod in there if phase(pod) in ("Failed", "Succeeded") and not is_deleting(pod)]
    living = [pod for pod in there if phase(pod) not in ("Failed", "Succeeded")]
    if failed:
        return [*(delete_pod(pod) for pod in failed), Requeue(RETRY_FAILED)]
    if living:  # a pod that still ends keeps its place
        extra = sorted((p for p in living if not is_deleting(p)), key=lambda p: p["metadata"].get("creationTimestamp", ""))
        return [delete_pod(pod) for pod in extra[1:]]
    meta, template = ds["metadata"], ds["spec"]["template"]
    pod = pod_from(template, owner_reference(ds, "apps/v1", "DaemonSet"), meta["namespace"], f"{meta['name']}-", {HASH: current})
    pod["spec"]["nodeName"] = node
    present = pod["spec"].setdefault("tolerations", [])
    present += [{"key": key, "operator": "Exists"} for key in TOLERATED if not any(t.get("key") == key for t in present)]
    return [Create(PODS, pod)]


def _update(ds: View, pods: Sequence[View], current: str) -> list[Action]:
    """RollingUpdate: replace pods of an older template, at most maxUnavailable at a time."""
    strategy = ds["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    limit = share_of((strategy.get("rollingUpdate") or {}).get("maxUnavailable"), len(pods), "1", up=True)
    away = sum(is_deleting(pod) or not is_ready(pod) for pod in pods)
    old = [p for p in pods if (p["metadata"].get("labels") or {}).get(HASH) != current and not is_deleting(p)]
    broken = [pod for pod in old if not is_ready(pod)]
    good = [pod for pod in old if is_ready(pod)][: max(0, max(1, limit) - away)]
    return [delete_pod(pod) for pod in (*broken, *good)]


def _status(ds: View, wanted: set[str], on: Mapping[str, Sequence[View]], current: str, now: float) -> Json:
    first = [on[node][0] for node in wanted if on.get(node)]
    wait = float(ds["spec"].get("minReadySeconds") or 0)
    available = sum(available_in(pod, wait, now) == 0.0 for pod in first)
    updated = sum((pod["metadata"].get("labels") or {}).get(HASH) == current for pod in first)
    return {
        "currentNumberScheduled": len(first), "desiredNumberScheduled": len(wanted),
        "numberMisscheduled": sum(1 for node, pods in on.items() if node not in wanted and pods),
        "numberReady": sum(map(is_ready, first)), "numberAvailable": available or None,
        "numberUnavailable": (len(wanted) - available) or None, "updatedNumberScheduled": updated or None,
        "observedGeneration": ds["metadata"].get("generation", 0),
    }  # fmt: skip


def fits(spec: View, node: View) -> bool:
    """nodeName, nodeSelector, required node affinity, and taints that keep pods away."""
    labels = node["metadata"].get("labels") or {}
    name = node["metadata"]["name"]
    if spec.get("nodeName") not in (None, "", name):
        return False
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if affinity and not any(_term(term, labels, name) for term in affinity.get("nodeSelectorTerms") or ()):
        return False
    tolerations = spec.get("tolerations") or ()
    for taint in (node.get("spec") or {}).get("taints") or ():
        keeps_away = taint.get("effect") in ("NoSchedule", "NoExecute") and taint.get("key") not in TOLERATED
        if keeps_away and not any(_tolerates(toleration, taint) for toleration in tolerations):
            return False
    return True


def _term(term: View, labels: Mapping[str, str], name: str) -> bool:
    requirements = parse_node_term(term)
    return requirements is not None and all(r.matches({NAME_FIELD: name} if r.field else labels) for r in requirements)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
