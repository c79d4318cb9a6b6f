"""The cheapest pods of a node whose leaving lets a preemptor in: a minimal set, then cheaper ones.

As in kube-scheduler's preemption, units are taken out as long as the plugins agree; if the preemptor fits then, they are given
back as long as it still does: first those whose budget would break, then the most important ones. Then others are tried in
place of some, as long as that is cheaper, cut short by what it would cost at least.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pumice.scheduler.cycle.preemption.victims import Cost, Unit

# -- a minimal set: take out the least important first, give back the most important first -----------------------------


class Demand(Protocol):
    """Questions about a set of units of one node."""

    def fits(self, units: Sequence[Unit]) -> bool:
        """Return whether the preemptor would fit without them."""

    def coherent(self, units: Sequence[Unit]) -> bool:
        """Return whether no gang falls by what is taken of it pod by pod."""

    def agreed(self, units: Sequence[Unit]) -> bool:
        """Return whether that is so, and the plugins let all of them go together."""

    def spared(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Those by whom the plugins mind, in the order of the units."""

    def broken(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Those by whom budgets would be broken."""

    def cost(self, units: Sequence[Unit]) -> Cost: ...

    def gives(self, unit: Unit) -> tuple[int, ...]:
        """Return how much each has of what is missing."""


def minimal(units: Sequence[Unit], requested: Demand) -> list[Unit] | None:
    """A set that makes room, to which the plugins agree and of which nobody could stay; None where that is not found. ``units``
    begin with the least important one."""
    everybody = everybody_of(units)
    gone = _taken_out(units, requested)
    if gone is None:  # whoever went first was in the way of those who are needed
        needed = set(given_back(everybody, requested, lambda some: True))
        gone = _added(
            [],
            sorted(units, key=lambda unit: (unit not in needed, *(-amount for amount in requested.gives(unit)))),
            requested,
        )
    return None if gone is None else given_back(gone, requested, requested.agreed)


def kind(unit: Unit) -> Hashable:
    """Equal for units that the plugins treat alike: whoever else goes, they agree to both or to neither."""
    pod = unit.pods[0]
    job = unit.job
    if unit.whole or job is None:
        return unit
    return None if len(job.tasks) == 1 else job, job.queue, unit.highest, pod.priority, pod.features, pod.cls, unit.freed


def everybody_of(units: Sequence[Unit]) -> list[Unit]:
    """As many pods as can go at most."""
    falling = {unit.job for unit in units if unit.whole}
    return [unit for unit in units if unit.whole or unit.job not in falling]


def _taken_out(units: Sequence[Unit], requested: Demand) -> list[Unit] | None:
    """As many single pods as may go together; where that is not enough, one after the other of those that were left out, and then
    of the gangs that would fall."""
    gone: list[Unit] = []
    for unit in units:
        if not unit.whole and requested.coherent([other for other in gone if other.job is unit.job] + [unit]):
            gone.append(unit)
    while spared := requested.spared(gone):
        gone = [unit for unit in gone if unit not in spared]
    if gone and requested.fits(gone):
        return gone
    taken = set(gone)
    return _added(gone, [unit for unit in sorted(units, key=lambda unit: unit.whole) if unit not in taken], requested)


def _added(gone: list[Unit], more: Sequence[Unit], requested: Demand) -> list[Unit] | None:
    """These, and one after the other of ``more`` that may go with them, until there is room."""
    refused: set[Hashable] = set()
    for unit in more:
        if (alike := kind(unit)) in refused:
            continue
        found = [other for other in gone if not (unit.whole and other.job is unit.job)] + [unit]
        if not requested.agreed(found):
            refused.add(alike)
            continue
        gone = found
        if requested.fits(gone):
            return gone
    return None


def given_back(gone: Sequence[Unit], requested: Demand, agreed: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """Those that have to go. Whoever is given back is so for good; as many as can be are at once."""
    broken = set(requested.broken(gone))
    order = sorted(
        gone, key=lambda unit: (unit in broken, unit.highest, unit.whole, unit.total, unit.freed, unit.pods[0].uid), reverse=True
    )
    left = list(gone)
    at = 0
    while at < len(order):
        number = _longest(order[at:], left, requested)
        back = set(order[at : at + number])
        left = [unit for unit in left if unit not in back]
        at += number + 1  # the next one has to go
    if requested.fits(left) and agreed(left):
        return left
    left = list(gone)  # to some pods fewer that go are not always easier: one by one
    for unit in order:
        fewer = [other for other in left if other is not unit]
        if fewer and requested.fits(fewer) and agreed(fewer):
            left = fewer
    return left


def _longest(order: Sequence[Unit], gone: Sequence[Unit], requested: Demand) -> int:
    """Return how many of the first ones can stay together: by doubling, then by halves."""

    def may_stay(number: int) -> bool:
        back = set(order[:number])
        fewer = [unit for unit in gone if unit not in back]
        return bool(fewer) and requested.fits(fewer)

    low, high = 0, 1
    while high <= len(order) and may_stay(high):
        low, high = high, 2 * high
    high = min(high, len(order) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if may_stay(middle):
            low = middle
        else:
            high = middle
    return low


# -- cheaper sets than one that is known -------------------------------------------------------------------------------


LOOKS: Final = 4000
"""Looks at sets of one node in search of a cheaper one: some 50 ms."""
TRIAL: Final = 10
"""As many looks is it to ask everybody about a set, and one more for each of its pods."""
FEW: Final = 12
"""Units of which all sets can be tried: where no way of taking them out led to room, and instead of exchanging some."""
NEVER: Final = Cost(2**62, 0, 0, 0, 0, 0)


def cheapest(units: Sequence[Unit], short: Sequence[int], known: Sequence[Unit] | None, requested: Demand) -> list[Unit] | None:
    """The cheapest set, or as cheap a one as was found. ``short``: how much is missing, ``known``: a set that makes room.
    ``units`` begin with the least important one."""
    if known is None and len(units) > FEW:
        return None
    search = Search(units, short, requested)
    if known is not None:
        search.best, search.cost = list(known), requested.cost(known)
        if len(units) > FEW and search.may_be_cheaper():
            search.exchange()
    if search.may_be_cheaper():
        search.try_all()
    return search.best or None


@dataclass(slots=True)
class Search:
    """One node's."""

    units: Sequence[Unit]
    short: Sequence[int]
    requested: Demand
    best: list[Unit] = field(default_factory=list)
    cost: Cost = NEVER
    _looks: int = LOOKS
    _rest: list[tuple[list[int], list[int], int, int]] = field(default_factory=list)
    """From each unit on: what they have together of what is missing, the most that one has, and the least that one costs and
    frees."""

    def __post_init__(self) -> None:
        sums, most, total, freed = [0] * len(self.short), [0] * len(self.short), 2**62, 2**62
        self._rest = [(sums, most, 0, 0)]
        for unit in reversed(self.units):
            gives = self.requested.gives(unit)
            sums = [have + more for have, more in zip(sums, gives, strict=True)]
            most = [max(have, more) for have, more in zip(most, gives, strict=True)]
            total, freed = min(total, unit.total), min(freed, unit.freed)
            self._rest.append((sums, most, total, freed))
        self._rest.reverse()

    def may_be_cheaper(self) -> bool:
        """Return whether what any set costs at least is less than the one that is known."""
        least = min((unit.highest for unit in self.units), default=0)
        return self._least(0, list(self.short), Cost(0, least, 0, 0, 0, 0)) < self.cost

    def exchange(self) -> None:
        """One more goes, and whoever need not then stays: as long as that is cheaper."""
        tried: set[Hashable] = set()
        going = set(self.best)
        waiting = [unit for unit in self.units if unit not in going]
        while waiting and self._looks > LOOKS // 2:
            unit = waiting.pop(0)
            alike = (kind(unit), self.requested.gives(unit))
            if alike in tried or unit.highest > self.cost.highest:
                continue
            tried.add(alike)
            more = [other for other in self.best if not (unit.whole and other.job is unit.job)] + [unit]
            self._looks -= TRIAL + len(more)
            if not self.requested.agreed(more) or not self.requested.fits(more):
                continue
            fewer = given_back(more, self.requested, self.requested.agreed)
            if (cost := self.requested.cost(fewer)) < self.cost:
                self.best, self.cost = fewer, cost
                tried.clear()
                waiting = [unit for unit in self.units if unit not in set(fewer)]

    def try_all(self) -> None:
        self._extend(0, [], list(self.short), Cost(0, -(2**62), 0, 0, 0, 0))

    def _extend(self, first: int, some: list[Unit], short: list[int], cost: Cost) -> None:
        for at in range(first, len(self.units)):
            unit = self.units[at]
            if any(missing > have for missing, have in zip(short, self._rest[at][0], strict=True)):
                return  # all that are left have too little
            self._looks -= 1
            if self._looks < 0:
                return
            mine = Cost(
                0, max(cost.highest, unit.highest), cost.fallen + unit.whole * len(unit.pods), cost.total + unit.total, 0,
                cost.freed + unit.freed,
            )  # fmt: skip
            left = [missing - more for missing, more in zip(short, self.requested.gives(unit), strict=True)]
            if self._least(at + 1, left, mine) >= self.cost:
                continue
            more = [*some, unit]
            if all(missing <= 0 for missing in left) and self._is_done(more):
                continue
            self._extend(at + 1, more, left, mine)

    def _least(self, at: int, short: list[int], cost: Cost) -> Cost:
        """Return what a set costs at least that has these and some of the units from there on."""
        _, most, total, freed = self._rest[at]
        more = max((-(-missing // max(one, 1)) for missing, one in zip(short, most, strict=True) if missing > 0), default=0)
        return cost._replace(total=cost.total + more * total, freed=cost.freed + more * freed) if more else cost

    def _is_done(self, some: list[Unit]) -> bool:
        """Return whether nothing that has these, and more, need be looked at."""
        pods = sum(len(unit.pods) for unit in some)
        self._looks -= pods // 4
        cost = self.requested.cost(some)
        if cost >= self.cost or not self.requested.coherent(some):
            return True
        self._looks -= TRIAL + pods
        if not self.requested.agreed(some):
            return True
        if not self.requested.fits(some):
            return False
        self.best, self.cost = some, cost
        return True
