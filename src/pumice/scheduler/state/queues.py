"""One queue as the engine keeps it, but for the jobs in it (``jobs.QueueState``), and what queues are charged for cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pumice.devices.card_policies import misnamed_in, policies_in
from pumice.model.cards import Allocation
from pumice.scheduler.state.claim_charges import Part
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.ledger import Ledger
from pumice.scheduler.state.resources import CLASS_COUNT, NOTHING, Vector, add, of_claims, shared, subtract, vector
from pumice.wire.times import seconds
from pumice.wire.volcano import (
    FIFO,
    NO_GROUPS,
    OPEN,
    Hierarchy,
    NodeGroups,
    Queue,
    hierarchy_of,
    hierarchy_problem,
    node_groups_of,
)
from pumice.wire.without_effect import Row, asked_by_queue

NEWS_KEPT = 20_000
MOST_WEIGHT = 65_535
"""As the definition of the kind allows (volcano.sh/apis batch/v1alpha1)."""


@dataclass(slots=True, eq=False)
class QueueRecord:
    """The fields of its object; ``allocated``, ``pending`` and ``inqueue`` are sums over its jobs, kept incrementally."""

    name: str
    version: int = 0
    """Raised by whatever changes what it holds, asks for or may have."""
    present: bool = False
    weight: int = 1
    priority: int = 0
    parent: str = ""
    created: float = 0.0
    uid: str = ""
    object_version: int = 0
    """The resource version of its object as last seen."""
    state: str = ""
    reclaimable: bool = True
    capability: Vector = field(default_factory=dict)
    guarantee: Vector = field(default_factory=dict)
    node_groups: NodeGroups = NO_GROUPS
    deserved: Vector = field(default_factory=dict)
    one_by_one: bool = False
    """Jobs behind one that cannot start are not tried (``dequeueStrategy: fifo``)."""
    hierarchy: Hierarchy | None = None
    """Its place in the tree of hierarchical drf."""
    misplaced: str = ""
    """Why its annotations name no such place, although they speak of one."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """The card policies that its annotations name, as a pod's would: they count for pods that name none."""
    misnamed: str = ""
    """Why an annotation of it names none."""
    written: Vector | None = None
    """The status.allocated on the API server; None before it was seen."""
    problem: str = ""
    uncreated: str = ""
    """Why the scheduler, whose own queue it is, could not make it."""
    unserved: tuple[Row, ...] = ()
    """Fields of its object that have no effect yet."""
    allocated: Vector = field(default_factory=dict)
    awaited: Vector = field(default_factory=dict)
    """Amounts nominated for its pods that are still being released."""
    let_in: Vector = field(default_factory=dict)
    """Amounts kept for pending pods that it let through their gates."""
    pending: Vector = field(default_factory=dict)
    aside: Vector = field(default_factory=dict)
    """The part of ``pending`` that cannot start, whatever is released: gated pods, pods that no node can hold, and gangs that
    lack members."""
    last_borrowed: int = 0
    """The last time that it borrowed something beyond its share, as a count of all that was borrowed."""
    best_effort: int = 0
    """Its pending pods that request nothing."""
    inqueue: Vector = field(default_factory=dict)
    elastic: Vector = field(default_factory=dict)
    claims_held: dict[Part, int] = field(default_factory=dict)
    """Claims that several of its pods may use, and how many do: each counts once in ``allocated``."""
    quota_known_late: dict[PodClass, int] = field(default_factory=dict)
    """Those of them of which ``pending`` does not say everything."""
    news: list[tuple[PodClass, int]] = field(default_factory=list)
    """Additions to ``quota_known_late`` since ``expected`` was summed."""
    expected: tuple[int, Vector] | None = None
    """The most that ``quota_known_late`` comes to over ``pending``, and by which kinds of cards (``Charges.expected``)."""
    meaning: object = None
    """Spec and state as last read: what else changes in the object is our own writing."""

    @property
    def open(self) -> bool:
        """An empty state counts as Open (Volcano pkg/scheduler/plugins/proportion); a queue that is not Open starts nothing
        (Volcano pkg/controllers/queue)."""
        return self.state in ("", OPEN)

    @property
    def closed_text(self) -> str:
        return f"queue {self.name} is {self.state}"

    @property
    def missing_text(self) -> str:
        return f"queue {self.name} does not exist" + (f" and cannot be created: {self.uncreated}" if self.uncreated else "")

    def device_request(self, cls: PodClass, sign: int, aside: bool) -> None:
        """A pending pod more or less (``sign``) that may start, or stands aside."""
        self.version += 1
        if aside:
            (add if sign > 0 else subtract)(self.aside, cls.demand)
        elif cls.quota_known_late:
            self.expect(cls, sign)

    def expect(self, cls: PodClass, number: int) -> None:
        """So many pending pods of a class whose quota is known late that may start more or less."""
        left = self.quota_known_late.get(cls, 0) + number
        if left:
            self.quota_known_late[cls] = left
        else:
            self.quota_known_late.pop(cls, None)
        if self.expected is None:
            return
        if len(self.news) < NEWS_KEPT:
            self.news.append((cls, number))
        else:  # nobody asks
            self.recount()

    def recount(self) -> None:
        """Forget ``expected``, which holds no longer."""
        self.expected = None
        self.news.clear()

    def forget(self) -> None:
        """Its object is gone: nothing that it said holds any more, for the jobs that are left in it least of all."""
        self.version += 1
        self.present, self.meaning, self.written, self.object_version = False, None, None, 0
        self.parent, self.state, self.problem = "", "", ""
        self.capability, self.guarantee, self.deserved = {}, {}, {}
        self.one_by_one, self.hierarchy, self.misplaced = False, None, ""
        self.unserved, self.node_groups = (), NO_GROUPS
        self.policies, self.misnamed = {}, ""

    def read(self, queue: Queue) -> None:
        self.present, self.uncreated = True, ""
        self.version += 1
        spec = queue.spec
        self.weight = min(max(1, spec.weight), MOST_WEIGHT)
        self.priority = spec.priority
        self.parent = spec.parent
        self.created = seconds(queue.metadata.creation_timestamp)
        self.uid = queue.metadata.uid
        self.state = queue.status.state
        self.reclaimable = spec.reclaimable is not False
        unbounded = ("cpu", "memory"), (CLASS_COUNT,)
        self.capability = {n: v for n, v in vector(spec.capability).items()
                           if v > 0 or not (n in unbounded[0] or n.startswith(unbounded[1]))}  # fmt: skip
        self.guarantee, self.deserved = vector(spec.guarantee.resource), vector(spec.deserved)
        self.one_by_one = spec.dequeue_strategy == FIFO
        self.hierarchy, self.misplaced = hierarchy_of(queue), hierarchy_problem(queue.metadata.annotations)
        self.unserved = asked_by_queue(queue)
        self.node_groups = node_groups_of(queue)
        self.policies = policies_in(queue.metadata.annotations)
        self.misnamed = "; ".join(text for _, text in misnamed_in(queue.metadata.annotations))
        self.written = {n: v for n, v in vector(queue.status.allocated).items() if v}


# -- charges for cards, where only the cards can tell (``PodClass.quota_known_late``) ----------------------------------


CLASSES_KEPT = 10_000


def with_claims(cls: PodClass, charged: Vector | None, claims: Vector) -> Vector | None:
    """Return a charge with so much by claims in place of what it has of them; None where that is what the class says."""
    cards = {name: value for name, value in (charged or {}).items() if not of_claims(name)}
    found = {**cls.amounts, **cards, **claims}
    return None if found == cls.amounts else shared(found)


@dataclass(slots=True)
class Charges:
    """Amounts by class, device type and the cards that there are."""

    ledger: Ledger
    _over: dict[PodClass, tuple[int, Vector]] = field(default_factory=dict)
    _last: tuple[PodClass, Sequence[Allocation], Vector | None] | None = None
    """The last answer: what a queue was asked to pay, it is charged next."""

    def of(self, cls: PodClass, allocations: Sequence[Allocation], claims: Vector = NOTHING) -> Vector | None:
        """Return what a queue is charged for a pod with these cards, and with so much by claims of its own; None where that is
        what the class says, or it holds none."""
        cards = self._of_cards(cls, allocations)
        return cards if not claims else with_claims(cls, cards, claims)

    def _of_cards(self, cls: PodClass, allocations: Sequence[Allocation]) -> Vector | None:
        if not cls.quota_known_late:
            return None
        if self._last is None or self._last[0] is not cls or self._last[1] is not allocations:
            self._last = cls, allocations, self._of(cls, allocations)
        return self._last[2]

    def _of(self, cls: PodClass, allocations: Sequence[Allocation]) -> Vector | None:
        device_requests = {device_request.device_type: device_request for device_request in cls.quota_known_late}
        amounts: Vector = {}
        for allocation in allocations:
            device_table, device_request = (
                self.ledger.device_tables.get(allocation.device_type),
                device_requests.get(allocation.device_type),
            )
            late = device_table.device_type.late_quota if device_table is not None else None
            if device_table is None or late is None or device_request is None:
                continue
            if allocation.container_devices:
                found = late.of_allocation(allocation)
            elif (
                allocation.doubts and allocation.node in device_table.nodes
            ):  # which cards nobody can tell: the dearest of the node
                found = late.bound(device_request, late.card_kinds(device_table.nodes[allocation.node].inventory))
            else:
                continue
            for name, value in found.items():
                amounts[name] = value * 1000
        usual = cls.amounts
        if amounts.items() <= usual.items() or all(usual.get(name, 0) == value for name, value in amounts.items()):
            return None
        return shared({**usual, **amounts})

    def expected(self, queue: QueueRecord) -> Vector:
        """The most that the queue's pending pods of such classes may come to, over its ``pending``."""
        version = self.ledger.card_kinds_version
        if queue.expected is None or queue.expected[0] != version:
            queue.expected, queue.news = (version, {}), list(queue.quota_known_late.items())
        total = queue.expected[1]
        for cls, number in queue.news:
            for name, value in self._over_demand(cls, version).items():
                total[name] = total.get(name, 0) + value * number
        queue.news.clear()
        return total

    def _over_demand(self, cls: PodClass, version: int) -> Vector:
        """The most that one pod of such a class may come to, over its ``demand``."""
        known = self._over.get(cls)
        if known is None or known[0] != version:
            more: Vector = {}
            for device_request in cls.quota_known_late:
                device_table = self.ledger.device_tables.get(device_request.device_type)
                late = device_table.device_type.late_quota if device_table is not None else None
                if device_table is not None and late is not None:
                    most = late.bound(device_request, device_table.card_kinds)
                    over = {name: value * 1000 - cls.amounts.get(name, 0) for name, value in most.items()}
                    more |= {name: value for name, value in over.items() if value > 0}
            if len(self._over) > CLASSES_KEPT:
                self._over.clear()
            known = self._over[cls] = version, more
        return known[1]

    def forget(self) -> None:
        """Other device types count otherwise. Queues forget too (``QueueState.recount``)."""
        self._over.clear()
        self._last = None
