"""ResourceClaims, ResourceSlices and DeviceClasses as the API server shows them, and what our decisions hold of their devices.

A claim holds what its status says; else what was decided for it: on trial, or with its write on the way. A decision belongs to
the pods that placed it, and ends with the last of them. Everything that is in use is summed by pool, from claims, in one place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as with_
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pumice.cel.values import CelError
from pumice.claims.allocation import Allocation
from pumice.claims.objects import ClaimDevices, DeviceClass, ResourceClaim, Result
from pumice.claims.reading import claim_of, class_of, devices_held, results_of, slice_of
from pumice.claims.selecting import program_of
from pumice.claims.slices import PoolID, Slices
from pumice.claims.usage import Usage, usage_of
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.ports.cluster import Json
from pumice.scheduler.state.claimed_cards import ClaimedCards
from pumice.scheduler.state.nodes import NodeTable
from pumice.wire.objects import Pod
from pumice.wire.pod_claims import claims_of
from pumice.wire.selectors import parse_node_term

CONSUMERS_MOST: Final = 256
"""Pods that one claim may be reserved for (ResourceClaimReservedForMaxSize)."""
SPECS_KEPT: Final = 8192
"""Specs that are recognised; tenants who never write one twice must not fill our memory."""
_encode = msgspec.json.Encoder(order="deterministic").encode


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


@dataclass(slots=True)
class DeviceClaims:
    """``waiting`` is told of pods whose claims are other than before: their classes may be others."""

    table: NodeTable
    problems: dict[str, str] = field(default_factory=dict)
    slices: Slices = field(default_factory=Slices)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    claims: dict[str, KnownClaim] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    """Kinds that the API server does not serve or let us see, and its answer."""
    version: int = 0
    """Raised when something has changed, beyond single nodes, that may help a pod with claims."""
    state: int = 0
    """Raised when any node may be judged otherwise than before, beyond single nodes; trials are counted, too."""
    changed: Callable[[Iterable[str]], None] = lambda uids: None
    """Told the uids of pods that name a claim of which something else is known."""
    freed: Callable[[str], None] = lambda uid: None
    """Told the uid of a pod that no claim is reserved for any more."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """By the uid of the claim."""
    cards: ClaimedCards = field(init=False)
    _specs: dict[bytes, Spec] = field(default_factory=dict)
    _held: dict[PoolID, dict[str, tuple[Result, ...]]] = field(default_factory=lambda: defaultdict(dict))
    """By pool and uid of the claim, what is in use."""
    _pools_of: dict[str, frozenset[PoolID]] = field(default_factory=dict)
    _usage: dict[PoolID, Usage] = field(default_factory=dict)
    _before: dict[PoolID, Usage] = field(default_factory=dict)
    """The last usage of a pool: it remembers counters of devices that are published no more."""
    _revisions: dict[PoolID, int] = field(default_factory=lambda: defaultdict(int))
    _users: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Pods that wait, by the claims that they name."""
    _named_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _consumed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By pod the claims that are reserved for it."""
    _keys: dict[str, str] = field(default_factory=dict)
    """Claims by their uids."""
    _key_versions: dict[str, int] = field(default_factory=dict)
    """By the claims that waiting pods name, the number of the last change; no number comes twice."""
    _key_news: int = 0
    _class_version: int = 0
    _lifted: set[str] = field(default_factory=set)
    """Pods that are off the books for a question."""

    def __post_init__(self) -> None:
        self.cards = ClaimedCards(self.slices)

    # -- what the API server shows ------------------------------------------------------------------------------------

    def put_slice(self, obj: Json) -> None:
        """A slice that cannot be used is as none: its pool is incomplete then."""
        name = f"ResourceSlice {_name(obj)}"
        self.problems.pop(name, None)
        try:
            one = slice_of(obj)
        except BadInput as error:
            self.drop_slice(obj)
            self.problems[name] = str(error)
            return
        if self.slices.get(one.name) != one:
            before = self.slices.get(one.name)
            self._remember({one.pool} | ({before.pool} if before is not None else set()))
            rows = self._rows({before.pool}) if before is not None else set()
            self._republished(self.slices.put(one), rows)

    def drop_slice(self, obj: Json) -> None:
        self.problems.pop(f"ResourceSlice {_name(obj)}", None)
        before = self.slices.get(_name(obj))
        if before is not None:
            self._remember({before.pool})
            rows = self._rows({before.pool})
            self._republished(self.slices.remove(before.name), rows)

    def put_class(self, obj: Json) -> None:
        name = f"DeviceClass {_name(obj)}"
        self.problems.pop(name, None)
        try:
            one = class_of(obj)
        except BadInput as error:
            self.drop_class(obj)
            self.problems[name] = str(error)
            return
        if self.classes.get(one.name) != one:
            for expression in ("true", *(selector.cel.expression for selector in one.spec.selectors if selector.cel)):
                with suppress(CelError):  # told to who asks for the class; here so that no cycle waits for the grammar
                    program_of(expression)
            self.classes[one.name] = one
            self._changed_everywhere()

    def drop_class(self, obj: Json) -> None:
        self.problems.pop(f"DeviceClass {_name(obj)}", None)
        if self.classes.pop(_name(obj), None) is not None:
            self._changed_everywhere()

    def put_claim(self, obj: Json) -> None:
        """A claim was seen, or is the answer to a write of ours: an older one than is known says nothing."""
        key = _key(obj)
        self.problems.pop(f"ResourceClaim {key}", None)
        before = self.claims.get(key)
        try:
            found = self._read(key, obj)
        except (BadInput, ValueError, TypeError, AttributeError, KeyError) as error:
            self.problems[f"ResourceClaim {key}"] = str(error)
            held = _unreadable(key, obj, before)
            if held is None:
                return
            found = held
        if before is not None and before.uid == found.uid and before.version > found.version:
            return
        if before is not None and before.uid != found.uid:
            self._forget(before)
        self.claims[key], self._keys[found.uid] = found, key
        self._refresh(found.uid, found.results)
        for pod in (before.consumers if before is not None else frozenset()) ^ found.consumers:
            self._consumes(pod, key, now=pod in found.consumers)
        if before is None or replace(before, version=0) != replace(found, version=0):
            self._report(key)

    def drop_claim(self, obj: Json) -> None:
        self.problems.pop(f"ResourceClaim {_key(obj)}", None)
        found, uid = self.claims.get(_key(obj)), (obj.get("metadata") or {}).get("uid")
        if found is not None and (not uid or uid == found.uid):
            self._forget(found)

    def lacks(self, kind: str, answer: str) -> None:
        """The API server does not serve the kind, or not to us; empty: it does."""
        if self.lacking.get(kind, "") == answer:
            return
        if answer:
            self.lacking[kind] = answer
        else:
            self.lacking.pop(kind, None)
        self._changed_everywhere()
        self.changed(list(self._named_by))

    def _read(self, key: str, obj: Json) -> KnownClaim:
        meta, status = obj["metadata"], obj.get("status") or {}
        allocation = status.get("allocation")
        owner: Json = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), {})
        selector = (allocation or {}).get("nodeSelector")
        if not isinstance(selector, Mapping | None):
            raise BadInput(f"ResourceClaim {key}: status.allocation.nodeSelector is no object")
        for term in (selector or {}).get("nodeSelectorTerms") or ():
            parse_node_term(term)
        text = _encode(obj.get("spec") or {})
        spec = self._specs.get(text)
        if spec is None:
            if len(self._specs) >= SPECS_KEPT:
                self._specs.clear()
            spec = self._specs[text] = Spec(claim_of({**obj, "kind": "ResourceClaim"}).devices)
        return KnownClaim(
            key, str(meta.get("uid", "")), int(meta.get("resourceVersion") or 0), spec,
            None if allocation is None else results_of(obj),
            selector,
            frozenset(str(one.get("uid", "")) for one in status.get("reservedFor") or ()),
            str(owner.get("uid", "")) if owner.get("kind") == "Pod" else "", bool(meta.get("deletionTimestamp")),
        )  # fmt: skip

    def _forget(self, claim: KnownClaim) -> None:
        del self.claims[claim.key], self._keys[claim.uid]
        self._refresh(claim.uid, None)
        for pod in claim.consumers:
            self._consumes(pod, claim.key, now=False)
        self._report(claim.key)

    def _consumes(self, pod: str, key: str, *, now: bool) -> None:
        if now:
            self._consumed[pod].add(key)
            return
        self._consumed[pod].discard(key)
        if not self._consumed[pod]:
            del self._consumed[pod]
            self.freed(pod)

    def _report(self, key: str) -> None:
        self._of_key(key)
        if key in self._users:
            self.changed(list(self._users[key]))

    # -- pods that name claims ----------------------------------------------------------------------------------------

    def wanted(self, pod: Pod) -> tuple[Wanted, ...] | Refusal:
        """Return what the class of a pod with claims has to know of them; or why it cannot be tried yet."""
        keys = self._note(pod)
        if isinstance(keys, Refusal):
            return keys
        for kind, answer in self.lacking.items():
            return Refusal("spec.resourceClaims", f"no claim can be allocated: {kind} of resource.k8s.io/v1: {answer}")
        found = []
        for key, name in keys.items():
            claim = self.claims.get(key)
            trouble = self.problems.get(f"ResourceClaim {key}", "")
            if claim is None or trouble:
                return Refusal("spec.resourceClaims", trouble or f"ResourceClaim {key} is not there")
            if claim.deleting:
                return Refusal("spec.resourceClaims", f"ResourceClaim {key} is being deleted")
            if claim.made_for and claim.made_for != pod.metadata.uid:
                return Refusal("spec.resourceClaims", f"ResourceClaim {key} was made for another pod")
            alone = bool(claim.made_for) and claim.results is None
            found.append(Wanted(claim.spec, "" if alone else key, name))
        return tuple(found)

    def _note(self, pod: Pod) -> dict[str, str] | Refusal:
        """Remember which claims a pod names that has no place, so that it is tried when one of them changes."""
        keys, uid = claims_of(pod), pod.metadata.uid
        self.forget_pod(uid)
        if not isinstance(keys, Refusal) and not pod.spec.node_name:
            self._named_by[uid] = tuple(keys)
            for key in keys:
                self._users[key].add(uid)
        return keys

    def forget_pod(self, uid: str) -> None:
        """The pod is gone, or has a node."""
        for key in self._named_by.pop(uid, ()):
            self._users[key].discard(uid)
            if not self._users[key]:
                del self._users[key]
                self._key_versions.pop(key, None)

    def keys_of(self, uid: str) -> tuple[str, ...]:
        """Return the claims that a pod names which waits for a place."""
        return self._named_by.get(uid, ())

    def key_of(self, uid: str) -> str:
        """Return namespace and name of a claim by its uid."""
        return self._keys.get(uid, uid)

    def reserved_for(self, uid: str) -> bool:
        """Return whether the API server shows a claim that is reserved for the pod, whether it is there or not."""
        return uid in self._consumed

    # -- decisions ----------------------------------------------------------------------------------------------------

    def reservations(self, uid: str, allocations: Sequence[Allocation | None]) -> tuple[Reserved, ...]:
        """Return what a pod takes with its place, from what was found for its class."""
        found = []
        for key, allocation in zip(self.keys_of(uid), allocations, strict=True):
            claim = self.claims[key]
            found.append(Reserved(key, claim.uid, None if allocation is None else _of(claim, allocation)))
        return tuple(found)

    def take(self, pod: str, reserved: Iterable[Reserved]) -> None:
        """The pod has a place; what was decided for its claims is in use."""
        for one in reserved:
            decision = self.decisions.get(one.uid)
            if decision is not None:
                decision.pods.add(pod)
            elif one.allocation is not None:
                self.decisions[one.uid] = Decision(one.allocation, _results(one.allocation), {pod})
                self._refresh(one.uid, self._shown(one), trial=True)
                self._of_key(one.key)

    def give_back(self, pod: str, reserved: Iterable[Reserved], *, gain: bool) -> None:
        """The pod has its place no more; ``gain``: others may fit now who did not before."""
        for one in reserved:
            decision = self.decisions.get(one.uid)
            if decision is None or pod not in decision.pods:
                continue
            decision.pods.discard(pod)
            if not decision.pods:
                del self.decisions[one.uid]
                self._refresh(one.uid, self._shown(one), trial=not gain)
                self._of_key(one.key)

    def decided(self, key: str) -> Decision | None:
        """Return the decision that counts for a claim whose status shows no devices."""
        claim = self.claims.get(key)
        return self.decisions.get(claim.uid) if claim is not None and claim.results is None else None

    def consumers(self, key: str) -> int:
        """Return how many pods use the claim, with those whose write is still to come."""
        claim = self.claims[key]
        decision = self.decisions.get(claim.uid)
        return len(claim.consumers | decision.pods) if decision is not None else len(claim.consumers)

    def lift(self, pod: str, *, back: bool = False) -> None:
        """Count the claims of a pod as given back that no other pod uses, for as long as a question is asked."""
        if back:
            self._lifted.discard(pod)
        elif pod in self._consumed:
            self._lifted.add(pod)
        for key in self._consumed.get(pod, ()):
            uid = self.claims[key].uid
            self.cards.set_aside(uid, back=not self._is_free(uid, self._lifted))
            pools = self._pools_of.get(uid, frozenset())
            for pool in pools:
                self._revisions[pool] += 1
            self._touch(pools, gain=False)

    def _shown(self, one: Reserved) -> tuple[Result, ...] | None:
        claim = self.claims.get(one.key)
        return claim.results if claim is not None and claim.uid == one.uid else None

    def _of_key(self, key: str) -> None:
        """Something of a claim changed: classes of pods that name it are judged anew, where it is not one pod's alone."""
        if key in self._users:
            self._key_news += 1
            self._key_versions[key] = self._key_news

    # -- what is in use -----------------------------------------------------------------------------------------------

    def usage(self, node: str, without: Collection[str] = (), plus: Iterable[Reserved] = ()) -> Usage:
        """Return what is in use of the devices that the node may use. ``without``: the claims that only these pods use are given
        back; ``plus``: these are taken."""
        gone = {*without, *self._lifted}
        more = [result for one in plus if one.allocation is not None for result in _results(one.allocation)]
        parts = []
        for pool in self.slices.may_concern(node):
            held = self._held.get(pool)
            free = {uid for uid in held or () if gone and self._is_free(uid, gone)}
            mine = [result for result in more if (result.driver, result.pool) == pool]
            if free or mine:
                left = [result for uid, results in (held or {}).items() if uid not in free for result in results]
                parts.append(usage_of([*left, *mine], self.slices, self._usage_of(pool)))
            elif held:
                parts.append(self._usage_of(pool))
        return parts[0] if len(parts) == 1 else _together(parts)

    def _is_free(self, uid: str, gone: Collection[str]) -> bool:
        claim, decision = self.claims.get(self._keys.get(uid, "")), self.decisions.get(uid)
        pods = (claim.consumers if claim is not None else frozenset()) | (decision.pods if decision is not None else set())
        return bool(pods) and pods <= set(gone)

    def _results_of(self, uid: str) -> list[Result]:
        return [one for pool in self._pools_of.get(uid, ()) for one in self._held[pool][uid]]

    def freed_by(self, gone: Collection[str], placed: Iterable[Reserved] = ()) -> list[str]:
        """Return the uids of claims that nobody uses once these pods are gone. ``placed``: claims that were decided for them."""
        known = {self.claims[key].uid for pod in gone for key in self._consumed.get(pod, ()) if key in self.claims}
        return [uid for uid in known | {one.uid for one in placed} if self._is_free(uid, gone)]

    def _usage_of(self, pool: PoolID) -> Usage:
        found = self._usage.get(pool)
        if found is None:
            results = (result for results in self._held.get(pool, {}).values() for result in results)
            found = self._usage[pool] = self._before[pool] = usage_of(results, self.slices, self._before.get(pool))
        return found

    def _remember(self, pools: Iterable[PoolID]) -> None:
        """Look at devices in use before what is published changes."""
        for pool in pools:
            if pool in self._held:
                self._usage_of(pool)

    def _refresh(self, uid: str, shown: tuple[Result, ...] | None, *, trial: bool = False) -> None:
        """Bring what the claim holds in line with its status, or else its decision."""
        decision = self.decisions.get(uid)
        results = shown if shown is not None else decision.results if decision is not None else ()
        by_pool: dict[PoolID, list[Result]] = defaultdict(list)
        for result in results:
            by_pool[result.driver, result.pool].append(result)
        before, changed, less = self._pools_of.pop(uid, frozenset()), set(), False
        for pool in before | by_pool.keys():
            held, now = self._held[pool], tuple(by_pool.get(pool, ()))
            if held.get(uid, ()) == now:
                continue
            changed.add(pool)
            less = less or len(now) < len(held.get(uid, ()))
            if now:
                held[uid] = now
            else:
                held.pop(uid, None)
            if not held:
                del self._held[pool]
                self._before.pop(pool, None)
            self._usage.pop(pool, None)
            self._revisions[pool] += 1
        if by_pool:
            self._pools_of[uid] = frozenset(by_pool)
        if changed:
            self.cards.holds(uid, results, gain=less and not trial)
            self._touch(changed, gain=less and not trial)

    def _touch(self, pools: Iterable[PoolID], *, gain: bool) -> None:
        for pool in pools:
            nodes = self.slices.nodes_of(pool)
            if nodes is None:
                self.state += 1
                self.version += gain
            for node in nodes or ():
                row = self.table.row_of.get(node)
                if row is not None:
                    self.table.touch(row, gain=gain)

    def _rows(self, pools: Iterable[PoolID]) -> set[int]:
        names = {node for pool in pools for node in self.slices.nodes_of(pool) or ()}
        return {self.table.row_of[name] for name in names if name in self.table.row_of}

    def _republished(self, pools: set[PoolID], rows: set[int]) -> None:
        """Other devices are published: nodes of before and of now are looked at."""
        for pool in pools:
            self._usage.pop(pool, None)
            self._revisions[pool] += 1
            for uid in self._held.get(pool, ()):
                self.cards.holds(uid, self._results_of(uid), gain=True)
        self._touch(pools, gain=True)
        for row in rows:
            self.table.touch(row, gain=True)

    def revision(self, node: str) -> tuple[int, ...]:
        """Return a value that is another one whenever the node's devices, or what is in use of them, are."""
        return (self._class_version, *(self._revisions[pool] for pool in sorted(self.slices.may_concern(node))))

    def _changed_everywhere(self) -> None:
        self.version += 1
        self.state += 1
        self._class_version += 1

    def seen_by(self, wanted: Iterable[Wanted]) -> int:
        """Return a value that is another one when something changed that may help such pods, beyond what nodes gained."""
        return self.version + self._of_keys(wanted) if wanted else 0

    def judged_by(self, wanted: Iterable[Wanted]) -> int:
        """Return a value that is another one when nodes that did not change may be judged otherwise for such pods."""
        return self.state + self._of_keys(wanted) if wanted else 0

    def _of_keys(self, wanted: Iterable[Wanted]) -> int:
        return sum(self._key_versions.get(one.key, 0) for one in wanted if one.key)

    @property
    def news(self) -> int:
        """Grows whenever something changed that may help some pod with claims."""
        return self.version + self._key_news

    # -- invariants ---------------------------------------------------------------------------------------------------

    def validate(self) -> Iterator[str]:
        """Yield what does not hold between events: what is in use is that of the claims and decisions, and nothing else."""
        whole: dict[PoolID, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
        holds = {claim.uid: claim.results for claim in self.claims.values() if claim.results is not None}
        for uid, decision in self.decisions.items():
            holds.setdefault(uid, decision.results)
            if not decision.pods:
                yield f"a decision for claim {uid} belongs to no pod"
        for uid, results in holds.items():
            for result in results:
                whole[result.driver, result.pool][uid].append(result)
        if {pool: {uid: tuple(some) for uid, some in held.items()} for pool, held in whole.items()} != self._held:
            yield "what is in use of the pools is not what claims and decisions hold"
        yield from self.cards.validate()
        for pod, keys in self._consumed.items():
            if any(pod not in self.claims[key].consumers for key in keys if key in self.claims):
                yield f"pod {pod} is said to use a claim that is not reserved for it"


def _of(claim: KnownClaim, allocation: Allocation) -> Allocation:
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


def _unreadable(key: str, obj: Json, before: KnownClaim | None) -> KnownClaim | None:
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


def _results(allocation: Allocation) -> tuple[Result, ...]:
    return tuple(
        Result(driver=one.place.id.driver, pool=one.place.id.pool, device=one.place.id.device, request=one.request,
               admin_access=one.admin_access, share_id=one.share_id, consumed_capacity=dict(one.consumed),
               binding_conditions=one.place.device.binding_conditions,
               binding_failure_conditions=one.place.device.binding_failure_conditions)
        for one in allocation.devices
    )  # fmt: skip


def _together(parts: Sequence[Usage]) -> Usage:
    """Return the sum of the usages of different pools."""
    return Usage(
        frozenset().union(*(part.exclusive for part in parts)),
        frozenset().union(*(part.shared for part in parts)),
        {id_: amounts for part in parts for id_, amounts in part.consumed.items()},
        {id_: consumption for part in parts for id_, consumption in part.remembered.items()},
    )


def _name(obj: Json) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def _key(obj: Json) -> str:
    return f"{(obj.get('metadata') or {}).get('namespace', '')}/{_name(obj)}"
