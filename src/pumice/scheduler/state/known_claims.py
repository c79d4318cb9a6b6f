"""A ResourceClaim as the scheduler knows it: what it asks for, what it holds by its status, and what was decided for a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pumice.claims.allocation import Allocation
from pumice.claims.by_resource import ANNOTATION, ByResource
from pumice.claims.objects import ClaimDevices, ResourceClaim, Result, claim_of, devices_held, results_of
from pumice.model.errors import BadInput
from pumice.ports.cluster import Json
from pumice.wire.objects import parse_node_term

CONSUMERS_MOST: Final = 256
"""Pods that one claim may be reserved for (ResourceClaimReservedForMaxSize)."""
SPECS_KEPT: Final = 8192
"""Specs that are recognised; tenants who never write one twice must not fill our memory."""
encode_spec = msgspec.json.Encoder(order="deterministic").encode


def named(key: str) -> tuple[str, str]:
    """Return namespace and name."""
    namespace, _, name = key.partition("/")
    return namespace, name


class Spec(Struct, frozen=True, eq=False):
    """The request of a claim. Equal ones are one object, as long as they are remembered."""

    devices: ClaimDevices


class Wanted(Struct, frozen=True):
    """A claim as the class of its pods knows it: what it asks for; and which one it is, unless it is one pod's alone and has no
    devices yet."""

    spec: Spec
    key: str = ""
    name: str = ""
    """As the pod names it."""
    by_resource: ByResource | None = None
    """The extended resources that it stands for: none is wanted on nodes that offer them themselves."""


class KnownClaim(Struct, frozen=True):
    """A ResourceClaim. ``results`` is None while nothing is allocated; ``consumers`` are the uids that it is reserved for."""

    key: str
    uid: str
    version: int
    spec: Spec
    results: tuple[Result, ...] | None = None
    node_selector: Mapping[str, Any] | None = None
    consumers: frozenset[str] = frozenset()
    made_for: str = ""
    """The uid of the pod that it was made for, of a template."""
    deleting: bool = False
    by_resource: ByResource | None = None
    """The extended resources that a claim stands for which is still to be written."""
    stands_for_resources: bool = False

    @property
    def namespace(self) -> str:
        return named(self.key)[0]

    @property
    def name(self) -> str:
        return named(self.key)[1]


class Reserved(Struct, frozen=True):
    """A claim of a pod that was given a place. ``allocation`` is None where the claim had its devices before."""

    key: str
    uid: str
    allocation: Allocation | None = None


class Decision(Struct):
    """The decision on a claim, as long as its status does not say it."""

    allocation: Allocation
    results: tuple[Result, ...]
    pods: set[str]


def read_claim(key: str, obj: Json, specs: dict[bytes, Spec]) -> KnownClaim:
    """Return the claim as the API server shows it. ``specs``: those that are recognised; fresh ones are added. Raises BadInput,
    and errors of a status of another shape."""
    meta, status = obj["metadata"], obj.get("status") or {}
    allocation = status.get("allocation")
    owner: Json = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), {})
    selector = (allocation or {}).get("nodeSelector")
    if not isinstance(selector, Mapping | None):
        raise BadInput(f"ResourceClaim {key}: status.allocation.nodeSelector is no object")
    for term in (selector or {}).get("nodeSelectorTerms") or ():
        parse_node_term(term)
    text = encode_spec(obj.get("spec") or {})
    spec = specs.get(text)
    if spec is None:
        if len(specs) >= SPECS_KEPT:
            specs.clear()
        spec = specs[text] = Spec(claim_of({**obj, "kind": "ResourceClaim"}).devices)
    return KnownClaim(
        key, str(meta.get("uid", "")), int(meta.get("resourceVersion") or 0), spec,
        None if allocation is None else results_of(obj),
        selector,
        frozenset(str(one.get("uid", "")) for one in status.get("reservedFor") or ()),
        str(owner.get("uid", "")) if owner.get("kind") == "Pod" else "", bool(meta.get("deletionTimestamp")),
        stands_for_resources=(meta.get("annotations") or {}).get(ANNOTATION) == "true",
    )  # fmt: skip


def for_claim(claim: KnownClaim, allocation: Allocation) -> Allocation:
    """Return the same devices for this claim: each share has an id of its own, and a fresh one in each version of the claim."""
    namespace, _, name = claim.key.partition("/")
    return Allocation(
        ResourceClaim(namespace, name, claim.spec.devices),
        tuple(
            with_(device, share_id=str(uuid5(NAMESPACE_OID, f"{claim.uid} {claim.version} {at}"))) if device.share_id else device
            for at, device in enumerate(allocation.devices)
        ),
        allocation.config,
        allocation.node_selector,
    )


def unreadable(key: str, obj: Json, before: KnownClaim | None) -> KnownClaim | None:
    """Return what a claim that cannot be read holds all the same: nobody may be given its devices. What it was known to hold it
    holds still; a device whose share cannot be read it holds whole. None: no device."""
    meta = obj.get("metadata") or {}
    uid = str(meta.get("uid", ""))
    if before is not None and before.uid != uid:
        before = None
    held = devices_held(obj)
    if before is None and not held:
        return None
    known = before or KnownClaim(key, uid, 0, Spec(ClaimDevices()), deleting=True)
    return replace(known, results=held or known.results, deleting=True)


def results_in(allocation: Allocation) -> tuple[Result, ...]:
    return tuple(
        Result(driver=one.place.id.driver, pool=one.place.id.pool, device=one.place.id.device, request=one.request,
               admin_access=one.admin_access, share_id=one.share_id, consumed_capacity=dict(one.consumed),
               binding_conditions=one.place.device.binding_conditions,
               binding_failure_conditions=one.place.device.binding_failure_conditions)
        for one in allocation.devices
    )  # fmt: skip


def name_of(obj: Json) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def key_of(obj: Json) -> str:
    return f"{(obj.get('metadata') or {}).get('namespace', '')}/{name_of(obj)}"
