r"""The one ledger: which pod holds what on which node, from the decision until the pod is gone.

    reserve --> assume (Binding sent) --> confirm (seen on the watch) --> terminate --> release
       \______________ undo(receipt) gives back exactly what was taken

Releasing pods stay charged until they are gone (D-28). Undo takes the receipt, never the pod (D-31). A node that vanishes
keeps its holdings here, so that they are charged again when it returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from pumice.claims.attributes import cards_of
from pumice.devices.protocol import NO_MARKS, DeviceSharing, Marks, NodeCards
from pumice.model.cards import Allocation
from pumice.model.refusal import Refusal
from pumice.scheduler.state.cards import DeviceTable
from pumice.scheduler.state.claimed_cards import Card
from pumice.scheduler.state.device_claims import DeviceClaims
from pumice.scheduler.state.known_claims import Reserved
from pumice.scheduler.state.nodes import NodeTable
from pumice.scheduler.state.resources import Request, repack
from pumice.scheduler.state.terms import Features, TermIndex
from pumice.wire.objects import Node, PodSpec, PodStatus
from pumice.wire.our_devices import is_our_resource, names_our_devices

# -- what one pod holds on a node, how firmly, and the receipt of an operation on it -----------------------------------


class PlacementState(IntEnum):
    """The firmness with which a pod holds its place."""

    RESERVED = 1
    ASSUMED = 2
    CONFIRMED = 3
    EVICTING = 4
    """We asked for its eviction, and the API server may refuse: those who decide on what it shows count it as one that stays."""
    TERMINATING = 5
    STUCK = 6
    """Terminating for so long that nobody waits for its place any more."""


LEAVING = (PlacementState.EVICTING, PlacementState.TERMINATING)
"""Their places are waited for."""
GOING = (*LEAVING, PlacementState.STUCK)


Told = tuple[PodSpec, Features, str, tuple[str, ...], tuple[str, ...], PodStatus]
"""A pod's word on the cards that it holds: its containers and labels, its name, the names and values of its annotations, and
whether the kubelet has admitted it, and runs it. A new inventory or device type is replayed from it."""


class Placement(Struct):
    """The holding of one pod. ``features`` are the parts that other pods' predicates look at (ports, labels, terms)."""

    uid: str
    node: str
    request: Request
    allocations: tuple[Allocation, ...] = ()
    state: PlacementState = PlacementState.CONFIRMED
    marks: Marks = NO_MARKS
    features: Features | None = None
    claims: tuple[Reserved, ...] = ()
    """Decisions about its claims of devices, until the API server shows the pod on its node."""
    told: Told | None = None
    """None of one that tells of no cards, or was not seen on its node yet."""


class Receipt(Struct, frozen=True):
    """Proof of one operation. ``before`` is the holding as it was (None: there was none)."""

    serial: int
    uid: str
    operation: str
    before: Placement | None


# -- the ledger --------------------------------------------------------------------------------------------------------


Move = tuple[int, Features, int, int]
"""A row, pods of that kind there, how many more and how many more of them that are going."""
Amounts = tuple[tuple[int, int], ...]
"""Columns of the table of nodes, and how much of each."""


@dataclass(slots=True)
class Ledger:
    """Holdings, and the tables that they are booked in."""

    table: NodeTable = field(default_factory=NodeTable)
    device_tables: dict[str, DeviceTable] = field(default_factory=dict)
    placements: dict[str, Placement] = field(default_factory=dict)
    by_node: dict[str, dict[str, Placement]] = field(default_factory=dict)
    pipelined: dict[str, Placement] = field(default_factory=dict)
    """Nominations for resources that are being released; those that are not kept end with the cycle."""
    nominated: dict[str, dict[str, Placement]] = field(default_factory=dict)
    terms: TermIndex = field(default_factory=TermIndex)
    device_claims: DeviceClaims = field(init=False)
    gone_by: dict[str, float] = field(default_factory=dict)
    """By uid of a pod that the watch shows as terminating, when it should be gone at the latest."""
    shares_news: dict[str, int] = field(default_factory=dict)
    """By node, raised when what pods hold of its cards changes."""
    _ahead: bool = False
    """True where ``terms`` are as they will be (``as_nominated``)."""
    _serial: int = 0
    _columns: dict[Request, tuple[Amounts, Amounts]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device_claims = DeviceClaims(self.table)
        self.device_claims.cards.changed = self._claimed

    # -- the life of a holding ----------------------------------------------------------------------------------

    def reserve(self, placement: Placement) -> Receipt:
        """Take a place for a pod that has none. Raises KeyError when it holds one already."""
        if placement.uid in self.placements:
            raise KeyError(f"{placement.uid} already holds a place on {self.placements[placement.uid].node}")
        placement.state = PlacementState.RESERVED
        self._put(placement)
        return self._receipt(placement.uid, "reserve", None)

    def set_apart(self, uid: str) -> None:
        """The pod keeps its room and nobody may count on it: what it holds on trial will be taken back before any of it
        reaches the world, and a Binding that leans on its labels (affinity, spread) would outlive it."""
        placement = self.placements[uid]
        row = self.table.row_of.get(placement.node)
        if row is not None and placement.features is not None:
            self.terms.remove(row, placement.features, trial=True)
        placement.features = None

    def assume(self, uid: str) -> None:
        """The Binding is on its way: from now on only the API server's word changes this."""
        placement = self.placements[uid]
        placement.state = PlacementState.ASSUMED
        if placement.features is not None and placement.node in self.table.row_of:
            self.terms.stay(placement.features)

    def confirm(self, placement: Placement) -> None:
        """The pod was seen on its node. What was seen replaces what was assumed; seeing it again changes nothing."""
        self.unpipeline(placement.uid)  # somebody else bound a pod that waited here for its place
        old = self.placements.get(placement.uid)
        placement.state = PlacementState.CONFIRMED
        if old is not None:
            if old.state in GOING:
                placement.state = old.state
            new = (placement.node, placement.allocations, placement.request, placement.features)
            if (old.node, old.allocations, old.request, old.features) == new:
                old.state, old.told = placement.state, placement.told
                if old.marks != placement.marks:
                    self._remark(old, placement.marks)
                return
            self._take(old)
        self._put(placement)

    def terminate(self, uid: str, *, shown: bool = False) -> Receipt | None:
        """The pod is going. It stays charged; its resources count as free for the future only. ``shown``: by the API server, so
        that pods which are spread out count it no more (as Kubernetes' PodTopologySpread does)."""
        placement = self.placements.get(uid)
        if placement is None or placement.state in GOING:
            if shown and placement is not None and placement.state is PlacementState.EVICTING:
                placement.state = PlacementState.TERMINATING
                self._leave_spread(placement, 1)
            return None
        before = copy(placement)
        placement.state = PlacementState.TERMINATING if shown else PlacementState.EVICTING
        self._set_going(placement, 1)
        return self._receipt(uid, "terminate", before)

    def expect_gone(self, uid: str, until: float) -> None:
        """The watch shows that the pod is going; it should be gone by then."""
        if uid not in self.gone_by and self.is_terminating(uid):
            self.gone_by[uid] = until

    @property
    def first_overdue(self) -> float:
        """Return when the first terminating pod should be gone."""
        return min(self.gone_by.values(), default=float("inf"))

    def take_overdue(self, now: float) -> list[str]:
        """Terminating pods that have had their time; each is named once."""
        found = [uid for uid, until in self.gone_by.items() if until <= now]
        for uid in found:
            del self.gone_by[uid]
        return found

    def is_terminating(self, uid: str) -> bool:
        placement = self.placements.get(uid)
        return placement is not None and placement.state in GOING

    def going(self, node: str) -> set[str]:
        """Pods that are leaving the node, and whose places are waited for."""
        return {uid for uid, allocated in self.by_node.get(node, {}).items() if allocated.state in LEAVING}

    def give_up(self, uid: str) -> bool:
        """Give nobody any more what a terminating pod holds. True: it was counted on until now."""
        placement = self.placements.get(uid)
        if placement is None or placement.state not in LEAVING:
            return False
        self._set_going(placement, -1)
        placement.state = PlacementState.STUCK
        return True

    def release(self, uid: str) -> bool:
        """The pod is gone, or its Binding was refused. True when it held something."""
        self.unpipeline(uid)
        self.gone_by.pop(uid, None)
        placement = self.placements.get(uid)
        if placement is None:
            return False
        self._take(placement)
        return True

    def lift(self, uid: str) -> Receipt | None:
        """Take a pod off the ledger for as long as a question is asked. None when it holds nothing."""
        placement = self.placements.get(uid)
        if placement is None:
            return None
        self._take(placement)
        self.device_claims.lift(uid)
        return self._receipt(uid, "lift", placement)

    def undo(self, receipt: Receipt) -> None:
        """Take one operation back: the holding is again what it was before, bit for bit."""
        placement = self.placements.get(receipt.uid)
        if receipt.operation == "pipeline":
            self.unpipeline(receipt.uid)
        elif receipt.operation == "lift" and receipt.before is not None:
            self.device_claims.lift(receipt.uid, back=True)
            self._put(receipt.before)
        elif receipt.operation == "reserve":
            if placement is not None:
                self._take(placement, gain=False)
        elif receipt.operation == "terminate" and placement is not None and receipt.before is not None:
            if placement.state in LEAVING:
                self._set_going(placement, -1)
            placement.state = receipt.before.state

    def _set_going(self, placement: Placement, sign: int) -> None:
        row = self.table.row_of.get(placement.node)
        if row is not None:
            if self._ahead and placement.features is not None:
                shown = placement.state is PlacementState.TERMINATING
                self.terms.pretend([(row, placement.features, -sign, -sign if shown else 0)])
            self.table.set_releasing(row, self._charged(placement.request), sign)
            if placement.state is PlacementState.TERMINATING:
                self._leave_spread(placement, sign)

    def _leave_spread(self, placement: Placement, sign: int) -> None:
        row = self.table.row_of.get(placement.node)
        if row is not None and placement.features is not None:
            self.terms.go(row, placement.features, sign)

    # -- nominations -----------------------------------------------------------------------------------------------

    def pipeline(self, placement: Placement) -> Receipt:
        """Nominate a pod for resources that are being released. Cards count too, no lock and no Binding follow (D-33)."""
        self.pipelined[placement.uid] = placement
        self.nominated.setdefault(placement.node, {})[placement.uid] = placement
        row = self.table.row_of.get(placement.node)
        if row is not None:
            self._nominated_there(placement, row, 1)
            self.table.set_pipelined(row, self._charged(placement.request), 1)
        return self._receipt(placement.uid, "pipeline", None)

    def unpipeline(self, uid: str, *, gain: bool = True) -> None:
        """Take back the place that a pod is nominated for. ``gain``: what is free by that is offered to others."""
        placement = self.pipelined.pop(uid, None)
        if placement is None:
            return
        self.nominated[placement.node].pop(uid, None)
        if not self.nominated[placement.node]:
            del self.nominated[placement.node]
        row = self.table.row_of.get(placement.node)
        if row is not None:
            self._nominated_there(placement, row, -1)
        if uid in self.placements:
            self._take(self.placements[uid], gain=gain)
        elif row is not None:
            self.table.set_pipelined(row, self._charged(placement.request), -1)

    def _nominated_there(self, placement: Placement, row: int, sign: int) -> None:
        if self._ahead and placement.features is not None:
            self.terms.pretend([(row, placement.features, sign, 0)])

    def keep_nomination(self, uid: str) -> None:
        """The nomination outlives the cycle: until it is taken back its room is held in the present too, on top of what is still
        there, so that nobody slips in while one pod after the other leaves. Cards that are cut for it take nobody else: what
        leaves them is cut otherwise."""
        nomination = self.pipelined[uid]
        row = self.table.row_of.get(nomination.node)
        if row is not None:
            self.table.set_pipelined(row, self._charged(nomination.request), -1)
        self._put(
            Placement(
                uid,
                nomination.node,
                nomination.request,
                tuple(map(closed_to_others, nomination.allocations)),
                PlacementState.RESERVED,
                nomination.marks,
                claims=nomination.claims,
            )
        )

    def put_by(self, uid: str) -> None:
        """A place on trial becomes a nomination that is kept, for which nobody has to leave."""
        placement = self.placements[uid]
        nomination = self.pipelined[uid] = copy(placement)
        self.nominated.setdefault(placement.node, {})[uid] = nomination
        closed = tuple(map(closed_to_others, placement.allocations))
        if any(allocation.doubts for allocation in closed):
            self._cards(placement, -1)
            placement.allocations = closed
            self._cards(placement, 1)
        row = self.table.row_of.get(placement.node)
        if row is not None and placement.features is not None:
            self.terms.remove(row, placement.features, trial=True)
        placement.features = None

    def take_up(self, uid: str) -> Receipt:
        """A kept nomination becomes a place on trial: its room was held all the while."""
        nomination, placement = self.pipelined.pop(uid), self.placements[uid]
        there = self.nominated[nomination.node]
        del there[uid]
        if not there:
            del self.nominated[nomination.node]
        closed = any(allocation.doubts for allocation in placement.allocations)
        if closed:
            self._cards(placement, -1)
        placement.allocations, placement.features = nomination.allocations, nomination.features
        if closed:
            self._cards(placement, 1)
        row = self.table.row_of.get(placement.node)
        if row is not None and placement.features is not None:
            self.terms.add(row, placement.features, trial=True)
        return self._receipt(uid, "reserve", None)

    def kept_nominations(self, node: str) -> list[str]:
        """Pods that are nominated on that node beyond the cycle."""
        return [uid for uid in self.nominated.get(node, ()) if uid in self.placements]

    def leaving(self, node: str) -> list[str]:
        """Pods whose places in the present do not count in the future: they leave, or are nominated there."""
        return [*self.going(node), *self.kept_nominations(node)]

    def future_cards(self, device_type: str, node: str, gone: Iterable[str]) -> NodeCards:
        """Return the node's cards when these pods are gone, and those that are nominated there have come."""
        plus = {
            uid: allocation
            for uid, allocated in self.nominated.get(node, {}).items()
            for allocation in allocated.allocations
            if allocation.device_type == device_type
        }
        gone = [*gone]
        placed = [one for uid in gone if uid in self.placements for one in self.placements[uid].claims]
        for one in self.nominated_claims(node):
            if (closed := _cards_of(one)) and one.allocation is not None:
                doubts = tuple(Refusal(uuid, f"it is promised to claim {one.key}") for uuid in closed)
                plus[one.uid] = Allocation(device_type, node, (), self._of_node(device_type, node, doubts))
        gone += self.device_claims.freed_by(set(gone), placed)
        return self.device_tables[device_type].view(node, without=gone, plus=plus)

    # -- cards of claims ----------------------------------------------------------------------------------------

    def shared_cards(
        self, node: str, without: Collection[str] = (), plus: Iterable[Allocation] = (), *, promised: bool = False
    ) -> dict[str, str]:
        """Return by UUID the cards that pods there hold shares of, and that in words: claims can have none of them. Under the
        empty UUID what nobody knows the card of. ``without``: as if these pods were gone; ``promised``: and those that were
        promised a place there had it; ``plus``: and these shares were there."""
        there = {uid: placement for uid, placement in self.by_node.get(node, {}).items() if uid not in without}
        held = [one for placement in there.values() for one in placement.allocations]
        if promised:
            held += (one for placement in self.nominated.get(node, {}).values() for one in placement.allocations)
        served = self.device_claims.owned
        if any(one.told is not None and not one.allocations and _asks_for_cards(one.told, served) for one in there.values()):
            return {"": _UNKNOWN}
        found: dict[str, str] = {}
        for one in (*held, *plus):
            devices, doubts = (device.uuid for device in one.container_devices), (doubt.field for doubt in one.doubts)
            found |= {uuid: _SHARED if uuid else _UNKNOWN for uuid in (*devices, *doubts, *one.unregistered)}
        return found

    def _claimed(self, claim: str, before: frozenset[Card], now: frozenset[Card], gain: bool) -> None:
        """Cards that claims hold take no annotated pods."""
        for device_table in self.device_tables.values():
            known = ((only, name) for only, uuid in before | now for name in device_table.nodes_with.get(uuid, ()))
            for node in {name for only, name in known if only in ("", name)}:
                if self._close(device_table, node, claim) and (row := self.table.row_of.get(node)) is not None:
                    self.table.touch(row, gain=gain)

    def _close(self, device_table: DeviceTable, node: str, claim: str) -> bool:
        cards, key = self.device_claims.cards, self.device_claims.key_of(claim)
        own = device_table.nodes[node].by_uuid
        held = tuple(Refusal(uuid, f"claim {key} holds it") for uuid in own if claim in cards.on(node, uuid))
        return device_table.quarantine(node, claim, held)

    def _of_node(self, device_type: str, node: str, doubts: Iterable[Refusal]) -> tuple[Refusal, ...]:
        own = self.device_tables[device_type].nodes[node].by_uuid
        return tuple(one for one in doubts if one.field in own)

    @contextmanager
    def as_nominated(self) -> Iterator[None]:
        """For the length of a look, or of many: pods that are going are gone, and those that were promised their places are
        there, as far as other pods mind their labels, terms and ports. Whoever begins to go meanwhile is gone at once, too."""
        if self._ahead:
            yield
            return
        self.terms.pretend(self._moves())
        self._ahead = True
        try:
            yield
        finally:
            self._ahead = False
            self._as_they_are()

    @contextmanager
    def at_present(self) -> Iterator[None]:
        """For the length of a look amid those, everything as it is."""
        if not self._ahead:
            yield
            return
        self._ahead = False
        self._as_they_are()
        try:
            yield
        finally:
            self.terms.pretend(self._moves())
            self._ahead = True

    def _as_they_are(self) -> None:
        self.terms.pretend([(row, features, -number, -going) for row, features, number, going in self._moves()])

    def _moves(self) -> list[Move]:
        moves = [
            (row, allocated.features, -1, -1 if allocated.state is PlacementState.TERMINATING else 0)
            for row in self.table.releasing_rows
            for allocated in self.by_node.get(self.table.name(row), {}).values()
            if allocated.state in LEAVING and allocated.features is not None
        ]
        moves += [
            (self.table.row_of[allocated.node], allocated.features, 1, 0)
            for allocated in self.pipelined.values()
            if allocated.node in self.table.row_of and allocated.features is not None
        ]
        return moves

    def nominated_claims(self, node: str) -> list[Reserved]:
        """Return what is nominated there of devices for claims."""
        return [one for allocated in self.nominated.get(node, {}).values() for one in allocated.claims]

    # -- nodes --------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> int:
        """Add or update a node and charge again whatever is held there. Returns its row."""
        name = node.metadata.name
        fresh = name not in self.table.row_of
        row = self.table.put(node)
        self.terms.put_node(row, name, node.metadata.labels, self.table.capacity)
        for device_table in self.device_tables.values():
            self._put_inventory(device_table, name, row, node)
        if fresh:
            for placement in self.by_node.get(name, {}).values():
                self._charge_row(placement, row)
        return row

    def remove_node(self, name: str) -> None:
        row = self.table.row_of.get(name)
        if row is None:
            return
        for placement in self.by_node.get(name, {}).values():
            if placement.features is not None:
                if placement.state is PlacementState.TERMINATING:
                    self.terms.go(row, placement.features, -1)
                self.terms.remove(row, placement.features)
        self.terms.remove_node(row)
        for device_table in self.device_tables.values():
            device_table.remove(name)
        self.table.remove(name)

    def set_device_types(self, device_types: Iterable[DeviceSharing]) -> None:
        """Exchange the device types. Grants must be given again by the caller (``regrant``)."""
        self.device_tables = {device_type.name: DeviceTable(device_type) for device_type in device_types}
        for name, row in self.table.row_of.items():
            facts = self.table.facts[row]
            if facts is not None:
                for device_table in self.device_tables.values():
                    device_table.put(name, row, device_table.device_type.inventory(facts.node), self.table.capacity)
                    self._close_all(device_table, name)
                self.table.touch(row, gain=True)

    def regrant(self, uid: str, allocations: tuple[Allocation, ...], marks: Marks) -> None:
        """Replace a holding's device part (its node's cards or the device types have changed)."""
        placement = self.placements.get(uid)
        if placement is None:
            return
        self._cards(placement, -1)
        placement.allocations, placement.marks = allocations, marks
        self._cards(placement, 1)
        row = self.table.row_of.get(placement.node)
        if row is not None:
            self.table.touch(row, gain=True)

    def _remark(self, placement: Placement, marks: Marks) -> None:
        """A bare pod is given its PodGroup only after it was bound: what it holds is the same, and rarely somebody cares."""
        placement.marks = marks
        books = [
            (allocation, self.device_tables[allocation.device_type])
            for allocation in placement.allocations
            if allocation.device_type in self.device_tables
        ]
        minded = [device_table.remark(placement.uid, allocation, marks) for allocation, device_table in books]
        row = self.table.row_of.get(placement.node)
        if row is not None and any(minded):
            self.table.touch(row, gain=True)

    def _put_inventory(self, device_table: DeviceTable, name: str, row: int, node: Node) -> None:
        if not device_table.put(name, row, device_table.device_type.inventory(node), self.table.capacity):
            return
        for placement in self.by_node.get(name, {}).values():
            for allocation in placement.allocations:
                if allocation.device_type == device_table.device_type.name:
                    device_table.charge(placement.uid, allocation, placement.marks)
        self._close_all(device_table, name)

    def _close_all(self, device_table: DeviceTable, node: str) -> None:
        """The cards of a node are new: those that claims hold are closed."""
        if node in device_table.nodes:
            claimed = self.device_claims.cards.on
            for claim in {claim for uuid in device_table.nodes[node].by_uuid for claim in claimed(node, uuid)}:
                self._close(device_table, node, claim)

    # -- booking ------------------------------------------------------------------------------------------------

    def columns(self, request: Request) -> Amounts:
        """Return what the request asks for, by column of the table."""
        return self._both(request)[0]

    def _charged(self, request: Request) -> Amounts:
        """Return what it is charged: the spread defaults count too."""
        return self._both(request)[1]

    def _both(self, request: Request) -> tuple[Amounts, Amounts]:
        found = self._columns.get(request)
        if found is None:
            if len(self._columns) > 100_000:
                self._columns.clear()
            requested, charged = (tuple((self.table.dim(n), v) for n, v in items) for items in (request.items, request.charge))
            found = self._columns[request] = requested, charged
        return found

    def _put(self, placement: Placement) -> None:
        self.placements[placement.uid] = placement
        self.by_node.setdefault(placement.node, {})[placement.uid] = placement
        row = self.table.row_of.get(placement.node)
        if row is not None:
            self._charge_row(placement, row)
        self._cards(placement, 1)
        if placement.claims:
            self.device_claims.take(placement.uid, placement.claims)

    def _take(self, placement: Placement, *, gain: bool = True) -> None:
        del self.placements[placement.uid]
        there = self.by_node[placement.node]
        del there[placement.uid]
        if not there:
            del self.by_node[placement.node]
        self._cards(placement, -1)
        if placement.claims:
            self.device_claims.give_back(placement.uid, placement.claims, gain=gain)
        row = self.table.row_of.get(placement.node)
        if row is not None:
            if placement.state in LEAVING:
                self._set_going(placement, -1)
            if placement.features is not None:
                self.terms.remove(row, placement.features, trial=placement.state is PlacementState.RESERVED)
            self.table.charge(row, self._charged(placement.request), -1, gain=gain)

    def _charge_row(self, placement: Placement, row: int) -> None:
        self.table.charge(row, self._charged(placement.request), 1, gain=False)
        if placement.features is not None:
            self.terms.add(row, placement.features, trial=placement.state is PlacementState.RESERVED)
        if placement.state in LEAVING:
            self._set_going(placement, 1)

    def _cards(self, placement: Placement, sign: int) -> None:
        if placement.allocations or placement.told is not None:
            self.shares_news[placement.node] = self.shares_news.get(placement.node, 0) + 1
        for allocation in placement.allocations:
            device_table = self.device_tables.get(allocation.device_type)
            if device_table is not None:
                if sign > 0:
                    device_table.charge(placement.uid, allocation, placement.marks)
                else:
                    device_table.discharge(placement.uid, allocation)

    def _receipt(self, uid: str, operation: str, before: Placement | None) -> Receipt:
        self._serial += 1
        return Receipt(self._serial, uid, operation, before)

    def tidy(self) -> None:
        """Give back the room of holdings that are gone."""
        repack(self.placements)

    @property
    def card_kinds_version(self) -> int:
        """Raised when cards of another kind came or went."""
        return sum(device_table.card_kinds_version for device_table in self.device_tables.values())


_SHARED, _UNKNOWN = "annotated pods have shares of its card", "annotated pods hold cards of the node, and nobody knows which"


def _asks_for_cards(told: Told, served: frozenset[str]) -> bool:
    """Return whether a pod asks for cards by one of these resources, or by one that a device type of ours has which is switched
    off, or names cards. What it asks of others (``rdma/hca``) are no cards."""
    spec, _, _, keys, *_ = told
    asked = (name for one in (*spec.containers, *spec.init_containers) for name in one.resources.limits)
    return any(name in served or is_our_resource(name) for name in asked) or any(map(names_our_devices, keys))


def _cards_of(reserved: Reserved) -> list[str]:
    """Return the cards of what was decided for a claim."""
    devices = reserved.allocation.devices if reserved.allocation is not None else ()
    return [card for one in devices if not one.admin_access for card in cards_of(one.place.device, one.place.id.driver)]


def closed_to_others(allocation: Allocation) -> Allocation:
    """The same, and nobody else on the cards of which it takes a slot."""
    cards = dict.fromkeys(
        container_device.uuid for container_device in allocation.container_devices if container_device.slot is not None
    )
    return replace(
        allocation, doubts=tuple(Refusal(uuid, "it is kept for a pod that waits for others to leave") for uuid in cards)
    )
