"""ResourceClaimTemplates of pods whose shares the admission has written as claims.

One belongs to the workload whose pods name it, else to the pod, and goes with it. What a template says follows from the amounts
in the pod's annotation alone, so that whoever writes that annotation by hand gets nothing but shares, in his own namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from pumice.effects.vocabulary import Create, Patch
from pumice.wire.kinds import RESOURCE_CLAIM_TEMPLATES
from pumice.wire.names import SHARE_CLAIMS
from pumice.wire.objects import Meta
from pumice.wire.quantity import parse_quantity
from pumice.wire.share_claims import Share, parse, template

Json = dict[str, Any]
NOT_OURS: Final = "ResourceClaimTemplate {name} is there and asks for something else; the pod waits until it is deleted"


class Named(Struct, rename="camel", gc=False):
    """A claim that a pod names, or one that was made for it."""

    name: str = ""
    resource_claim_template_name: str = ""


class Spec(Struct, rename="camel", gc=False):
    resource_claims: list[Named] = []


class Status(Struct, rename="camel", gc=False):
    phase: str = ""
    resource_claim_statuses: list[Named] = []


class SharingPod(Struct, gc=False):
    """A pod as far as its templates go."""

    metadata: Meta = field(default_factory=Meta)
    spec: Spec = field(default_factory=Spec)
    status: Status = field(default_factory=Status)


def missing(pod: SharingPod) -> dict[str, Share]:
    """The shares of those of its claims that nobody has made yet, by their templates. Raises ValueError with what is wrong."""
    meta = pod.metadata
    if meta.deletion_timestamp or pod.status.phase in ("Succeeded", "Failed"):
        return {}
    there = {one.name for one in pod.status.resource_claim_statuses}
    named = {one.resource_claim_template_name for one in pod.spec.resource_claims if one.name not in there}
    return {name: share for name, share in parse(meta.annotations.get(SHARE_CLAIMS, "{}")).items() if name in named}


def wanted(meta: Meta, name: str, share: Share) -> Create:
    """The template of that name, for that pod's workload."""
    made = template(name, meta.namespace, share)
    made["metadata"] |= {"labels": {SHARE_CLAIMS: "true"}, "ownerReferences": [owner_of(meta)]}
    return Create(RESOURCE_CLAIM_TEMPLATES, made)


def owner_of(meta: Meta) -> Json:
    """The pod's workload, else the pod, as a template's owner."""
    owner = next((one for one in meta.owner_references if one.controller), None)
    if owner is None:
        return {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def shared(found: Mapping[str, Any], create: Create) -> Patch | str | None:
    """Return the patch that adds the owner to a template that exists, for its last owner may be gone and take it along. None
    where it is an owner already; a text where the template is not ours."""
    meta, ours = found["metadata"], create.obj["metadata"]
    if SHARE_CLAIMS not in (meta.get("labels") or {}) or _asks(found) != _asks(create.obj):
        return NOT_OURS.format(name=meta["name"])
    owners, owner = meta.get("ownerReferences") or [], ours["ownerReferences"][0]
    if any(one["uid"] == owner["uid"] for one in owners):
        return None
    body = {"metadata": {"resourceVersion": meta["resourceVersion"], "ownerReferences": [*owners, owner]}}
    return Patch(RESOURCE_CLAIM_TEMPLATES, ours["namespace"], ours["name"], body, uid=meta["uid"])


def _asks(obj: Mapping[str, Any]) -> list[Json]:
    """The requests of a template, whatever the API server has filled in and however it writes an amount."""
    found = []
    for one in obj["spec"]["spec"]["devices"].get("requests") or []:
        exactly = {"allocationMode": "ExactCount", "count": 1, **(one.get("exactly") or {})}
        amounts = (exactly.pop("capacity", None) or {}).get("requests") or {}
        found.append({**one, "exactly": exactly, "capacity": {name: parse_quantity(amount) for name, amount in amounts.items()}})
    return found
