"""PodGroups for pods that name none: one per controlling owner, or one per pod."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any, Final

from pumice.effects.vocabulary import Create, Delete, Patch
from pumice.ports.cluster import Resource
from pumice.wire import kinds, names
from pumice.wire.names import GROUP_MIN_MEMBER, GROUP_NAME, GROUP_NAME_VOLCANO, QUEUE_NAME
from pumice.wire.objects import OwnerReference, Pod
from pumice.wire.quantity import parse_quantity
from pumice.wire.times import stamp
from pumice.wire.topology import annotated, written
from pumice.wire.volcano import PENDING, POD_GROUPS, RUNNING, SCHEDULING_API, group_name_for

OWNER_KINDS: Final[Mapping[tuple[str, str], Resource]] = {
    ("apps/v1", "ReplicaSet"): kinds.REPLICA_SETS,
    ("apps/v1", "StatefulSet"): kinds.STATEFUL_SETS,
    ("apps/v1", "DaemonSet"): kinds.DAEMON_SETS,
    ("batch/v1", "Job"): kinds.JOBS,
}
"""Owners whose annotations shape the PodGroup."""
SCALED_KINDS = (OWNER_KINDS["apps/v1", "ReplicaSet"], OWNER_KINDS["apps/v1", "StatefulSet"])
"""Owners whose PodGroup goes when they are scaled to nothing, and follows them otherwise."""

_POD_ANNOTATIONS = (names.PREEMPTABLE, names.COOLDOWN_TIME, names.REVOCABLE_ZONE)
_POD_BUDGETS = (names.JDB_MIN_AVAILABLE, names.JDB_MAX_UNAVAILABLE)
_POD_LABELS = (names.PREEMPTABLE, names.COOLDOWN_TIME)


Action = Create | Patch | Delete


def needs_group(pod: Pod, scheduler_names: Collection[str]) -> bool:
    """Return whether the pod is ours, lives, and names no group. Pods that carry the annotation are left alone."""
    return (
        pod.spec.scheduler_name in scheduler_names
        and not (pod.metadata.annotations.get(GROUP_NAME) or pod.metadata.annotations.get(GROUP_NAME_VOLCANO))
        and not pod.metadata.deletion_timestamp
        and pod.status.phase not in ("Succeeded", "Failed")
    )


def names_its_own(pod: Pod, scheduler_names: Collection[str]) -> bool:
    """Return whether the pod is ours, lives, and names the group that is made for pods that name none: its Binding said so
    (``pumice scheduler --name-pod-groups``), and somebody has to make that group still."""
    return (
        pod.spec.scheduler_name in scheduler_names
        and pod.metadata.annotations.get(GROUP_NAME) == group_name(pod)
        and not pod.metadata.deletion_timestamp
        and pod.status.phase not in ("Succeeded", "Failed")
    )


def controlling_owner(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def group_name(pod: Pod) -> str:
    owner = controlling_owner(pod)
    return group_name_for(owner.uid if owner else pod.metadata.uid)


def reconcile_pod(
    pod: Pod, *, group_exists: bool, owner_annotations: Mapping[str, str], scheduler_names: Collection[str], now: float
) -> list[Action]:
    """Return what is missing for this pod: its PodGroup, and the annotation that names it. ``now`` is Unix seconds."""
    named = names_its_own(pod, scheduler_names)
    if not named and not needs_group(pod, scheduler_names):
        return []
    meta, name = pod.metadata, group_name(pod)
    actions: list[Action] = []
    if not group_exists:
        body = group_body(pod, owner_annotations)
        if pod.spec.node_name and body["spec"]["minMember"] <= 1:
            body["status"] = standing(pod, now)
        actions.append(Create(POD_GROUPS, body))
    if not named:
        actions.append(Patch(kinds.PODS, meta.namespace, meta.name, {"metadata": {"annotations": {GROUP_NAME: name}}}, meta.uid))
    return actions


def reconcile_owner(
    owner: Mapping[str, Any], group: Mapping[str, Any] | None, pod: Pod | None, owner_annotations: Mapping[str, str]
) -> list[Action]:
    """A ReplicaSet or StatefulSet has changed, or one of its pods: it keeps no PodGroup when it is scaled to nothing, and the
    group follows what its annotations and a current pod say. ``group`` and ``pod`` are None while there is none."""
    if group is None:
        return []
    meta = group["metadata"]
    if owner.get("spec", {}).get("replicas") == 0:
        return [Delete(POD_GROUPS, meta["namespace"], meta["name"])]
    if pod is None:
        return []
    wanted = group_body(pod, owner_annotations)
    spec = {key: value for key, value in wanted["spec"].items() if group.get("spec", {}).get(key) != value}
    more = {
        part: changed
        for part in ("labels", "annotations")
        if (changed := {k: v for k, v in wanted["metadata"].get(part, {}).items() if (meta.get(part) or {}).get(k) != v})
    }
    body = {**({"metadata": more} if more else {}), **({"spec": spec} if spec else {})}
    return [Patch(POD_GROUPS, meta["namespace"], meta["name"], body)] if body else []


def passed_on(annotations: Mapping[str, str], *, inherit: bool) -> dict[str, str]:
    """Return the annotations of an owner that count: all, or all but those that groups inherit (--inherit-owner-annotations)."""
    return {key: value for key, value in annotations.items() if inherit or not key.startswith(f"{names.DOMAIN}/")}


def group_body(pod: Pod, owner_annotations: Mapping[str, str]) -> dict[str, Any]:
    """The PodGroup of a pod, with what its owner's and its own annotations say."""
    meta = pod.metadata
    minimum = min_member(owner_annotations)
    annotations = {key: value for key, value in owner_annotations.items() if key.startswith(f"{names.DOMAIN}/")}
    annotations.update({key: meta.annotations[key] for key in _POD_ANNOTATIONS if key in meta.annotations})
    budget = next((key for key in _POD_BUDGETS if key in meta.annotations), None)
    if budget is not None:
        annotations[budget] = meta.annotations[budget]
    spec: dict[str, Any] = {"minMember": minimum, "minResources": min_resources(pod, minimum)}
    if meta.annotations.get(QUEUE_NAME):
        spec["queue"] = meta.annotations[QUEUE_NAME]
    if (requested := annotated(meta.annotations)) is not None:
        spec["networkTopology"] = written(requested)
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    metadata: dict[str, Any] = {
        "name": group_name(pod),
        "namespace": meta.namespace,
        "labels": {key: meta.labels[key] for key in _POD_LABELS if key in meta.labels},
        "annotations": annotations,
        "ownerReferences": _owner_references(pod),
    }
    return {
        "apiVersion": SCHEDULING_API,
        "kind": "PodGroup",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": spec,
        "status": {"phase": PENDING},
    }


def standing(pod: Pod, now: float) -> dict[str, Any]:
    """The status of a group that stands by this pod alone, as the scheduler would write it: the group is
    born behind the Binding, and the kind has no status subresource, so one write says it all."""
    ready = {
        "type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled",
        "lastTransitionTime": stamp(now),
    }  # fmt: skip
    return {"phase": RUNNING, "conditions": [ready], "running": int(pod.status.phase == "Running")}


def min_member(annotations: Mapping[str, str]) -> int:
    """The owner's wish, an integer of at least 0; else 1."""
    text = annotations.get(GROUP_MIN_MEMBER, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else 1


def min_resources(pod: Pod, members: int) -> dict[str, str]:
    """Usage of one pod in the names of a quota, times ``members``."""
    return as_quantities({name: value * members for name, value in quota_usage(pod).items()})


def quota_usage(pod: Pod) -> dict[str, Fraction]:
    """Return the usage of one pod, in the names of a quota."""
    requests = _sum(pod, "requests")
    limits = _sum(pod, "limits")
    found: dict[str, Fraction] = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for name, value in requests.items():
        if name in ("cpu", "memory", "ephemeral-storage") or "/" in name:
            found[name] = value
        found[f"requests.{name}"] = value
    for name, value in limits.items():
        if "/" in name:
            found.setdefault(name, value)
            found.setdefault(f"requests.{name}", value)
        else:
            found[f"limits.{name}"] = value
    return found


def as_quantities(usage: Mapping[str, Fraction]) -> dict[str, str]:
    return {name: _text(value) for name, value in sorted(usage.items())}


def _sum(pod: Pod, which: str) -> dict[str, Fraction]:
    """A pod's usage as quotas count it: containers and sidecars together, or the largest init container with the sidecars
    before it, and the overhead (kubernetes.io docs "Init Containers" and "Pod Overhead")."""
    total: dict[str, Fraction] = {}
    for container in pod.spec.containers:
        _add(total, getattr(container.resources, which))
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in pod.spec.init_containers:
        at_once = dict(sidecars)
        _add(at_once, getattr(container.resources, which))
        peak = {name: max(peak.get(name, Fraction(0)), at_once.get(name, Fraction(0))) for name in peak | at_once}
        if container.restart_policy == "Always":
            sidecars = at_once
    for name, value in sidecars.items():
        total[name] = total.get(name, Fraction(0)) + value
    total = {name: max(total.get(name, Fraction(0)), peak.get(name, Fraction(0))) for name in total | peak}
    _add(total, {name: amount for name, amount in pod.spec.overhead.items() if which == "requests" or name in total})
    return total


def _add(into: dict[str, Fraction], quantities: Mapping[str, str | int | float]) -> None:
    for name, quantity in quantities.items():
        try:
            into[name] = into.get(name, Fraction(0)) + parse_quantity(quantity)
        except ValueError:
            continue


def _text(value: Fraction) -> str:
    if value.denominator == 1:
        return str(int(value))
    return f"{-(-value.numerator * 1000 // value.denominator)}m"


def _owner_references(pod: Pod) -> list[dict[str, Any]]:
    meta = pod.metadata
    owner = controlling_owner(pod)
    if owner is None:
        return [
            {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True,
             "blockOwnerDeletion": True}
        ]  # fmt: skip
    return [
        {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": True,
         "blockOwnerDeletion": True}
    ]  # fmt: skip
