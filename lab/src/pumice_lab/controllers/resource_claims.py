"""ResourceClaims: made of the templates that pods name, released by pods that are over, deallocated and let go with their last
consumer (pkg/controller/resourceclaim of Kubernetes; "Dynamic Resource Allocation"). Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pumice.effects.vocabulary import Create, Delete, Event, Patch, Requeue
from pumice.ports.cluster import Resource
from pumice.wire.kinds import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from pumice.wire.kubernetes import CLAIM_PROTECTION, POD_CLAIM_NAME
from pumice_lab.controllers.common import Action, InOrder, Json, View, controller_of, is_deleting, owned_by, phase
from pumice_lab.controllers.garbage import Meta

LONGEST_BASE = 57
"""Of a generated name: a hyphen and five letters of chance follow."""
CONSUMERS_MOST = 256
RETRY = 5.0


def concerned(resource: Resource, meta: Meta, obj: View | None, pods: Iterable[View], claims: Mapping[str, View]
              ) -> Iterator[tuple[Resource, str]]:  # fmt: skip
    """Return the keys to reconcile when a pod, a claim or a template changes (``obj`` None: it is gone). ``pods``: all."""
    if resource == PODS:
        if obj is None or obj["spec"].get("resourceClaims"):
            yield PODS, meta.uid
            yield from ((RESOURCE_CLAIMS, uid) for uid, claim in claims.items() if _concerns(claim, meta.uid))
        return
    if resource == RESOURCE_CLAIMS:
        yield RESOURCE_CLAIMS, meta.uid
        yield from ((PODS, owner.uid) for owner in meta.owner_references if owner.kind == "Pod")
    for pod in pods:
        if pod["metadata"]["namespace"] == meta.namespace and any(
            meta.name in (name_of(pod, one), one.get("resourceClaimTemplateName"))
            for one in pod["spec"].get("resourceClaims") or ()
        ):
            yield PODS, pod["metadata"]["uid"]


def _concerns(claim: View, pod: str) -> bool:
    return owned_by(claim, pod) or any(one.get("uid") == pod for one in _consumers(claim))


def _consumers(claim: View) -> Sequence[Json]:
    return (claim.get("status") or {}).get("reservedFor") or ()


def name_of(pod: View, pod_claim: View) -> str | None:
    """Return the ResourceClaim's name; empty while it is not made of its template, None where none is needed."""
    if name := pod_claim.get("resourceClaimName"):
        return str(name)
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if status["name"] == pod_claim["name"]:
            name = status.get("resourceClaimName")
            return str(name) if name else None
    return ""


def is_over(pod: View) -> bool:
    """Return whether a pod will not run any more, though its object may stay."""
    return phase(pod) in ("Succeeded", "Failed") or (is_deleting(pod) and not pod["spec"].get("nodeName"))


# -- Of a pod: its claims are made, and named in its status ----------------------------------------------------------

Find = Callable[[Resource, str, str], View | None]
"""By kind, namespace and name."""


def reconcile_pod(pod: View, find: Find, owned: Iterable[View]) -> list[Action]:
    """``owned``: the claims that the pod owns."""
    if is_deleting(pod) or is_over(pod):
        return []
    orphans = {(claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME): claim
               for claim in owned if not is_deleting(claim)}  # fmt: skip
    names, actions = dict[str, str](), list[Action]()
    for pod_claim in pod["spec"].get("resourceClaims") or ():
        template_name = pod_claim.get("resourceClaimTemplateName")
        if not template_name or _has_its_own(pod, pod_claim, find):
            continue
        if (there := orphans.get(pod_claim["name"])) is not None:
            names[pod_claim["name"]] = there["metadata"]["name"]
        elif (template := find(RESOURCE_CLAIM_TEMPLATES, pod["metadata"]["namespace"], template_name)) is not None:
            actions.append(Create(RESOURCE_CLAIMS, claim_from(template, pod, pod_claim["name"])))
        else:
            text = f'PodResourceClaim {pod_claim["name"]}: resource claim template "{template_name}": ' + (
                f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found')
            reported = Event.on(pod, "Warning", "FailedResourceClaimCreation", text, api_version="v1", kind="Pod")
            actions += [reported, Requeue(RETRY)]
    if names:
        before = {one["name"]: one for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        now = before | {name: {"name": name, "resourceClaimName": made} for name, made in names.items()}
        actions.append(_on_status(PODS, pod, {"resourceClaimStatuses": list(now.values())}, fresh=False))
    if pod["spec"].get("nodeName"):
        actions += _reserved(pod, find)
    return actions


def _has_its_own(pod: View, pod_claim: View, find: Find) -> bool:
    name = name_of(pod, pod_claim)
    if name is None:
        return True
    claim = find(RESOURCE_CLAIMS, pod["metadata"]["namespace"], name) if name else None
    return claim is not None and owned_by(claim, pod["metadata"]["uid"])


def _reserved(pod: View, find: Find) -> Iterator[Action]:
    """Of a pod that was bound by hand: whoever bound it has reserved nothing for it."""
    meta = pod["metadata"]
    for pod_claim in pod["spec"].get("resourceClaims") or ():
        name = name_of(pod, pod_claim)
        claim = find(RESOURCE_CLAIMS, meta["namespace"], name) if name else None
        if claim is None or is_deleting(claim) or not (claim.get("status") or {}).get("allocation"):
            continue
        there = list(_consumers(claim))
        if len(there) < CONSUMERS_MOST and all(one.get("uid") != meta["uid"] for one in there):
            consumer = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
            yield _on_status(RESOURCE_CLAIMS, claim, {"reservedFor": [*there, consumer]})


def claim_from(template: View, pod: View, name: str) -> Json:
    """Return the claim that a template makes for a pod, owned by it."""
    meta, wanted = pod["metadata"], template["spec"].get("metadata") or {}
    base = f"{meta['name']}-{name}-"
    if (length := len(base)) > LONGEST_BASE:  # both are shortened, so that the claim's name shows too
        base = f"{meta['name'][: len(meta['name']) * LONGEST_BASE // length]}-{name[: len(name) * LONGEST_BASE // length]}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "generateName": base, "namespace": meta["namespace"], "ownerReferences": [owner],
            "labels": dict(wanted.get("labels") or {}),
            "annotations": {**(wanted.get("annotations") or {}), POD_CLAIM_NAME: name},
        },
        "spec": copy.deepcopy(dict(template["spec"]["spec"])),
    }  # fmt: skip


# -- Of a claim: reservations of pods that are over go, the allocation with the last, then the finalizer -------------


def reconcile_claim(claim: View, pods: Mapping[str, View | None]) -> list[Action]:
    """``pods``: those that the claim names as consumers or owner, by uid; None of one that is gone."""
    meta, there = claim["metadata"], _consumers(claim)
    remaining = [one for one in there if one.get("apiGroup") or one.get("resource") != "pods" or _uses(pods.get(one["uid"]))]
    guarded = CLAIM_PROTECTION in (meta.get("finalizers") or ())
    steps: list[Patch] = []
    if len(remaining) < len(there) and not remaining and guarded:
        steps = [_on_status(RESOURCE_CLAIMS, claim, {"reservedFor": None, "allocation": None}), _unguarded(claim)]
    elif len(remaining) < len(there):
        steps = [_on_status(RESOURCE_CLAIMS, claim, {"reservedFor": remaining or None})]
    elif guarded and is_deleting(claim) and not remaining:
        allocated = bool((claim.get("status") or {}).get("allocation"))
        steps = [*([_on_status(RESOURCE_CLAIMS, claim, {"allocation": None})] if allocated else []), _unguarded(claim)]
    actions: list[Action] = [InOrder(tuple(steps))] if steps else []
    owner = controller_of(claim)
    if not remaining and owner and owner["kind"] == "Pod" and not is_deleting(claim):
        pod = pods.get(owner["uid"])
        if pod is not None and is_over(pod):
            actions.append(Delete(RESOURCE_CLAIMS, meta["namespace"], meta["name"], meta["uid"]))
    return actions


def _uses(pod: View | None) -> bool:
    return pod is not None and not is_over(pod)


def _unguarded(claim: View) -> Patch:
    meta = claim["metadata"]
    left = [one for one in meta.get("finalizers") or () if one != CLAIM_PROTECTION]
    return Patch(RESOURCE_CLAIMS, meta["namespace"], meta["name"], {"metadata": {"finalizers": left or None}}, meta["uid"])


def _on_status(resource: Resource, obj: View, status: Json, *, fresh: bool = True) -> Patch:
    """``fresh``: refused where the object has changed since."""
    meta = obj["metadata"]
    body: Json = {"status": status}
    if fresh:
        body["metadata"] = {"resourceVersion": meta["resourceVersion"]}
    return Patch(resource, meta["namespace"], meta["name"], body, meta["uid"], "status")
