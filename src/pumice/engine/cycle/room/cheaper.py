"""Sets of pods of one node that are cheaper than one that is known.

First others in place of some, as long as that is cheaper. Then whatever may be cheaper is tried, cut short by what it would cost
at least; where there are few pods, that is everything.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pumice.engine.cycle.room.reprieve import Asked, given_back, kind
from pumice.engine.cycle.room.victims import Cost, Unit

LOOKS: Final = 4000
"""Looks at sets of one node in search of a cheaper one: some 50 ms."""
TRIAL: Final = 10
"""As many looks is it to ask everybody about a set, and one more for each of its pods."""
FEW: Final = 12
"""Units of which all sets can be tried: where no way of taking them out led to room, and instead of exchanging some."""
NEVER: Final = Cost(2**62, 0, 0, 0, 0, 0)


def cheapest(units: Sequence[Unit], short: Sequence[int], known: Sequence[Unit] | None, asked: Asked) -> list[Unit] | None:
    """The cheapest set, or as cheap a one as was found. ``short``: how much is missing, ``known``: a set that makes room.
    ``units`` begin with the least important one."""
    if known is None and len(units) > FEW:
        return None
    search = Search(units, short, asked)
    if known is not None:
        search.best, search.cost = list(known), asked.cost(known)
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
    asked: Asked
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
            gives = self.asked.gives(unit)
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
            alike = (kind(unit), self.asked.gives(unit))
            if alike in tried or unit.highest > self.cost.highest:
                continue
            tried.add(alike)
            more = [other for other in self.best if not (unit.whole and other.job is unit.job)] + [unit]
            self._looks -= TRIAL + len(more)
            if not self.asked.agreed(more) or not self.asked.fits(more):
                continue
            fewer = given_back(more, self.asked, self.asked.agreed)
            if (cost := self.asked.cost(fewer)) < self.cost:
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
            left = [missing - more for missing, more in zip(short, self.asked.gives(unit), strict=True)]
            if self._least(at + 1, left, mine) >= self.cost:
                continue
            more = [*some, unit]
            if all(missing <= 0 for missing in left) and self._settled(more):
                continue
            self._extend(at + 1, more, left, mine)

    def _least(self, at: int, short: list[int], cost: Cost) -> Cost:
        """Return what a set costs at least that has these and some of the units from there on."""
        _, most, total, freed = self._rest[at]
        more = max((-(-missing // max(one, 1)) for missing, one in zip(short, most, strict=True) if missing > 0), default=0)
        return cost._replace(total=cost.total + more * total, freed=cost.freed + more * freed) if more else cost

    def _settled(self, some: list[Unit]) -> bool:
        """Return whether nothing that has these, and more, need be looked at."""
        pods = sum(len(unit.pods) for unit in some)
        self._looks -= pods // 4
        cost = self.asked.cost(some)
        if cost >= self.cost or not self.asked.coherent(some):
            return True
        self._looks -= TRIAL + pods
        if not self.asked.agreed(some):
            return True
        if not self.asked.fits(some):
            return False
        self.best, self.cost = some, cost
        return True
