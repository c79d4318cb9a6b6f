"""Nodes that fell silent (Kubernetes: node lifecycle, pod garbage collection). Pure.

A kubelet renews its lease every ten seconds. After forty without one the node is Unknown and tainted; its pods go when
their tolerations of the taint are used up. Pods of a node that does not exist any more are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pumice.cluster.controllers.actions import Action, Delete, Json, LookAgain, Patch, Tell, View
from pumice.cluster.controllers.common import (
    NODES,
    PODS,
    condition,
    is_deleting,
    is_ready,
    phase,
    seconds_of,
    timestamp,
)

GRACE = 40.0
QUARANTINE = 40.0  # before pods of a vanished node are removed: it may only be registering anew
UNREACHABLE = "node.kubernetes.io/unreachable"
_KINDS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def reconcile(node: View, silent: float, pods: Sequence[View], now: float) -> list[Action]:
    """``silent``: seconds since its lease was last seen to be renewed; ``pods``: those bound to it."""
    if silent < GRACE:
        return [*_welcome_back(node), LookAgain(GRACE - silent + 0.1)]
    actions: list[Action] = []
    meta = node["metadata"]
    if condition(node, "Ready").get("status") != "Unknown":
        actions.append(Patch(NODES, "", meta["name"], {"status": {"conditions": _unknown(node, now)}}, meta["uid"], "status"))
        actions.append(Tell({"apiVersion": "v1", "kind": "Node", **node}, "Normal", "NodeNotReady",
                            f"Node {meta['name']} status is now: NodeNotReady"))
    since = _tainted_since(node)
    if since is None:
        since = now
        actions.append(_with_taints(node, [*_others(node), {"key": UNREACHABLE, "effect": "NoSchedule"},
                                           {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": timestamp(now)}]))
    for pod in pods:
        actions += _on_silent_node(pod, since, now)
    return actions


def orphans(pods: Sequence[View]) -> list[Action]:
    """Pods whose node does not exist: nobody else will ever end them."""
    return [Delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"], grace=0) for pod in pods]


def _welcome_back(node: View) -> list[Action]:
    return [_with_taints(node, _others(node))] if _tainted_since(node) is not None else []


def _on_silent_node(pod: View, since: float, now: float) -> list[Action]:
    if is_deleting(pod) or phase(pod) in ("Succeeded", "Failed"):
        return []
    meta = pod["metadata"]
    wait = _tolerated_for(pod)
    if wait is not None and now >= since + wait:
        return [Delete(PODS, meta["namespace"], meta["name"], meta["uid"])]
    actions: list[Action] = [LookAgain(since + wait - now)] if wait is not None else []
    if is_ready(pod):
        conditions = [{**c, "status": "False", "lastTransitionTime": timestamp(now)} if c["type"] == "Ready" else dict(c)
                      for c in pod["status"]["conditions"]]
        body = {"status": {"conditions": conditions}}
        actions.append(Patch(PODS, meta["namespace"], meta["name"], body, meta["uid"], "status"))
    return actions


def _tolerated_for(pod: View) -> float | None:
    """Seconds that a pod stays on an unreachable node; None is for ever."""
    seconds: list[float | None] = []
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("key") in (UNREACHABLE, None, "") and toleration.get("effect") in ("NoExecute", None, ""):
            seconds.append(toleration.get("tolerationSeconds"))
    if None in seconds:
        return None
    return float(min(seconds)) if seconds else 0.0  # type: ignore[type-var, arg-type]


def _unknown(node: View, now: float) -> list[Json]:
    before = {c["type"]: c for c in (node.get("status") or {}).get("conditions") or ()}
    changed = {
        kind: {**before.get(kind, {}), "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
               "message": "Kubelet stopped posting node status.", "lastTransitionTime": timestamp(now)} for kind in _KINDS
    }  # fmt: skip
    return [*({**c} for kind, c in before.items() if kind not in changed), *changed.values()]


def _taints(node: View) -> list[Mapping[str, Any]]:
    return list((node.get("spec") or {}).get("taints") or ())


def _others(node: View) -> list[Json]:
    return [dict(taint) for taint in _taints(node) if taint["key"] != UNREACHABLE]


def _tainted_since(node: View) -> float | None:
    for taint in _taints(node):
        if taint["key"] == UNREACHABLE and taint["effect"] == "NoExecute":
            return seconds_of(taint.get("timeAdded"))
    return None


def _with_taints(node: View, taints: list[Json]) -> Patch:
    meta = node["metadata"]
    body = {"spec": {"taints": taints or None}, "metadata": {"resourceVersion": meta["resourceVersion"]}}
    return Patch(NODES, "", meta["name"], body, meta["uid"])
