"""Devices for the claims of a class on one node, searched for within the time that a cycle has for it.

The allocator (``pumice.claims``) is a generator. A search that takes longer than its share of a cycle is left where it is, and
goes on in the next one, unless the node's devices or what is in use of them have changed. Refusals are remembered by node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pumice.claims.allocation import Allocation
from pumice.claims.objects import ClaimDevices, ResourceClaim
from pumice.claims.reasons import Cause, Unallocated
from pumice.claims.search import BUDGET, Search, allocate
from pumice.claims.selecting import Selections
from pumice.claims.slices import Node
from pumice.devices.card_policies import POLICIES
from pumice.model.cards import Allocation as Grant
from pumice.model.refusal import FitError, Short
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.known_claims import CONSUMERS_MOST, Reserved, Wanted
from pumice.scheduler.state.nodes import BY_CLAIM, Rows
from pumice.scheduler.state.state import State
from pumice.wire.objects import Requirements, parse_node_term

CYCLE: Final = 0.02
"""Seconds that all searches of a cycle may take together."""
CLASS, LONG, CLASS_LONG = 0.008, 0.05, 0.002
"""Seconds that a search may take of a cycle, and one that has taken ``LONG`` may, less what its class has searched in vain: so it
keeps nobody from his."""
QUICK: Final = 0.001
"""Seconds within which a search that finds devices is as any other pod's placing: the cycle's own end bounds how many there are.
Those in vain count, for a pod may meet thousands of nodes, and so do those that find a later alternative: they go on."""
LOOK: Final = 16
"""Steps between two looks at the clock."""
FUTURE: Final = 20_000
"""Steps of a search that is not left and gone on with: on a node as it will be when others have gone."""
CLASSES: Final = 128
"""Classes whose refusals are remembered."""
Found = tuple[Allocation | None, ...]
"""An allocation for each claim of a pod; None for one that has its devices."""
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class _Begun:
    """A search that was left: on that node, with its devices as they were then."""

    node: str
    revision: object
    search: Search[tuple[Allocation, ...] | Unallocated]
    spent: float = 0.0


@dataclass(slots=True)
class ClaimSearch:
    """The search for claims' devices. ``late`` are the classes for whose search the cycle has no more time."""

    state: State
    tick: Callable[[], float] = perf_counter
    heard: Callable[[bool], bool] | None = None
    limit: float = float("inf")
    late: set[PodClass] = field(default_factory=set)
    _spent: float = 0.0
    _spent_by: dict[PodClass, float] = field(default_factory=dict)
    _begun: dict[PodClass, _Begun] = field(default_factory=dict)
    _refused: OrderedDict[PodClass, dict[str, tuple[object, Unallocated]]] = field(default_factory=OrderedDict)

    def begin(self, tick: Callable[[], float], heard: Callable[[bool], bool] | None = None) -> None:
        """A cycle begins. ``heard``: see ``Cycle.heard``."""
        self.tick, self.heard, self.limit, self._spent = tick, heard, CYCLE, 0.0
        self.late.clear()
        self._spent_by.clear()

    def end(self) -> None:
        """A cycle ends: who asks between cycles has his own time."""
        self.tick, self.heard, self.limit, self._spent = perf_counter, None, float("inf"), 0.0
        self.late.clear()
        self._spent_by.clear()

    @contextmanager
    def without_time_limit(self) -> Iterator[None]:
        """Let searches take the time that they need: for nominated pods whose victims are gone."""
        limit, self.limit = self.limit, float("inf")
        try:
            yield
        finally:
            self.limit = limit

    def drop(self) -> None:
        """Forget what is searched again: the searches that were left, and refusals."""
        self._begun.clear()
        self._refused.clear()
        self.state.device_claims.slices.selections = Selections()

    # -- nodes as they are --------------------------------------------------------------------------------------------

    def open_to(self, cls: PodClass, rows: Rows | None) -> Mask:
        """Return where the claims may have devices, as far as can be said without a search."""
        ledger = self.state.ledger
        found = ledger.table.live.copy()
        searched = np.zeros(len(found), bool)
        for one in cls.device_claims:
            selector = self._selector(one)
            if selector is None:
                searched |= self._wanted_on(one)
            elif selector:
                found &= ledger.terms.labels.match_any(selector)[: len(found)]
        cut = found if rows is None else found[rows]
        if searched.any():
            places = np.arange(len(found)) if rows is None else rows
            at_all = searched if rows is None else searched[rows]
            concerns, name = self.state.device_claims.slices.concerns, ledger.table.name
            at = np.flatnonzero(cut & at_all)
            for place, row in zip(at.tolist(), places[at].tolist(), strict=True):
                cut[place] = concerns(name(row))
        return np.asarray(cut)

    def _wanted_on(self, one: Wanted) -> Mask:
        """Return per row whether a claim without devices is wanted there: one for extended resources where the node lacks any."""
        table = self.state.ledger.table
        if one.by_resource is None or any(name not in table.by_claim for name, _ in one.by_resource.parts):
            return np.ones(table.capacity, bool)
        lacks = np.zeros(table.capacity, bool)
        for name, _ in one.by_resource.parts:
            lacks |= table.alloc[:, table.dim(name)] >= BY_CLAIM
        return lacks

    def not_refused(self, cls: PodClass, rows: Rows | None, fits: Mask, exact: int = 0) -> Mask:
        """Return those of the nodes on which no search has failed; up to so many are searched ``exact``-ly."""
        table = self.state.ledger.table
        fits = fits & self.open_to(cls, rows)
        places = np.flatnonzero(fits).tolist()
        for place in places if len(places) <= exact or cls in self._refused else ():
            node = table.name(place if rows is None else int(rows[place]))
            known = self._known(cls, node)
            if known is None and len(places) <= exact:
                answer = self.on(cls, node)
                known = answer if isinstance(answer, Unallocated) else None
            if known is not None:
                fits[place] = False
        return fits

    def on(self, cls: PodClass, node: str, shares: Sequence[Grant] = ()) -> Found | Unallocated | None:
        """Return the devices there, or why there are none; None where the cycle has no more time for the search. ``shares``: of
        cards, which the pod is to have there besides."""
        known = self._known(cls, node) if not shares else None
        if known is not None:
            return known
        prepared = self._prepared(cls, node)
        if isinstance(prepared, Unallocated):
            return prepared
        asked, places = prepared
        if not asked:
            return tuple(None for _ in cls.device_claims)
        revision, begun = (self._revision(cls, node), tuple(shares)), self._begun.pop(cls, None)
        if begun is None or (begun.node, begun.revision) != (node, revision):
            cards = self.state.ledger.shared_cards(node, plus=shares)
            begun = _Begun(node, revision, self._search(asked, node, cards=cards))
        answer = self._go_on(cls, begun)
        if answer is None:
            return None
        return self._answered(cls, node, None if shares else revision[0], answer, places)

    def _go_on(self, cls: PodClass, begun: _Begun) -> tuple[Allocation, ...] | Unallocated | None:
        began = self.tick()
        mine = self.limit - self._spent
        if self.limit < float("inf"):
            mine = min(mine, (CLASS if begun.spent < LONG else CLASS_LONG) - self._spent_by.get(cls, 0.0))
        try:
            over = cls in self.late or self._noted(mine <= 0)  # else it gets somewhere, however busy the processor is
            while not over:
                for _ in range(LOOK):
                    next(begun.search)
                over = self._past(began, mine)
        except StopIteration as end:
            found: tuple[Allocation, ...] | Unallocated = end.value
            took = self.tick() - began
            in_vain = isinstance(found, Unallocated) or later_alternatives(found) > 0
            if in_vain or took > QUICK:
                self._spend(cls, took, in_vain)
            return found
        took = self.tick() - began
        begun.spent += took
        self._spend(cls, took, True)
        self.late.add(cls)
        self._begun[cls] = begun
        return None

    def _spend(self, cls: PodClass, seconds: float, in_vain: bool) -> None:
        self._spent += seconds
        if in_vain:
            self._spent_by[cls] = self._spent_by.get(cls, 0.0) + seconds

    def _past(self, since: float, seconds: float) -> bool:
        """Return whether so many seconds have passed since then."""
        return self._noted(self.tick() - since > seconds)

    def _noted(self, answer: bool) -> bool:
        """Return what the clock says, or what a journal has noted of it: only that depends on how quick a machine is."""
        return answer if self.heard is None else self.heard(answer)

    def _answered(
        self, cls: PodClass, node: str, revision: object, answer: tuple[Allocation, ...] | Unallocated, places: list[int]
    ) -> Found | Unallocated:
        if isinstance(answer, Unallocated) and revision is None:
            return answer  # of these shares alone
        if isinstance(answer, Unallocated):
            self._refused.setdefault(cls, {})[node] = revision, answer
            self._refused.move_to_end(cls)
            if len(self._refused) > CLASSES:
                self._refused.popitem(last=False)
            return answer
        found: list[Allocation | None] = [None] * len(cls.device_claims)
        for place, allocation in zip(places, answer, strict=True):
            found[place] = allocation
        return tuple(found)

    def _known(self, cls: PodClass, node: str) -> Unallocated | None:
        """Return the refusal of before, where nothing has changed there since."""
        known = self._refused.get(cls, {}).get(node)
        return known[1] if known is not None and known[0] == self._revision(cls, node) else None

    def _revision(self, cls: PodClass, node: str) -> object:
        claims, row = self.state.device_claims, self.state.ledger.table.row_of.get(node, -1)
        facts = self.state.ledger.table.facts[row] if row >= 0 else None
        shares, judged = self.state.ledger.shares_news.get(node, 0), claims.judged_by(one for one in cls.device_claims if one.key)
        offered = tuple(one.by_resource and self._devices_on(one, node) for one in cls.device_claims)
        return claims.revision(node), shares, judged, facts and id(facts.labels), offered

    # -- nodes as they will be ----------------------------------------------------------------------------------------

    def in_future(
        self, cls: PodClass, node: str, without: Collection[str], plus: Iterable[Reserved] = (), shares: Sequence[Grant] = ()
    ) -> Found | Unallocated:
        """Return the devices there once these pods have given back what they alone use, and others have what is promised.
        ``shares``: see ``on``."""
        prepared = self._prepared(cls, node)
        if isinstance(prepared, Unallocated):
            return prepared
        asked, places = prepared
        row = self.state.ledger.table.row_of.get(node, -1)
        if row < 0 or not self.open_to(cls, np.array([row], np.intp))[0]:
            return Unallocated(Cause.NODE, f"node {node}: claims of the pod have their devices elsewhere")
        if not asked:
            return tuple(None for _ in cls.device_claims)
        cards = self.state.ledger.shared_cards(node, set(without), shares, promised=True)
        search = self._search(asked, node, without, plus, FUTURE, cards)
        while True:
            try:
                next(search)
            except StopIteration as end:
                answer: tuple[Allocation, ...] | Unallocated = end.value
                break
        if isinstance(answer, Unallocated):
            return answer
        found: list[Allocation | None] = [None] * len(cls.device_claims)
        for place, allocation in zip(places, answer, strict=True):
            found[place] = allocation
        return tuple(found)

    # -- why not ------------------------------------------------------------------------------------------------------

    def refusal(self, cls: PodClass, node: str) -> FitError | None:
        """Return why the node has no devices for the claims: the rules that failed; in the detail each device with numbers."""
        row = self.state.ledger.table.row_of.get(node, -1)
        if row >= 0 and not self.open_to(cls, np.array([row], np.intp))[0]:
            if any(self._selector(one) is not None for one in cls.device_claims):
                return FitError(node, Short.NO_DEVICES, "node(s) cannot reach the devices of a claim")
            answer = self.on(cls, node)
            if not isinstance(answer, Unallocated) or answer.cause is Cause.NODE:
                return FitError(node, Short.NO_DEVICES, "node(s) had no devices for claims")
            return FitError(node, Short.REQUEST, answer.text)  # a class that is not there, above all
        answer = self.on(cls, node)
        if answer is None:
            return FitError(node, Short.COUNT, "node(s) are still searched for the devices of claims")
        if not isinstance(answer, Unallocated):
            return None
        if answer.cause is not Cause.NODE:
            return FitError(node, Short.REQUEST, answer.text, detail="; ".join(answer.lines[1:]))
        rules = sorted({
            f"{one.request}: {' '.join(filter(None, (fit_error.rule, fit_error.about)))}"
            for one in answer.requests for fit_error in one.devices.values()
        })  # fmt: skip
        return FitError(
            node, Short.COUNT, f"cannot allocate all claims ({', '.join(rules)})" if rules else "cannot allocate all claims",
            detail="; ".join(answer.lines),
        )  # fmt: skip

    # -- what is asked ------------------------------------------------------------------------------------------------

    def _prepared(self, cls: PodClass, node: str) -> tuple[list[ResourceClaim], list[int]] | Unallocated:
        """Return the claims that have no devices, and their places among the pod's."""
        claims, asked, places = self.state.device_claims, list[ResourceClaim](), list[int]()
        for place, one in enumerate(cls.device_claims):
            if one.key:
                if one.key not in claims.claims:
                    return Unallocated(Cause.CLAIM, f"ResourceClaim {one.key} is not there")
                if claims.consumers(one.key) >= CONSUMERS_MOST:
                    return Unallocated(Cause.CLAIM, f"ResourceClaim {one.key} is used by {CONSUMERS_MOST} pods, as many as may")
            if self._selector(one) is None:
                namespace, _, name = one.key.partition("/")
                devices = self._devices_on(one, node)
                if devices.requests or one.by_resource is None:
                    asked.append(ResourceClaim(namespace or cls.constraints.namespace, name or one.name, devices))
                    places.append(place)
        return asked, places

    def _devices_on(self, one: Wanted, node: str) -> ClaimDevices:
        """Return the requests of a claim; of one for extended resources those for which the node offers none itself."""
        table = self.state.ledger.table
        row = table.row_of.get(node, -1)
        if one.by_resource is None or row < 0:
            return one.spec.devices
        own = {name for name, _ in one.by_resource.parts if name in table.by_claim and table.by_plugin(row, name)}
        if not own:
            return one.spec.devices
        names = frozenset().union(*(requests for name, requests in one.by_resource.parts if name not in own))
        return ClaimDevices(tuple(request for request in one.spec.devices.requests if request.name in names))

    def _selector(self, one: Wanted) -> tuple[Requirements | None, ...] | None:
        """Return the terms of the nodes that can use the devices of the claim; none: all nodes. None: it has no devices.

        A selector without a term selects no node."""
        claims = self.state.device_claims
        claim = claims.claims.get(one.key) if one.key else None
        if claim is None:
            return None
        selector = claim.node_selector
        if claim.results is None:
            decision = claims.decided(one.key)
            if decision is None:
                return None
            selector = decision.allocation.node_selector
        if selector is None:
            return ()
        return tuple(parse_node_term(term) for term in selector.get("nodeSelectorTerms") or ()) or (None,)

    def _search(
        self, asked: list[ResourceClaim], node: str, without: Collection[str] = (), plus: Iterable[Reserved] = (),
        budget: int = BUDGET, cards: Mapping[str, str] | None = None,
    ) -> Search[tuple[Allocation, ...] | Unallocated]:  # fmt: skip
        claims, table = self.state.device_claims, self.state.ledger.table
        facts = table.facts[table.row_of[node]]
        labels = facts.labels if facts is not None else {}
        usage = claims.usage(node, without, plus)
        if cards:
            usage = replace(usage, cards=cards)
        policy = POLICIES.get(self.state.settings.policy)
        return allocate(asked, Node(node, labels), claims.slices, claims.classes, usage,
                        share_id=lambda: "of the class", budget=budget, rank=None if policy is None else policy.rank)  # fmt: skip


def has_alternatives(cls: PodClass) -> bool:
    """Return whether some request of its claims is ``firstAvailable``."""
    return any(request.first_available for one in cls.device_claims for request in one.spec.devices.requests)


def later_alternatives(found: Found) -> int:
    """Return by how many alternatives of ``firstAvailable`` these devices come after the first ones."""
    count = 0
    for allocation in found:
        chosen = {one.request for one in allocation.devices if "/" in one.request} if allocation is not None else ()
        for request in allocation.claim.devices.requests if allocation is not None and chosen else ():
            for at, one in enumerate(request.first_available):
                count += at if f"{request.name}/{one.name}" in chosen else 0
    return count
