"""The claims of a play: what the API server and the controller of claims make of them while pods come, get a place and go.

A claim is made for each pod that names a template, goes with its pod, and gives its devices back with the last pod that uses it.
What a template asks for is read off itself, or off the claims that were made of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from pumice.audit import claim_rules
from pumice.audit.amounts import Amounts
from pumice.effects.vocabulary import Bind, Deallocate
from pumice.scheduler.state.device_claims import DeviceClaims
from pumice.scheduler.state.known_claims import key_of, name_of
from pumice.wire.objects import ClaimStatus, Pod, convert

Json = dict[str, Any]
Pool = tuple[str, str]
"""Driver and name."""


class PlayedClaims:
    """The claims of a simulation. ``known`` is what the engine knows of claims, and is told each one that is written."""

    def __init__(self, known: DeviceClaims, objects: Mapping[str, list[Json]]) -> None:
        self.known = known
        self.claims = {key: claim for claim in objects.get("resourceClaims", ())
                       if f"ResourceClaim {(key := key_of(claim))}" not in known.problems}  # fmt: skip
        self.specs: dict[str, Json] = {}
        """By namespace and name of a template."""
        self._number = max((int(one["metadata"].get("resourceVersion") or 0) for one in self.claims.values()), default=0)
        self._of_pod: dict[str, set[str]] = defaultdict(set)
        """By the uid of a pod the claims that it uses, or that were made for it."""
        self._in: dict[Pool, set[str]] = defaultdict(set)
        """By pool the claims that hold something of it."""
        self._slices: dict[str, dict[str, Json]] = defaultdict(dict)
        """By node, or nothing, and by name."""
        for one in objects.get("resourceSlices", ()):
            if f"ResourceSlice {name_of(one)}" not in known.problems:
                self.publish(one)
        for key, claim in self.claims.items():
            self._index(key, claim)
        for pod in objects.get("pods", ()):
            self.learn(convert(Pod, pod), self.claims)
        for one in objects.get("resourceClaimTemplates", ()):
            self.specs[key_of(one)] = (one.get("spec") or {}).get("spec") or {}

    def learn(self, pod: Pod, claims: Mapping[str, Json]) -> None:
        """Read off the claims that were made for a pod what its templates ask for."""
        made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims if made else ():
            claim = claims.get(f"{pod.metadata.namespace}/{made.get(entry.get('name', ''))}")
            if (template := entry.get("resourceClaimTemplateName")) and claim is not None:
                self.specs[f"{pod.metadata.namespace}/{template}"] = claim.get("spec") or {}

    def publish(self, slice_: Json) -> None:
        self._slices[slice_["spec"].get("nodeName") or ""][name_of(slice_)] = slice_

    def withdraw(self, slice_: Json) -> None:
        self._slices[slice_["spec"].get("nodeName") or ""].pop(name_of(slice_), None)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def made_for(self, pod: Pod) -> list[ClaimStatus]:
        """Make the claims of a pod that comes, of templates that are known, and return their names."""
        meta, found = pod.metadata, []
        for entry in pod.spec.resource_claims:
            spec = self.specs.get(f"{meta.namespace}/{entry.get('resourceClaimTemplateName')}")
            if spec is not None:
                name = f"{meta.name}-{entry['name']}-{self._number}"
                owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
                self._write({"metadata": {"name": name, "namespace": meta.namespace, "ownerReferences": [owner]}, "spec": spec})
                found.append(ClaimStatus(entry["name"], name))
        return found

    def bound(self, effect: Bind) -> None:
        """The pod has a place, and its claims are written for it."""
        for one in effect.device_claims:
            claim = self.claims.get(f"{one.namespace}/{one.name}") or one.made
            if claim is not None:
                status = claim.get("status") or {}
                users = [*(status.get("reservedFor") or ()), {"resource": "pods", "name": effect.name, "uid": effect.uid}]
                status = {"allocation": status.get("allocation") or one.allocation, "reservedFor": users}
                self._write({**claim, "status": status})

    def gone(self, uid: str) -> None:
        """The pod is gone: what was made for it goes, and what it alone used is given back."""
        for key in sorted(self._of_pod.pop(uid, ())):
            claim = self.claims.get(key)
            if claim is None:
                continue
            if any(owner.get("uid") == uid for owner in _owners(claim)):
                self._remove(key)
                continue
            left = [user for user in _users(claim) if user.get("uid") != uid]
            self._write({**claim, "status": {**claim["status"], "reservedFor": left} if left else {}})

    def deallocate(self, effect: Deallocate) -> None:
        claim = self.claims.get(f"{effect.namespace}/{effect.name}")
        if claim is not None:
            left = [user for user in _users(claim) if user.get("uid") != effect.pod]
            self._write({**claim, "status": {**claim["status"], "reservedFor": left} if left else {}})

    def told(self, claim: Json, ours: Container[str]) -> None:
        """A record tells of a claim. One that was made for a pod of ``ours`` is made with that pod here, and whose devices were
        whose then counts not; what others have they have."""
        key, pods = key_of(claim), _pods_of(claim)
        known = self.claims.get(key)
        if pods and not any(uid in ours for uid in pods):
            self._write(claim)
        elif not _owners(claim) and (known is None or (known.get("spec") != claim.get("spec") and not _users(known))):
            self._write({**claim, "status": {}})

    def told_gone(self, claim: Json, ours: Container[str]) -> None:
        """A record tells that a claim went. One that pods of ``ours`` may use stays: they may come to use it later than then."""
        known = self.claims.get(key_of(claim))
        if known is not None and (pods := _pods_of(known)) and not any(uid in ours for uid in pods):
            self._remove(key_of(known))

    # -- claims -------------------------------------------------------------------------------------------------------

    def _write(self, claim: Json) -> None:
        self._number += 1
        key, meta = key_of(claim), claim["metadata"]
        if (before := self.claims.get(key)) is not None:
            self._leave_pools(key, before)
        uid = meta.get("uid") or f"claim-{key}-{self._number}"
        claim = self.claims[key] = {**claim, "metadata": {**meta, "uid": uid, "resourceVersion": str(self._number)}}
        self._index(key, claim)
        self.known.put_claim(claim)

    def _remove(self, key: str) -> None:
        claim = self.claims.pop(key)
        self._leave_pools(key, claim)
        self.known.drop_claim(claim)

    def _index(self, key: str, claim: Json) -> None:
        for uid in _pods_of(claim):
            self._of_pod[uid].add(key)
        for pool in _pools(claim):
            self._in[pool].add(key)

    def _leave_pools(self, key: str, claim: Json) -> None:
        for pool in _pools(claim):
            self._in[pool].discard(key)

    def beside(self, asked: Amounts, have: Amounts) -> Amounts:
        """Return what of a pod's request is no claim: resources for which a class stands, where the node offers none itself."""
        if not any(self.known.had_by_claim(name) and name not in have for name in asked):
            return asked
        return Counter({name: much for name, much in asked.items() if not self.known.had_by_claim(name) or name in have})

    # -- the audit ----------------------------------------------------------------------------------------------------

    def over(self, node: str, shares: Iterable[tuple[str, str, str]]) -> Iterator[str]:
        """Yield a sentence for each device that claims hold twice on a node, and for each card of which pods hold ``shares`` by
        annotation as well."""
        there = [*self._slices[node].values(), *self._slices[""].values()]
        held = {key for one in there for key in self._in[one["spec"]["driver"], one["spec"]["pool"]["name"]]}
        if held:
            claims = [self.claims[key] for key in sorted(held)]
            yield from claim_rules.overbooked(claims, there)
            yield from claim_rules.in_two_worlds(claims, there, shares)


def _users(claim: Json) -> list[Json]:
    return (claim.get("status") or {}).get("reservedFor") or []


def _owners(claim: Json) -> list[Json]:
    return claim["metadata"].get("ownerReferences") or []


def _pods_of(claim: Json) -> set[str]:
    """Return the uids of the pods that use a claim, or for which it was made."""
    return {str(one.get("uid")) for one in (*_users(claim), *_owners(claim))}


def _pools(claim: Json) -> set[Pool]:
    return {(one["driver"], one["pool"]) for one in claim_rules.results(claim)}
