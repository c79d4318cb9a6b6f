"""Nodes that fell silent, and pods that a taint sends away (Kubernetes: node lifecycle, "Taints and Tolerations", pod garbage
collection). Pure.

A kubelet renews its lease every ten seconds. After forty without one the node is Unknown and tainted. Pods go when their
tolerations of the taints of their node are used up, whoever tainted it. Pods of a node that does not exist any more are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pumice.effects.vocabulary import Event, Patch, Requeue
from pumice.wire.kinds import NODES, PODS
from pumice.wire.objects import condition, is_ready
from pumice.wire.times import seconds, stamp
from pumice_lab.controllers.common import Action, Json, View, delete_pod, is_deleting, phase

GRACE = 40.0
QUARANTINE = 40.0  # before pods of a vanished node are removed: it may only be registering anew
UNREACHABLE = "node.kubernetes.io/unreachable"
_KINDS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def reconcile(node: View, silent: float, pods: Sequence[View], now: float) -> list[Action]:
    """``silent``: seconds since its lease was last seen to be renewed; ``pods``: those bound to it."""
    if silent < GRACE:
        return [*_welcome_back(node), Requeue(GRACE - silent + 0.1)]
    actions: list[Action] = []
    meta = node["metadata"]
    if condition(node, "Ready").get("status") != "Unknown":
        actions.append(Patch(NODES, "", meta["name"], {"status": {"conditions": _unknown(node, now)}}, meta["uid"], "status"))
        actions.append(Event.on({"apiVersion": "v1", "kind": "Node", **node}, "Normal", "NodeNotReady",
                            f"Node {meta['name']} status is now: NodeNotReady"))
    if not _is_tainted(node):
        actions.append(_with_taints(node, [*_others(node), {"key": UNREACHABLE, "effect": "NoSchedule"},
                                           {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": stamp(now)}]))
    return [*actions, *(_without_ready(pod, now) for pod in pods if is_ready(pod) and not _is_over(pod))]


def sends_away(node: View) -> list[View]:
    """Its taints that running pods have to tolerate."""
    return [taint for taint in _taints(node) if taint["effect"] == "NoExecute"]


def evict(node: View, pods: Sequence[View], now: float) -> list[Action]:
    """Of the pods bound to a node those that do not tolerate its taints, or no longer do. When a taint came is written on it."""
    taints = sends_away(node)
    if any(not taint.get("timeAdded") for taint in taints):
        return [_with_taints(node, [{**taint, **({"timeAdded": stamp(now)} if taint["effect"] == "NoExecute" else {})}
                                    if not taint.get("timeAdded") else dict(taint) for taint in _taints(node)])]
    actions: list[Action] = []
    for pod in pods:
        waits = [(seconds(taint["timeAdded"]), _tolerated_for(pod, taint)) for taint in taints]
        ends = [since + wait for since, wait in waits if wait is not None]
        if not ends or _is_over(pod):
            continue
        meta = pod["metadata"]
        if min(ends) <= now:
            actions.append(Event.on({"apiVersion": "v1", "kind": "Pod", **pod}, "Normal", "TaintManagerEviction",
                                f"Marking for deletion Pod {meta['namespace']}/{meta['name']}"))
            actions.append(delete_pod(pod))
        else:
            actions.append(Requeue(min(ends) - now))
    return actions


def orphans(pods: Sequence[View]) -> list[Action]:
    """Pods whose node does not exist: nobody else will ever end them."""
    return [delete_pod(pod, grace=0) for pod in pods]


def _welcome_back(node: View) -> list[Action]:
    return [_with_taints(node, _others(node))] if _is_tainted(node) else []


def _is_over(pod: View) -> bool:
    return is_deleting(pod) or phase(pod) in ("Succeeded", "Failed")


def _without_ready(pod: View, now: float) -> Patch:
    meta = pod["metadata"]
    conditions = [{**c, "status": "False", "lastTransitionTime": stamp(now)} if c["type"] == "Ready" else dict(c)
                  for c in pod["status"]["conditions"]]
    return Patch(PODS, meta["namespace"], meta["name"], {"status": {"conditions": conditions}}, meta["uid"], "status")


def _tolerated_for(pod: View, taint: View) -> float | None:
    """Seconds that a pod stays beside a taint; None is for ever."""
    seconds: list[float | None] = []
    for toleration in pod["spec"].get("tolerations") or ():
        named = toleration.get("key") in (taint["key"], None, "") and toleration.get("effect") in ("NoExecute", None, "")
        exists = toleration.get("operator", "Equal") == "Exists"
        if named and (exists or toleration.get("value", "") == taint.get("value", "")):
            seconds.append(toleration.get("tolerationSeconds"))
    if None in seconds:
        return None
    return float(max(0, min(seconds))) if seconds else 0.0  # type: ignore[type-var, arg-type]


def _unknown(node: View, now: float) -> list[Json]:
    before = {c["type"]: c for c in (node.get("status") or {}).get("conditions") or ()}
    changed = {
        kind: {**before.get(kind, {}), "type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
               "message": "Kubelet stopped posting node status.", "lastTransitionTime": stamp(now)} for kind in _KINDS
    }  # fmt: skip
    return [*({**c} for kind, c in before.items() if kind not in changed), *changed.values()]


def _taints(node: View) -> list[Mapping[str, Any]]:
    return list((node.get("spec") or {}).get("taints") or ())


def _others(node: View) -> list[Json]:
    return [dict(taint) for taint in _taints(node) if taint["key"] != UNREACHABLE]


def _is_tainted(node: View) -> bool:
    return any(taint["key"] == UNREACHABLE and taint["effect"] == "NoExecute" for taint in _taints(node))


def _with_taints(node: View, taints: list[Json]) -> Patch:
    meta = node["metadata"]
    body = {"spec": {"taints": taints or None}, "metadata": {"resourceVersion": meta["resourceVersion"]}}
    return Patch(NODES, "", meta["name"], body, meta["uid"])
