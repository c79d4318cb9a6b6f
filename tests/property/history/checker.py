"""An independent witness of a scheduler at work: nothing of Pumice is imported here on purpose.

It is told of every Binding at the moment it was decided, with the cluster as the scheduler saw it, and asked at rest. It
complains when a card or a node is over, when a pod is placed where its rules forbid, when a gang stands in part, when a pod
without a controller is deleted, when one is told to go for nobody, and when somebody waits who fits.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kit import kube_rules
from kit.kube_rules import Cluster, leaving, ordinary
from kit.queue_rules import Queues, group_key, members
from tests.property.history.eviction_rules import BROKEN_GANG, Evictions
from tests.property.history.sharings import Sharing, Vgpu, books, may_hold

from pumice.audit import card_rules, claim_rules
from pumice.audit.amounts import done, key_of, requests
from pumice.audit.card_rules import Card

Json = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Json]]
SLOT = 40960
"""Units of memory of the largest MIG slot in a made-up cluster: a slot costs what it holds, whatever was asked."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """``promise`` is one word for what was broken: over, forbidden, gang, deleted, evicted, asleep."""

    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"

    @property
    def sort(self) -> tuple[str, str]:
        """By what two complaints are the same one: the promise, and the exception with its place where there was one."""
        found = _RAISED.search(self.text)
        return self.promise, found[0] if found is not None else ""


_RAISED = re.compile(r"\w+ at [\w.]+\.py:\d+")


def told(error: BaseException) -> str:
    """Return an exception with the place where it was raised; of several the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{at.tb_frame.f_code.co_filename.rpartition('/')[2]}:{at.tb_lineno}" if at is not None else ""
    return f"{type(error).__name__} at {where}: {error}"


@dataclass
class Checker:
    """``shares``: the plugin by which the configuration shares the cluster between queues (proportion, capacity, or capacity with
    a tree of queues); ``gangs``: pods of a PodGroup stand or fall together; ``makes_room``: some pods are told to go for others,
    ``ranked``: for more important ones only. ``ours``: the scheduler's name; ``sharing``: which cards it gives out."""

    shares: str = "proportion"
    gangs: bool = True
    makes_room: bool = False
    ranked: bool = True
    ours: str = "volcano"
    sharing: Sharing = field(default_factory=Vgpu)
    serves_claims: bool = False
    """Claims of devices are allocated; else pods that have some are placed nowhere."""
    complaints: list[Complaint] = field(default_factory=list)
    granted: dict[str, str] = field(default_factory=dict)
    """Uid to the assignment that came with the Binding: what the pod's containers hold, whatever is written over it since."""
    stood: set[str] = field(default_factory=set)
    """Uids of PodGroups that stood whole once: members may come and go since."""
    disturbed: set[str] = field(default_factory=set)
    """Keys of PodGroups whose members or object others have changed, or whose Bindings were refused."""
    doubtful: set[str] = field(default_factory=set)
    """UUIDs of cards of which somebody forged an assignment: nobody can know what is held of them."""
    unclear: bool = False
    """An assignment was emptied or forged: how much of which cards the scheduler then sets aside is its own affair."""
    slow: dict[str, float] = field(default_factory=dict)
    """Uid to the time until which the pod may wait for another try."""
    evictions: Evictions = field(init=False)

    def __post_init__(self) -> None:
        self.evictions = Evictions(self.gangs, self.ranked)

    def complain(self, promise: str, text: str) -> None:
        self.complaints.append(Complaint(promise, text))

    # -- as it happens ------------------------------------------------------------------------------------------

    def books(self, cluster: Cluster) -> dict[str, dict[str, Card]]:
        held = ((node, self.held(pod)) for node, pods in cluster.placed.items() for pod in pods)
        return books(self.sharing, cluster.nodes.values(), held)

    def held(self, pod: Json) -> str:
        known = self.granted.get(pod["metadata"]["uid"])
        return self.sharing.assignment(pod) if known is None else known

    def _unserved(self, pod: Json) -> list[str]:
        """Return the requested resources that nobody here serves: parts of cards by another sharing, and claims."""
        requested = {name for c in pod["spec"].get("containers", ()) for name in c.get("resources", {}).get("limits", {})}
        cards = (name for name in requested if name.startswith(("volcano.sh/vgpu-", "volcano.sh/gpu-")))
        other = sorted(set(cards) - {*self.sharing.resources})
        return [*other, *(["resource claims"] if pod["spec"].get("resourceClaims") and not self.serves_claims else [])]

    def claimed(self, pod: Json, node: str, fresh: Collection[str], tables: Tables, seen: Cluster) -> None:
        """All claims of a Binding are written, on the objects as the scheduler saw them. ``fresh`` got their
        devices by it."""
        key, claims = key_of(pod), tables.get("ResourceClaim", {})
        for name in _claims_of(pod):
            claim = claims.get(f"{pod['metadata']['namespace']}/{name}")
            status = (claim or {}).get("status") or {}
            if not status.get("allocation"):
                self.complain("over", f"{key} was bound to {node}, and its claim {name} has no devices")
            elif pod["metadata"]["uid"] not in {user.get("uid") for user in status.get("reservedFor") or ()}:
                self.complain("over", f"{key} was bound to {node}, and its claim {name} is not reserved for it")
            elif node in tables["Node"] and not kube_rules.selects_node(
                status["allocation"].get("nodeSelector"), tables["Node"][node]
            ):
                self.complain("forbidden", f"{key} was bound to {node}, and its claim {name} has its devices elsewhere")
        given = {(one["driver"], one["pool"], one["device"]) for name in fresh if name in claims
                 for one in claim_rules.results(claims[name])}  # fmt: skip
        for text in claim_rules.overbooked(claims.values(), tables.get("ResourceSlice", {}).values(), given):
            self.complain("over", f"{key} was bound to {node}: {text}")

        claimed = {claims[name]["metadata"]["uid"]: claims[name] for name in fresh if name in claims}
        cards = claim_rules.cards_of_claims(claimed.values(), tables.get("ResourceSlice", {}).values())
        for text in claim_rules.in_two_worlds(claims.values(), tables.get("ResourceSlice", {}).values(), self._shares(seen),
                                              cards.keys() - self.doubtful):  # fmt: skip
            self.complain("over", f"{key} was bound to {node}: {text}")

    def _shares(self, cluster: Cluster) -> Iterator[tuple[str, str, str]]:
        """Yield UUID, pod and node of each share by annotation."""
        for node, pods in cluster.placed.items():
            for pod in pods:
                for device in card_rules.container_devices(self.held(pod)):
                    yield device[0], key_of(pod), node

    def placed(self, pod: Json, node: str, annotations: Mapping[str, str], seen: Cluster) -> None:
        """A Binding was decided on the cluster as ``seen``, which has it afterwards."""
        key, placed = key_of(pod), {**pod, "metadata": {**pod["metadata"], "annotations": {
            **pod["metadata"].get("annotations", {}), **annotations}}}  # fmt: skip
        assignment = self.sharing.assignment(placed)
        reasons = seen.forbids(pod, node)
        room = [r for r in reasons if r.startswith("too little")]
        if room:
            self.complain("over", f"{key} was bound to {node}, which has {', '.join(room)}")
        if len(room) < len(reasons):
            self.complain("forbidden", f"{key} was bound to {node}: {', '.join(r for r in reasons if r not in room)}")
        if pod["spec"].get("schedulingGates"):
            self.complain("forbidden", f"{key} was bound though it is gated")
        for name in self._unserved(pod):
            self.complain("forbidden", f"{key} was bound though nobody gives out {name}")
        requested = self.sharing.wants(pod)
        if requested and node in seen.nodes:
            cards = self.books(seen).get(node, {})
            named = card_rules.charge(cards, card_rules.container_devices(assignment))
            if len(named) < sum(want.number for want in requested):
                self.complain("over", f"{key} was bound to {node} without all of its cards: {assignment!r}")
            for uuid in sorted(set(named) - self.doubtful):
                for text in cards[uuid].over():
                    self.complain("over", f"{key} was bound to {node}: {text}")
            claims, slices = (seen.tables.get(kind, {}).values() for kind in ("ResourceClaim", "ResourceSlice"))
            mine = ((uuid, key, node) for uuid in named)
            for text in claim_rules.in_two_worlds(claims, slices, mine, set(named) - self.doubtful):
                self.complain("over", f"{key} was bound to {node}: {text}")
        self.granted[pod["metadata"]["uid"]] = assignment
        seen.bind(placed, node)
        if any(q["spec"].get("capability") or q["spec"].get("guarantee") for q in seen.tables.get("Queue", {}).values()):
            standing = [other for pods in seen.placed.values() for other in pods]
            without, whole = (
                Queues(seen.tables, standing, lambda other, there=there: self._charged(other, 0, slot=0, there=there), self.ours)
                for there in (seen.nodes, None))  # fmt: skip
            for text in without.capped(queue := without.of(pod), requests(pod), already=True):
                self.complain("over", f"{key} was bound to {node}: {text}")
            robbed = without.robbed(queue, requests(pod), seen.total()) if self.shares == "capacity" else []
            # What a pod held on a node that is gone may still count as used of what its queue is guaranteed.
            if robbed and (same := whole.robbed(queue, requests(pod), seen.total())):
                self.complain("over", f"{key} was bound to {node}: {same[0]}")

    def deleted(self, pod: Json) -> None:
        """The scheduler deleted a pod. Who goes for others need not come again; who goes because his gang fell apart must."""
        conditions = pod.get("status", {}).get("conditions", ())
        why = [condition.get("message", "") for condition in conditions if condition["type"] == "DisruptionTarget"]
        if self.makes_room and not any(BROKEN_GANG in text for text in why):
            return
        if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences", ())):
            self.complain("deleted", f"{key_of(pod)} has no controller that would make it anew")

    def doubt(self, pod: Json, uuid: str) -> None:
        """Somebody emptied the pod's assignment, or forged it to name that card: nothing in it tells any more what it holds."""
        self.unclear = True
        if uuid:
            self.doubtful |= {uuid, *(container_device[0] for container_device in card_rules.container_devices(self.held(pod)))}

    def evicted(self, reported: list[tuple[str, str]], cluster: Cluster) -> None:
        """In one cycle these pods were told to go, with reasons, of the cluster as the scheduler saw it then."""
        waiting = [pod for pod in cluster.tables["Pod"].values() if self._waits(pod, float("inf"))]
        for text in self.evictions.wrong(reported, cluster, Queues(cluster.tables, (), requests, self.ours), waiting):
            self.complain("evicted", text)

    def disturb(self, pod: Json) -> None:
        """Others changed a member."""
        if key := group_key(pod):
            self.disturbed.add(key)

    # -- between steps ------------------------------------------------------------------------------------------

    def whole(self, tables: Tables) -> None:
        """No gang runs in part that never stood whole."""
        if not self.gangs:
            return
        gangs = members(tables)
        for key, group in tables.get("PodGroup", {}).items():
            least = group["spec"].get("minMember", 0)
            standing = [p for p in gangs[key] if p["spec"].get("nodeName")]
            if len(standing) >= least:
                self.stood.add(group["metadata"]["uid"])
            elif standing and group["metadata"]["uid"] not in self.stood and key not in self.disturbed:
                self.complain("gang", f"{key}: {len(standing)} of at least {least} pods have a node")

    def asleep(self, tables: Tables, now: float) -> None:
        """Everything is at rest: nobody waits who fits, as far as that can be told for certain."""
        grouped, cluster = members(tables), Cluster(tables)
        pending = [p for p in tables["Pod"].values() if self._waits(p, now) and not p["spec"].get("resourceClaims")]
        gangs = [key for key, group in tables.get("PodGroup", {}).items() if group["spec"].get("minMember", 0) > 1
                 and any(self._waits(p, 0.0) for p in grouped[key])]  # fmt: skip
        if any(condition["type"] == "Reserved" and condition["status"] == "True" for group in tables.get("PodGroup", {}).values()
               for condition in group.get("status", {}).get("conditions", ())):
            return  # nodes are held for a gang; how long, and against whom, is looked at apart
        hoping = any(leaving(p) for pods in cluster.placed.values() for p in pods)
        if hoping and (gangs or self.makes_room):
            return  # a gang that stands on what is being released keeps its part from the others
        if not pending:
            return
        books = self.books(cluster)
        self._close_claimed(books, tables)
        largest = max((card.total for cards in books.values() for card in cards.values()), default=0)
        queues = Queues(tables, tables["Pod"].values(), lambda pod: self._charged(pod, largest), self.ours,
                        hoping=hoping)  # fmt: skip
        for pod in pending:
            if self.unclear and self.sharing.wants(pod):
                continue
            group = tables.get("PodGroup", {}).get(group_key(pod))
            if (group_key(pod) and group is None) or not self._queue_lets(pod, group, queues, cluster, largest):
                continue
            missing = 1 if group is None else self._missing(group, grouped[key_of(group)])
            if missing is None:
                continue
            closed = self._of_cards_that_went(cluster, books) if self.sharing.wants(pod) else set()
            nodes = {name: self._room(pod, name, cluster, books, missing) for name in cluster.nodes if name not in closed}
            if sum(nodes.values()) >= missing:
                where = sorted(name for name, number in nodes.items() if number)
                self.complain("asleep", f"{key_of(pod)} waits at rest and may run on {', '.join(where)}")

    def _close_claimed(self, books: Mapping[str, Mapping[str, Card]], tables: Tables) -> None:
        """Cards that claims hold take no shares; what a claim holds that is published no more may be any card of its node."""
        claims, slices = tables.get("ResourceClaim", {}).values(), list(tables.get("ResourceSlice", {}).values())
        claimed = claim_rules.cards_of_claims(claims, slices)
        published = {(one["spec"]["pool"]["name"], device["name"]) for one in slices
                     for device in one["spec"].get("devices") or ()}  # fmt: skip
        lost = {one["pool"] for claim in claims for one in claim_rules.results(claim)
                if (one["pool"], one["device"]) not in published}  # fmt: skip
        for node, cards in books.items():
            for card in cards.values():
                card.healthy &= node not in lost and card.uuid not in claimed

    def _of_cards_that_went(self, cluster: Cluster, books: Mapping[str, Mapping[str, Card]]) -> set[str]:
        """Nodes where a pod names cards that are there no more: it may hold any of those that are."""
        return {node for node, pods in cluster.placed.items() for pod in pods
                if any(held[0] not in books.get(node, ()) for held in card_rules.container_devices(self.held(pod)))}  # fmt: skip

    def _waits(self, pod: Json, now: float) -> bool:
        spec = pod["spec"]
        return (not spec.get("nodeName") and spec.get("schedulerName") == self.ours and not spec.get("schedulingGates")
                and not leaving(pod) and not done(pod) and self.slow.get(pod["metadata"]["uid"], 0.0) <= now
                and not self._unserved(pod))  # fmt: skip

    def _missing(self, group: Json, members: list[Json]) -> int | None:
        """How many pods like this one the gang still needs at once; None where that cannot be told. One: it stands."""
        least = group["spec"].get("minMember", 0)
        standing = [p for p in members if p["spec"].get("nodeName") and not leaving(p)]
        if any(done(p) or leaving(p) for p in members):
            return None
        if len(standing) >= least or least <= 1:
            return 1
        waiting = [p for p in members if self._waits(p, float("inf")) and not p["spec"].get("nodeName")]
        if len(standing) + len(waiting) < least or len({_shape(p) for p in waiting}) > 1:
            return None
        first = waiting[0]
        lonely = not (first["spec"].get("affinity") or first["spec"].get("topologySpreadConstraints"))
        small = sum(want.number for want in self.sharing.wants(first)) <= 1
        return least - len(standing) if lonely and small else None

    def _room(self, pod: Json, node: str, cluster: Cluster, books: Mapping[str, Mapping[str, Card]], most: int) -> int:
        """How many pods like this one the node takes, up to ``most``."""
        if most == 1:
            return int(not cluster.forbids(pod, node) and self._may_hold(pod, books[node]))
        mine = Cluster(cluster.tables)
        cards = {uuid: Card(c.uuid, c.limit, c.total, c.healthy, c.mig, c.shares, c.memory, c.cores)
                 for uuid, c in books[node].items()}  # fmt: skip
        for number in range(most):
            if mine.forbids(pod, node) or not self._may_hold(pod, cards):
                return number
            for want in self.sharing.wants(pod):
                card = next(c for c in cards.values() if c.takes(want.of(c), want.cores))
                card.shares, card.memory, card.cores = card.shares + 1, card.memory + want.of(card), card.cores + want.cores
            mine.bind(pod, node)
        return most

    def _may_hold(self, pod: Json, cards: Mapping[str, Card]) -> bool:
        """Return whether that is certain; of MIG slots it never is."""
        if pod["metadata"].get("annotations", {}).get("volcano.sh/vgpu-mode") == "mig":
            return not self.sharing.wants(pod)
        return may_hold(self.sharing.wants(pod), cards) is True

    # -- queues -------------------------------------------------------------------------------------------------

    def _queue_lets(self, pod: Json, group: Json | None, queues: Queues, cluster: Cluster, largest: int) -> bool:
        """Return whether no queue can be what it waits for: its queue is open and below its caps, and the shares bind nobody."""
        name = queues.of(pod)
        if queues.queues.get(name, {"status": {"state": "none"}}).get("status", {}).get("state", "Open") != "Open":
            return False
        if group is not None and group["spec"].get("minResources"):
            return False
        need = max(1, group["spec"].get("minMember", 1) if group is not None else 1)
        mine = {what: need * value for what, value in self._charged(pod, largest).items()}
        if queues.capped(name, mine, already=queues.hoping):
            return False
        if not self.shares:
            return True
        if self.shares == "capacity tree" and any(name in queues.above(other) for other in queues.queues):
            return False  # pods run in the lowest queues only
        if queues.kept_above(name, mine):
            return False
        total = self._shared(cluster)
        if len(queues.busy) == 1:
            return all(queues.allocated[name][what] + value * (not queues.hoping) + queues.guaranteed(what, but=name)
                       <= total[what] for what, value in mine.items())  # fmt: skip
        if any(want.percent for other in cluster.tables["Pod"].values() for want in self.sharing.wants(other)):
            return False  # what whole cards will come to is not written anywhere
        return all(value + queues.guaranteed(what) <= total[what]
                   for what, value in queues.requested.items() if ordinary(what) or total[what])  # fmt: skip

    def _shared(self, cluster: Cluster) -> Mapping[str, Any]:
        """Return what the shares divide: all that there is, and under proportion without what pods of other schedulers hold."""
        total = dict(cluster.total())
        held = (pod for node, pods in cluster.placed.items() if node in cluster.nodes for pod in pods)
        for pod in held if self.shares == "proportion" else ():
            if pod["spec"].get("schedulerName") != self.ours:
                for what, amount in requests(pod).items():
                    total[what] = total.get(what, 0) - amount
        return defaultdict(int, total)

    def _charged(
        self, pod: Json, largest: int, *, slot: int = SLOT, there: Container[str] | None = None
    ) -> Mapping[str, Any]:
        """Return the charge of the pod to its queue; for a whole card what it turned out to be, at most the ``largest`` that
        is there, and for a MIG slot at most ``slot``. On a node that is not ``there`` nobody need know what it was."""
        amounts = requests(pod)
        wants = self.sharing.wants(pod) if card_rules.MEMORY in self.sharing.resources else []
        node = pod["spec"].get("nodeName")
        held = list(card_rules.container_devices(self.held(pod))) if node and (there is None or node in there) else []
        if not wants:
            return amounts
        amounts[card_rules.CORES] = sum(want.number * want.cores for want in wants)
        if any(name for _, name, _, _ in held):
            amounts[card_rules.MEMORY] = slot * len(held)
        elif held:
            amounts[card_rules.MEMORY] = sum(memory for _, _, memory, _ in held)
        else:
            amounts[card_rules.MEMORY] = sum(want.number * (largest if want.percent else want.memory) for want in wants)
        return amounts


def _claims_of(pod: Json) -> list[str]:
    """Return the names of a pod's claims, as far as they were made."""
    made = {one["name"]: one.get("resourceClaimName") for one in pod.get("status", {}).get("resourceClaimStatuses") or ()}
    found = (one.get("resourceClaimName") or made.get(one["name"]) for one in pod["spec"].get("resourceClaims") or ())
    return [name for name in found if name]


def _shape(pod: Json) -> str:
    """Pods of one shape are placed alike."""
    spec = {k: v for k, v in pod["spec"].items() if k not in ("nodeName", "priority")}
    mode = pod["metadata"].get("annotations", {}).get("volcano.sh/vgpu-mode")
    return json.dumps([spec, pod["metadata"].get("labels"), mode], sort_keys=True)


__all__ = ["Checker", "Complaint", "kube_rules"]
