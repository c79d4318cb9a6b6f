"""The search for devices: every combination, in Kubernetes' order, until the first one that serves all claims of a pod.

Claims one after the other, their requests, alternatives in their order, devices in the order of their pools; within a request
combinations only. It is a generator: it yields after each device that was tried, and returns an ``Allocation`` per claim, or why
there is none. A request that no device can serve ends it, whatever the others could have.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from pumice.claims.allocation import Allocation, allocations
from pumice.claims.attributes import Constraining
from pumice.claims.filling import Filling, Rank
from pumice.claims.ledger import Draft
from pumice.claims.objects import RESULTS_MOST, DeviceClass, ResourceClaim
from pumice.claims.reasons import Cause, FitError, RequestReasons, Rule, Unallocated
from pumice.claims.requests import Ask, Candidate, Claim, Fault, least, prepared
from pumice.claims.slices import Node, NodePool, PooledDevice, Slices
from pumice.claims.usage import Usage

BUDGET: Final = 1_000_000
"""Steps of a search: one for each device tried, and one for every ``LOOKS`` of a selector."""
LOOKS: Final = 10
T = TypeVar("T")
Search = Generator[None, None, T]


def allocate(
    claims: Sequence[ResourceClaim], node: Node, slices: Slices, classes: Mapping[str, DeviceClass], usage: Usage, *,
    share_id: Callable[[], str], budget: int = BUDGET, rank: Rank | None = None,
) -> Search[tuple[Allocation, ...] | Unallocated]:  # fmt: skip
    """Search devices on the node for claims that have none yet. Nothing is taken: the caller writes what was found.

    ``share_id`` makes a fresh UUID for each share of a device; ``rank`` says which devices are tried first, where that is not for
    their drivers to say."""
    pools, asked = slices.pools_of(node), list[Claim]()
    try:
        asked += prepared(claims, classes)
        search = _Searching(asked, pools, Draft(usage, slices, {pool.id: pool for pool in pools}), budget, rank)
        yield from search.prepare(usage)
        found = yield from search.run()
    except (Fault, _SpentError) as end:
        if rank is not None:  # in the drivers' order it may never come to that device, or be done earlier
            return (yield from allocate(claims, node, slices, classes, usage, share_id=share_id, budget=budget))
        if isinstance(end, Fault):
            return Unallocated(Cause.CLAIM, str(end), _reasons(asked))
        return Unallocated(Cause.BUDGET, f"the search was given up after {budget} steps", _reasons(asked))
    if found:
        return allocations(asked, search.draft.taken, node.name, share_id)
    bad = "".join(f"; pool {pool.name} is {pool.problem}" for pool in pools if pool.problem)
    return Unallocated(Cause.NODE, f"node {node.name}: the claims cannot be allocated{bad}", _reasons(asked))


def finished(search: Search[T]) -> T:
    """Return how a search ends, run without a pause."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            result: T = end.value
            return result


class _SpentError(Exception):
    """The budget is used up."""


@dataclass(slots=True)
class _Choice:
    """A place in the search: which alternative of a request, or which device as the ``nth`` of an ask."""

    claim: int
    request: int
    ask: Ask | None = None
    nth: int = 0
    next: int = 0
    """The option that is tried next."""


@dataclass(slots=True)
class _Searching:
    claims: list[Claim]
    pools: list[NodePool]
    draft: Draft
    budget: int
    rank: Rank | None = None

    def prepare(self, usage: Usage) -> Search[None]:
        """Find out what ``All`` means; for the others look when they are reached. Raises Fault."""
        untouched = Draft(usage, self.draft.slices, self.draft.pools)
        ranked = None if self.rank is None else Filling(usage).in_order(self.pools, self.rank, self.draft.slices)
        for claim in self.claims:
            for ask in (ask for asks in claim.requests for ask in asks):
                places = iter(ranked) if ranked is not None else (place for pool in self.pools for place in pool.devices)
                if ask.takes_all:
                    yield from self._meant_by_all(ask, places)
                else:
                    ask.rest = map(partial(self._looked_at, ask, untouched), places)
            claim.check_size()

    def run(self) -> Search[bool]:
        """Return whether all claims are served; then the draft says by what."""
        path: list[_Choice] = []
        choice = self._begin(0, 0)
        while choice is not None:
            advanced = yield from (
                self._advance_request(choice) if choice.ask is None else self._advance_device(choice)
            )
            if advanced is not None:
                path.append(choice)
                choice = self._onward(advanced)
                continue
            asks = self.claims[choice.claim].requests[choice.request]
            if all(ask.cannot_be_met for ask in asks) or not path:
                return False
            choice = path.pop()
            if choice.ask is not None:
                self.draft.give_back()
        return True

    def _begin(self, claim: int, request: int) -> _Choice | None:
        """Return the first place at or behind this request; None behind the last one."""
        while claim < len(self.claims):
            if request < len(self.claims[claim].requests):
                return _Choice(claim, request)
            claim, request = claim + 1, 0
        return None

    def _onward(self, done: _Choice) -> _Choice | None:
        """Return the place behind one that has been decided."""
        ask = done.ask
        assert ask is not None
        if done.nth >= ask.count:
            return self._begin(done.claim, done.request + 1)
        return done

    def _advance_request(self, choice: _Choice) -> Search[_Choice | None]:
        """Go on with the next alternative whose devices the claim's status has room for, and for the least that its further
        requests may come to: where they have none, no choice among the devices of this one helps."""
        requests = self.claims[choice.claim].requests
        asks, further = requests[choice.request], least(requests[choice.request + 1 :])
        while choice.next < len(asks):
            ask = asks[choice.next]
            choice.next += 1
            self._spend(1)
            yield
            held = sum(1 for taken in self.draft.taken if taken.ask.claim_at == choice.claim)
            if held + ask.count + further <= RESULTS_MOST and not (ask.takes_all and not ask.count):
                return _Choice(choice.claim, choice.request, ask)
        return None

    def _advance_device(self, choice: _Choice) -> Search[_Choice | None]:
        """Take the next device that fits; of ``All`` there is but one choice for each place."""
        ask = choice.ask
        assert ask is not None
        if choice.nth >= ask.count:  # of count 0
            return None
        while not (ask.takes_all and choice.next > choice.nth):
            candidate = yield from self._candidate(ask, choice.next)
            if candidate is None:
                return None
            choice.next += 1
            self._spend(1)
            yield
            if self._takes(ask, candidate):
                return _Choice(choice.claim, choice.request, ask, choice.nth + 1, choice.next)
        return None

    def _candidate(self, ask: Ask, at: int) -> Search[Candidate | None]:
        while at >= len(ask.candidates):
            if ask.looked_through:
                return None
            yield
            try:
                found = next(ask.rest)
            except StopIteration:
                ask.looked_through = True
                continue
            if found is not None:
                ask.candidates.append(found)
        return ask.candidates[at]

    def _takes(self, ask: Ask, candidate: Candidate) -> bool:
        place = candidate.place
        fit_error = self.draft.fit_error(ask, place)
        if candidate.fault is not None and (fit_error is None or fit_error.rule is not Rule.IN_USE):
            raise candidate.fault
        concerned = self._concerning(ask)
        fit_error = fit_error or next(filter(None, (one.fit_error(place.device, place.id.driver) for one in concerned)), None)
        if fit_error is not None:
            ask.fit_errors.setdefault(place.id, fit_error)
            return False
        self.draft.take(ask, place, concerned)
        return True

    # -- one device, whatever the pod has -------------------------------------------------------------------------

    def _meant_by_all(self, ask: Ask, places: Iterable[PooledDevice]) -> Search[None]:
        """All devices that the selectors select and that are large enough, free or not. Raises Fault."""
        for pool in self.pools:
            if pool.problem:
                raise Fault(
                    f"claim {ask.claim}, request {ask.name}: asks for all devices, but pool {pool.name} is {pool.problem}"
                )
        for place in places:
            yield
            if not self._is_selected(ask, place):
                continue
            shares = ask.shares_of(place)
            if isinstance(shares, FitError):
                ask.fit_errors[place.id] = shares
            else:
                ask.candidates.append(Candidate(place))
        ask.looked_through = True

    def _looked_at(self, ask: Ask, untouched: Draft, place: PooledDevice) -> Candidate | None:
        """Return the device if it would do had the pod nothing yet."""
        self._spend(1)
        fit_error = untouched.in_use(ask, place)
        try:
            if fit_error is None and not self._is_selected(ask, place):
                return None
        except Fault as fault:
            return Candidate(place, fault)
        fit_error = fit_error or untouched.fit_error_if_free(ask, place) or self._without_attribute(ask, place)
        if fit_error is not None:
            ask.fit_errors[place.id] = fit_error
        return Candidate(place) if fit_error is None else None

    def _without_attribute(self, ask: Ask, place: PooledDevice) -> FitError | None:
        """Return the constraint whose attribute the device lacks: no choice of the others can help it."""
        untouched = (Constraining(one.constraint) for one in self._concerning(ask))
        return next(filter(None, (one.fit_error(place.device, place.id.driver) for one in untouched)), None)

    def _concerning(self, ask: Ask) -> list[Constraining]:
        names = (ask.request, ask.name)
        return [one for one in self.claims[ask.claim_at].constraints if one.concerns(names)]

    def _is_selected(self, ask: Ask, place: PooledDevice) -> bool:
        for expression, whose in ask.expressions:
            found, steps = self.draft.slices.selections.selects(expression, place.slice, place.device)
            self._spend(steps // LOOKS)
            if isinstance(found, str):
                raise Fault(f"{whose}, device {place.id}: {found}")
            if not found:
                ask.fit_errors[place.id] = FitError(Rule.SELECTOR, detail=f"{whose} says no")
                return False
        return True

    def _spend(self, steps: int) -> None:
        self.budget -= steps
        if self.budget < 0:
            raise _SpentError


def _reasons(claims: Iterable[Claim]) -> tuple[RequestReasons, ...]:
    """Return those of requests that were reached."""
    return tuple(ask.reasons for claim in claims for asks in claim.requests for ask in asks if ask.fit_errors)
