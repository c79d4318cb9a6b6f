"""Shared by the workload controllers: ownership, pod states, templates, times."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.effects.vocabulary import Create, Delete, Event, Patch, Requeue
from pumice.ports.cluster import Resource
from pumice.wire.kinds import PODS
from pumice.wire.objects import condition, is_ready, selects
from pumice.wire.times import seconds, stamp

Json = dict[str, Any]
View = Mapping[str, Any]  # an object that is only read


@dataclass(frozen=True, slots=True)
class Finalize:
    """Empty a namespace's spec.finalizers, after which the API server lets it go."""

    namespace: Json


@dataclass(frozen=True, slots=True)
class RemoveFolder:
    """Remove the volume data that pods have left at this path of the nodes."""

    path: str


@dataclass(frozen=True, slots=True)
class InOrder:
    """Patches of which each waits for the one before, and is left out where that was refused."""

    steps: tuple[Patch, ...]


Action = Create | Delete | Patch | Event | Requeue | Finalize | RemoveFolder | InOrder


BURST = 500
"""Pods that a controller makes or deletes in one pass, as Kubernetes' do: the rest comes in the next ones."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' safe encoding: no vowels, so no words


def controller_of(obj: View) -> Mapping[str, Any] | None:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner  # type: ignore[no-any-return]
    return None


def owned_by(obj: View, uid: str) -> bool:
    owner = controller_of(obj)
    return owner is not None and owner["uid"] == uid


def owner_reference(owner: View, api_version: str, kind: str) -> Json:
    meta = owner["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True,
            "blockOwnerDeletion": True}


def is_deleting(obj: View) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def phase(pod: View) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_active(pod: View) -> bool:
    return phase(pod) not in ("Succeeded", "Failed") and not is_deleting(pod)


def available_in(pod: View, min_ready_seconds: float, now: float) -> float | None:
    """0 when the pod is available, the seconds until then, or None while it is not ready."""
    if not is_ready(pod):
        return None
    since = seconds(condition(pod, "Ready").get("lastTransitionTime"))
    return max(0.0, since + min_ready_seconds - now) if min_ready_seconds else 0.0


def pod_from(template: View, owner: Json, namespace: str, prefix: str, labels: Mapping[str, str] | None = None) -> Json:
    """A pod of a template, named by the API server from ``prefix``."""
    meta = template.get("metadata") or {}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": prefix[:58], "namespace": namespace,
            "labels": {**(meta.get("labels") or {}), **(labels or {})}, "annotations": dict(meta.get("annotations") or {}),
            "finalizers": list(meta.get("finalizers") or ()), "ownerReferences": [owner],
        },
        "spec": copy.deepcopy(dict(template["spec"])),
    }  # fmt: skip


def template_hash(template: View) -> str:
    """A short name for a pod template; equal templates have equal names (labels of our own left out)."""
    plain = copy.deepcopy(dict(template))
    for label in ("pod-template-hash", "controller-revision-hash"):
        ((plain.get("metadata") or {}).get("labels") or {}).pop(label, None)
    value = 0x811C9DC5
    for byte in json.dumps(plain, sort_keys=True).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_ALPHABET[int(digit) % len(_ALPHABET)] for digit in str(value))


def status_patch(resource: Resource, obj: View, status: Json) -> list[Patch]:
    """Nothing when the status says so already."""
    present = obj.get("status") or {}
    if all(present.get(key) == value or (value is None and key not in present) for key, value in status.items()):
        return []
    meta = obj["metadata"]
    return [Patch(resource, meta.get("namespace", ""), meta["name"], {"status": status}, meta["uid"], "status")]


def with_condition(obj: View, kind: str, status: str, reason: str, message: str, now: float) -> list[Json]:
    """The object's conditions with one of them set; its time changes with its status only."""
    before = condition(obj, kind)
    entry: Json = {"type": kind, "status": status, "reason": reason, "message": message}
    same = before.get("status") == status
    unchanged = same and before.get("reason") == reason and before.get("message") == message
    entry["lastTransitionTime"] = before.get("lastTransitionTime") if same else stamp(now)
    if obj.get("kind") == "Deployment":
        entry["lastUpdateTime"] = before.get("lastUpdateTime") if unchanged else stamp(now)
    others = [dict(c) for c in (obj.get("status") or {}).get("conditions") or () if c.get("type") != kind]
    return [*others, dict(before) if unchanged else entry]


def selector_of(owner: View) -> Json | None:
    """The label selector of what makes pods; the API server gives each Job one."""
    selector: Json | None = owner["spec"].get("selector")
    return selector


def delete_pod(pod: View, grace: int | None = None) -> Delete:
    meta = pod["metadata"]
    return Delete(PODS, meta["namespace"], meta["name"], meta["uid"], grace=grace)


def share_of(value: int | str | None, total: int, default: str, *, up: bool) -> int:
    """An int-or-percent of ``total``."""
    text = default if value is None else value
    if isinstance(text, str) and text.endswith("%"):
        percent = int(text[:-1]) * total
        return -(-percent // 100) if up else percent // 100
    return int(text)


def by_deletion_order(pods: Iterable[View]) -> list[View]:
    """Return which pods go first when there are too many: not bound, not running, not ready, then the youngest."""

    def cost(pod: View) -> tuple[int, int, int, int, str]:
        price = (pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0")
        bound = bool(pod["spec"].get("nodeName"))
        return (int(bound), {"Pending": 0}.get(phase(pod), 1), int(is_ready(pod)),
                int(price) if price.lstrip("-").isdigit() else 0, _reversed_text(pod))

    return sorted(pods, key=cost)


def _reversed_text(pod: View) -> str:
    """Sorts later creation times first."""
    return "".join(chr(255 - ord(c)) for c in pod["metadata"].get("creationTimestamp", ""))


# -- Adoption and release: what a controller selects and nobody owns becomes its own ---------------------------------

# What it no longer selects is let go.
# Source: Kubernetes, pkg/controller/controller_ref_manager.go.


def claimed(owner: View, reference: Json, selector: Json, resource: Resource, objects: Iterable[View],
            living: Callable[[View], bool] = lambda obj: not is_deleting(obj)) -> tuple[list[Action], list[View]]:  # fmt: skip
    """Return what is to be written, and those that are its own. Only what is ``living`` is adopted or let go."""
    actions: list[Action] = []
    own: list[View] = []
    uid = owner["metadata"]["uid"]
    for obj in objects:
        matches = selects(selector, obj["metadata"].get("labels") or {})
        if owned_by(obj, uid) and (matches or not living(obj)):
            own.append(obj)
        elif owned_by(obj, uid):
            actions.append(_owned(resource, obj, [o for o in obj["metadata"]["ownerReferences"] if o["uid"] != uid]))
        elif matches and controller_of(obj) is None and living(obj) and not is_deleting(owner):
            actions.append(_owned(resource, obj, [*(obj["metadata"].get("ownerReferences") or ()), reference]))
            own.append(obj)
    return actions, own


def _owned(resource: Resource, obj: View, owners: list[Json]) -> Patch:
    meta = obj["metadata"]
    return Patch(resource, meta["namespace"], meta["name"], {"metadata": {"ownerReferences": owners or None}}, meta["uid"])
