"""ResourceClaims, ResourceSlices and DeviceClasses as the API server shows them, and what our decisions hold of their devices.

A claim holds what its status says; else what was decided for it: on trial, or with its write on the way. A decision belongs to
the pods that placed it, and ends with the last of them. Everything that is in use is summed by pool, from claims, in one place.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from pumice.cel.values import CelError
from pumice.claims.allocation import Allocation
from pumice.claims.by_resource import IMPLICIT, NAME, Asking, ByResource, by_resource
from pumice.claims.objects import DeviceClass, Result, claim_of, class_of, slice_of
from pumice.claims.selecting import program_of
from pumice.claims.slices import PoolID, Slices
from pumice.claims.usage import Usage
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.ports.cluster import Json
from pumice.scheduler.state.claim_charges import ClaimCharge, Part, charged_for
from pumice.scheduler.state.claimed_cards import ClaimedCards
from pumice.scheduler.state.devices_in_use import DevicesInUse
from pumice.scheduler.state.known_claims import (
    CONSUMERS_MOST,
    Decision,
    KnownClaim,
    Reserved,
    Spec,
    Wanted,
    encode_spec,
    for_claim,
    key_of,
    name_of,
    read_claim,
    results_in,
    unreadable,
)
from pumice.scheduler.state.nodes import NodeTable
from pumice.scheduler.state.resources import Vector, add
from pumice.wire.objects import Pod
from pumice.wire.pod_claims import amounts_of, claims_of


@dataclass(slots=True)
class DeviceClaims:
    """The ResourceClaims of the cluster. ``waiting`` is told of pods whose claims are other than before: their classes may be
    others."""

    table: NodeTable
    problems: dict[str, str] = field(default_factory=dict)
    slices: Slices = field(default_factory=Slices)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    claims: dict[str, KnownClaim] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    """Kinds that the API server does not serve or let us see, and its answer."""
    changed: Callable[[Iterable[str]], None] = lambda uids: None
    """Told the uids of pods that name a claim of which something else is known."""
    stand: Callable[[], None] = lambda: None
    """Told when classes stand for other extended resources than before."""
    owned: frozenset[str] = frozenset()
    """Resources that are served card by card (``DeviceSharing.resources``): no class stands for them."""
    stands_for: dict[str, str] = field(default_factory=dict)
    """Classes by the extended resource that they stand for."""
    charged: Callable[[Iterable[str]], None] = lambda uids: None
    """Told the uids of pods that use a claim which holds something else than before."""
    freed: Callable[[str], None] = lambda uid: None
    """Told the uid of a pod that no claim is reserved for any more."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """By the uid of the claim."""
    _joining: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By the uid of a claim that had its devices before, the pods that got a place with it: its status names them later."""
    in_use: DevicesInUse = field(init=False)
    _specs: dict[bytes, Spec] = field(default_factory=dict)
    _users: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Pods that wait, by the claims that they name, in the order in which they came: a journal is played in that order too."""
    _named_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _consumed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By pod the claims that are reserved for it."""
    _keys: dict[str, str] = field(default_factory=dict)
    """Claims by their uids."""
    _key_versions: dict[str, int] = field(default_factory=dict)
    """By the claims that pods named while they waited, the number of the last change. No number comes twice, not even after
    these pods: what is kept of a class outlasts them."""
    _last_forgotten: int = 0
    """The last number of a claim that is gone: one of the same name may come."""
    _key_changes: int = 0
    _key_news: int = 0
    """Changes on which a pod that waits can count."""
    classes_version: int = 0
    """Changes of DeviceClasses, and of what the API server serves of claims."""
    _made: dict[str, str] = field(default_factory=dict)
    """The times at which classes were made."""
    _written_for: dict[str, str] = field(default_factory=dict)
    """By pod the claim that was written for its extended resources."""
    _went: deque[str] = field(default_factory=lambda: deque(maxlen=1024))
    """Uids of claims that went of late."""
    _named_by_class: bool = False
    """Some pod asked for a resource that is named after a class."""
    _lifted: set[str] = field(default_factory=set)
    """Pods that are off the ledger for a question."""

    def __post_init__(self) -> None:
        self.in_use = DevicesInUse(self.table, self.slices)

    @property
    def cards(self) -> ClaimedCards:
        return self.in_use.cards

    @property
    def version(self) -> int:
        """Raised when something has changed, beyond single nodes, that may help a pod with claims."""
        return self.in_use.version

    # -- what the API server shows ------------------------------------------------------------------------------------

    def put_slice(self, obj: Json) -> None:
        """A slice that cannot be used is as none: its pool is incomplete then."""
        name = f"ResourceSlice {name_of(obj)}"
        self.problems.pop(name, None)
        try:
            one = slice_of(obj)
        except BadInput as error:
            self.drop_slice(obj)
            self.problems[name] = str(error)
            return
        if self.slices.get(one.name) != one:
            before = self.slices.get(one.name)
            self.in_use.remember({one.pool} | ({before.pool} if before is not None else set()))
            rows = self.in_use.rows({before.pool}) if before is not None else set()
            self.in_use.republished(self.slices.put(one), rows)

    def drop_slice(self, obj: Json) -> None:
        self.problems.pop(f"ResourceSlice {name_of(obj)}", None)
        before = self.slices.get(name_of(obj))
        if before is not None:
            self.in_use.remember({before.pool})
            rows = self.in_use.rows({before.pool})
            self.in_use.republished(self.slices.remove(before.name), rows)

    def put_class(self, obj: Json) -> None:
        name = f"DeviceClass {name_of(obj)}"
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
            self.classes[one.name], self._made[one.name] = one, str(obj["metadata"].get("creationTimestamp", ""))
            self._changed_everywhere()
            self._stand_anew()

    def drop_class(self, obj: Json) -> None:
        self.problems.pop(f"DeviceClass {name_of(obj)}", None)
        if self.classes.pop(name_of(obj), None) is not None:
            self._changed_everywhere()
            self._stand_anew()

    def _stand_anew(self) -> None:
        """The newest class stands for a resource, of equally old ones the first by name, as in Kubernetes. Pods that ask by a
        class's own name are other pods once there is such a class."""
        found: dict[str, str] = {}
        for name in sorted(self.classes, key=lambda name: (self._made.get(name, ""), [-ord(letter) for letter in name])):
            resource = self.classes[name].spec.extended_resource_name
            if resource and resource not in self.owned:
                found[resource] = name
        if found != self.stands_for or self._named_by_class:
            self.stands_for = found
            self.table.had_by_claim(frozenset(found))
            self.stand()

    def own(self, resources: frozenset[str]) -> None:
        """From now on these resources are served card by card."""
        self.owned = resources
        self._stand_anew()

    def had_by_claim(self, resource: str) -> bool:
        return resource in self.stands_for or resource.startswith(IMPLICIT)

    def class_for(self, resource: str) -> str | None:
        """Return the class that stands for a resource."""
        named = resource.removeprefix(IMPLICIT)
        return named if named != resource and named in self.classes else self.stands_for.get(resource)

    def by_name(self, pod: Pod) -> bool:
        """Return whether the pod asks for a resource that is had by claim, or would be if there were such a class."""
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            for name in (*container.resources.limits, *container.resources.requests):
                if self.had_by_claim(name):
                    return True
        return False

    def put_claim(self, obj: Json) -> None:
        """A claim was seen, or is the answer to a write of ours: an older one than is known says nothing."""
        key = key_of(obj)
        self.problems.pop(f"ResourceClaim {key}", None)
        before = self.claims.get(key)
        try:
            found = read_claim(key, obj, self._specs)
        except (BadInput, ValueError, TypeError, AttributeError, KeyError) as error:
            self.problems[f"ResourceClaim {key}"] = str(error)
            held = unreadable(key, obj, before)
            if held is None:
                return
            found = held
        if before is not None and before.uid == found.uid and before.version > found.version:
            return
        if before is not None and before.uid != found.uid:
            self._forget(before)
        self.claims[key], self._keys[found.uid] = found, key
        if found.stands_for_resources and found.made_for:
            self._was_written(found)
        self._refresh(found.uid, found.results)
        consumers = before.consumers if before is not None else frozenset()
        for pod in consumers ^ found.consumers:
            self._consumes(pod, key, now=pod in found.consumers)
        if before is None or (before.results, consumers, before.spec) != (found.results, found.consumers, found.spec):
            self.charged(consumers | found.consumers)
        if before is None or replace(before, version=0) != replace(found, version=0):
            self._report(key)
            if found.stands_for_resources and key not in self._users:
                self.changed([found.made_for])

    def _was_written(self, claim: KnownClaim) -> None:
        """End what was decided for a claim that had no name yet, with its status."""
        self._written_for[claim.made_for] = claim.key
        decided = _uid_for(claim.made_for)
        if claim.results is not None and self.decisions.pop(decided, None) is not None:
            self._refresh(decided, None)

    def drop_claim(self, obj: Json) -> None:
        self.problems.pop(f"ResourceClaim {key_of(obj)}", None)
        found, uid = self.claims.get(key_of(obj)), (obj.get("metadata") or {}).get("uid")
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

    def _forget(self, claim: KnownClaim) -> None:
        del self.claims[claim.key], self._keys[claim.uid]
        self._went.append(claim.uid)
        if claim.stands_for_resources and self._written_for.get(claim.made_for) == claim.key:
            del self._written_for[claim.made_for]
            if claim.key not in self._users:
                self.changed([claim.made_for])
        self._refresh(claim.uid, None)
        for pod in claim.consumers:
            self._consumes(pod, claim.key, now=False)
        self.charged(claim.consumers)
        self._report(claim.key)
        self._forget_key(claim.key)

    def _forget_key(self, key: str) -> None:
        self._last_forgotten = max(self._last_forgotten, self._key_versions.pop(key, 0))

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
            text = f"no claim can be allocated: {kind} of resource.k8s.io/v1: {answer}"
            return Refusal("spec.resourceClaims", text, waits=True)
        found = []
        resources = self._by_resource(pod)
        if isinstance(resources, Refusal):
            return resources
        if resources is not None:
            keys[self._key_for(pod, resources)] = NAME
            self._name(pod, keys)
        for key, name in keys.items():
            claim = self.claims.get(key)
            trouble = self.problems.get(f"ResourceClaim {key}", "")
            if claim is None or trouble:
                return Refusal("spec.resourceClaims", trouble or f"ResourceClaim {key} is not there", waits=not trouble)
            if claim.deleting:
                return Refusal("spec.resourceClaims", f"ResourceClaim {key} is being deleted", waits=True)
            if claim.made_for and claim.made_for != pod.metadata.uid:
                return Refusal("spec.resourceClaims", f"ResourceClaim {key} was made for another pod")
            alone = bool(claim.made_for) and claim.results is None
            found.append(Wanted(claim.spec, "" if alone else key, name, resources if alone and name == NAME else None))
        return tuple(found)

    def _by_resource(self, pod: Pod) -> ByResource | Refusal | None:
        """Return what a pod asks of classes that stand for extended resources."""
        if not self.by_name(pod):
            return None
        containers = [
            *(Asking(one.name, amounts_of(one), one.restart_policy != "Always") for one in pod.spec.init_containers),
            *(Asking(one.name, amounts_of(one)) for one in pod.spec.containers),
        ]
        for name in sorted({name for one in containers for name in one.amounts if self.had_by_claim(name)}):
            self._named_by_class = self._named_by_class or name.startswith(IMPLICIT)
            if any(one.amounts.get(name, 0) is None for one in containers):
                return Refusal(name, "asks for no whole number of devices")
            if self.class_for(name) is None:
                return Refusal(name, f"there is no device class {name.removeprefix(IMPLICIT)}")
        return by_resource(containers, self.class_for)

    def _key_for(self, pod: Pod, resources: ByResource) -> str:
        """Return the claim that was written for such a pod, or one that stands for it until it is."""
        uid = pod.metadata.uid
        if uid in self._written_for:
            return self._written_for[uid]
        key, spec = f"{pod.metadata.namespace}/{NAME} {uid}", resources.spec()
        text = encode_spec(spec)
        known = self._specs.get(text)
        if known is None:
            made = {"kind": "ResourceClaim", "metadata": {"name": NAME}, "spec": spec}
            known = self._specs[text] = Spec(claim_of(made).devices)
        self.claims[key] = KnownClaim(key, _uid_for(uid), 0, known, made_for=uid, by_resource=resources)
        self._keys[_uid_for(uid)] = key
        return key

    def _note(self, pod: Pod) -> dict[str, str] | Refusal:
        """Remember which claims a pod names that has no place, so that it is tried when one of them changes."""
        keys, uid = claims_of(pod), pod.metadata.uid
        self.forget_pod(uid)
        if not isinstance(keys, Refusal):
            self._name(pod, keys)
        return keys

    def _name(self, pod: Pod, keys: Iterable[str]) -> None:
        if not pod.spec.node_name:
            self._named_by[pod.metadata.uid] = tuple(keys)
            for key in keys:
                self._users[key][pod.metadata.uid] = None

    def forget_pod(self, uid: str) -> None:
        """The pod is gone, or has a node."""
        for key in self._named_by.pop(uid, ()):
            self._users[key].pop(uid, None)
            if not self._users[key]:
                del self._users[key]
        unwritten = self._keys.pop(_uid_for(uid), None)
        if unwritten is not None:
            del self.claims[unwritten]
            self._forget_key(unwritten)

    def keys_of(self, uid: str) -> tuple[str, ...]:
        """Return the claims that a pod names which waits for a place."""
        return self._named_by.get(uid, ())

    def key_of(self, uid: str) -> str:
        """Return namespace and name of a claim by its uid."""
        return self._keys.get(uid, uid)

    def went(self, uid: str) -> bool:
        """Return whether a claim of that uid was seen to go of late."""
        return uid in self._went

    def reserved_for(self, uid: str) -> bool:
        """Return whether the API server shows a claim that is reserved for the pod, whether it is there or not."""
        return uid in self._consumed

    # -- decisions ----------------------------------------------------------------------------------------------------

    def reservations(self, uid: str, allocations: Sequence[Allocation | None]) -> tuple[Reserved, ...]:
        """Return what a pod takes with its place, from what was found for its class."""
        found = []
        for key, allocation in zip(self.keys_of(uid), allocations, strict=True):
            claim = self.claims[key]
            if allocation is None and claim.results is None and claim.uid not in self.decisions:
                continue  # the node offers the resources itself
            found.append(Reserved(key, claim.uid, None if allocation is None else for_claim(claim, allocation)))
        return tuple(found)

    def charge_of(self, pod: str, decided: Iterable[tuple[str, Allocation | None]] = ()) -> ClaimCharge:
        """Return what the queue of a pod pays for claims: those that are reserved for it, and those that it is to have with its
        place, each with what was found for it."""
        found = dict(decided)
        own, shared = Vector(), list[Part]()
        for key in (*found, *(key for key in self._consumed.get(pod, ()) if key not in found)):
            claim = self.claims.get(key)
            if claim is None:
                continue
            decision, allocation = self.decisions.get(claim.uid), found.get(key)
            results = claim.results
            if results is None and (decision is not None or allocation is not None):
                results = decision.results if decision is not None else results_in(allocation) if allocation is not None else ()
            amounts = charged_for(claim.spec.devices, results or ())
            if claim.made_for == pod:
                add(own, amounts.items())
            elif amounts:
                shared.append((claim.uid, tuple(sorted(amounts.items()))))
        return ClaimCharge(own, tuple(shared))

    def take(self, pod: str, reserved: Iterable[Reserved]) -> None:
        """The pod has a place; what was decided for its claims is in use."""
        for one in reserved:
            decision = self.decisions.get(one.uid)
            if decision is not None:
                decision.pods.add(pod)
            elif one.allocation is not None:
                self.decisions[one.uid] = Decision(one.allocation, results_in(one.allocation), {pod})
                self._refresh(one.uid, self._shown(one), trial=True)
                self._of_key(one.key, trial=True)
            else:
                self._joining[one.uid].add(pod)

    def give_back(self, pod: str, reserved: Iterable[Reserved], *, gain: bool) -> None:
        """The pod has its place no more; ``gain``: others may fit now who did not before."""
        for one in reserved:
            full = one.key in self.claims and self.consumers(one.key) >= CONSUMERS_MOST
            if pod in self._joining.get(one.uid, ()):
                self._joining[one.uid].discard(pod)
                if not self._joining[one.uid]:
                    del self._joining[one.uid]
            decision = self.decisions.get(one.uid)
            if decision is not None:
                decision.pods.discard(pod)
            if full:
                self._of_key(one.key, trial=not gain)
            if decision is not None and not decision.pods:
                del self.decisions[one.uid]
                self._refresh(one.uid, self._shown(one), trial=not gain)
                self._of_key(one.key, trial=not gain)

    def decided(self, key: str) -> Decision | None:
        """Return the decision that counts for a claim whose status shows no devices."""
        claim = self.claims.get(key)
        return self.decisions.get(claim.uid) if claim is not None and claim.results is None else None

    def consumers(self, key: str) -> int:
        """Return how many pods use the claim, with those whose write is still to come."""
        claim = self.claims[key]
        return len(claim.consumers | self.placed_with(claim.uid))

    def placed_with(self, uid: str) -> set[str]:
        """Return the pods that have a place with the claim, whether or not its status names them yet."""
        decision, joining = self.decisions.get(uid), self._joining.get(uid, set())
        return decision.pods | joining if decision is not None else joining

    def lift(self, pod: str, *, back: bool = False) -> None:
        """Count the claims of a pod as given back that no other pod uses, for as long as a question is asked."""
        if back:
            self._lifted.discard(pod)
        elif pod in self._consumed:
            self._lifted.add(pod)
        for key in self._consumed.get(pod, ()):
            uid = self.claims[key].uid
            self.in_use.set_aside(uid, back=not self._is_free(uid, self._lifted))

    def _shown(self, one: Reserved) -> tuple[Result, ...] | None:
        claim = self.claims.get(one.key)
        return claim.results if claim is not None and claim.uid == one.uid else None

    def _of_key(self, key: str, *, trial: bool = False) -> None:
        """Something of a claim changed: classes of pods that name it are judged anew, where it is not one pod's alone. ``trial``:
        nobody else can count on it."""
        if key in self._users or key in self._key_versions:
            self._key_changes += 1
            self._key_versions[key] = self._key_changes
            self._key_news += not trial

    # -- what is in use -----------------------------------------------------------------------------------------------

    def usage(self, node: str, without: Collection[str] = (), plus: Iterable[Reserved] = ()) -> Usage:
        """Return what is in use of the devices that the node may use. ``without``: the claims that only these pods use are given
        back; ``plus``: these are taken."""
        gone = {*without, *self._lifted}
        more = [result for one in plus if one.allocation is not None for result in results_in(one.allocation)]
        return self.in_use.on(node, more, partial(self._is_free, gone=gone) if gone else None)

    def _is_free(self, uid: str, gone: Collection[str]) -> bool:
        claim = self.claims.get(self._keys.get(uid, ""))
        pods = (claim.consumers if claim is not None else frozenset()) | self.placed_with(uid)
        return bool(pods) and pods <= set(gone)

    def freed_by(self, gone: Collection[str], placed: Iterable[Reserved] = ()) -> list[str]:
        """Return the uids of claims that nobody uses once these pods are gone. ``placed``: claims that were decided for them."""
        known = {self.claims[key].uid for pod in gone for key in self._consumed.get(pod, ()) if key in self.claims}
        return [uid for uid in known | {one.uid for one in placed} if self._is_free(uid, gone)]

    def revision(self, node: str) -> tuple[int, ...]:
        """Return a value that is another one whenever the node's devices, or what is in use of them, are."""
        return (self.classes_version, *(self.in_use.revisions[pool] for pool in sorted(self.slices.may_concern(node))))

    def _changed_everywhere(self) -> None:
        self.in_use.version += 1
        self.in_use.state += 1
        self.classes_version += 1

    def _refresh(self, uid: str, shown: tuple[Result, ...] | None, *, trial: bool = False) -> None:
        """Bring what the claim holds in line with its status, or else its decision."""
        decision = self.decisions.get(uid)
        self.in_use.hold(uid, shown if shown is not None else decision.results if decision is not None else (), trial=trial)

    def seen_by(self, wanted: Iterable[Wanted]) -> int:
        """Return a value that is another one when something changed that may help such pods, beyond what nodes gained."""
        return self.in_use.version + self._of_keys(wanted) if wanted else 0

    def judged_by(self, wanted: Iterable[Wanted]) -> int:
        """Return a value that is another one when nodes that did not change may be judged otherwise for such pods."""
        return self.in_use.state + self._of_keys(wanted) if wanted else 0

    def _of_keys(self, wanted: Iterable[Wanted]) -> int:
        return sum(self._key_versions.get(one.key, self._last_forgotten) for one in wanted if one.key)

    @property
    def news(self) -> int:
        """Grows whenever something changed that may help some pod with claims."""
        return self.in_use.version + self.in_use.gains + self._key_news

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
        if {pool: {uid: tuple(some) for uid, some in held.items()} for pool, held in whole.items()} != self.in_use.held:
            yield "what is in use of the pools is not what claims and decisions hold"
        yield from self.cards.validate()
        for pod, keys in self._consumed.items():
            if any(pod not in self.claims[key].consumers for key in keys if key in self.claims):
                yield f"pod {pod} is said to use a claim that is not reserved for it"


def _uid_for(pod: str) -> str:
    """Return what stands for the uid of a pod's claim for extended resources until it is written."""
    return f"{NAME} {pod}"
