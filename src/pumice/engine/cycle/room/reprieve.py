"""Which pods of a node go: taken out, the least important first, then given back, the most important first.

As kube-scheduler's preemption does it. Units are taken out as long as the plugins agree to the whole set; if the claimant fits
then, they are given back as long as it still does: first those whose budget would break, then the most important ones. What is
left is minimal, and found by a number of questions that grows little faster than the number of those who go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from pumice.engine.cycle.room.victims import Cost, Unit


class Asked(Protocol):
    """Questions about a set of units of one node."""

    def fits(self, units: Sequence[Unit]) -> bool:
        """Return whether the claimant would fit without them."""

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
        """How much each has of what is missing."""


def minimal(units: Sequence[Unit], asked: Asked) -> list[Unit] | None:
    """A set that makes room, to which the plugins agree and of which nobody could stay; None where that is not found. ``units``
    begin with the least important one."""
    everybody = everybody_of(units)
    gone = _taken_out(units, asked)
    if gone is None:  # whoever went first was in the way of those who are needed
        needed = set(given_back(everybody, asked, lambda some: True))
        gone = _added([], sorted(units, key=lambda unit: (unit not in needed, *(-amount for amount in asked.gives(unit)))), asked)
    return None if gone is None else given_back(gone, asked, asked.agreed)


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


def _taken_out(units: Sequence[Unit], asked: Asked) -> list[Unit] | None:
    """As many single pods as may go together; where that is not enough, one after the other of those that were left out, and then
    of the gangs that would fall."""
    gone: list[Unit] = []
    for unit in units:
        if not unit.whole and asked.coherent([other for other in gone if other.job is unit.job] + [unit]):
            gone.append(unit)
    while spared := asked.spared(gone):
        gone = [unit for unit in gone if unit not in spared]
    if gone and asked.fits(gone):
        return gone
    taken = set(gone)
    return _added(gone, [unit for unit in sorted(units, key=lambda unit: unit.whole) if unit not in taken], asked)


def _added(gone: list[Unit], more: Sequence[Unit], asked: Asked) -> list[Unit] | None:
    """These, and one after the other of ``more`` that may go with them, until there is room."""
    refused: set[Hashable] = set()
    for unit in more:
        if (alike := kind(unit)) in refused:
            continue
        found = [other for other in gone if not (unit.whole and other.job is unit.job)] + [unit]
        if not asked.agreed(found):
            refused.add(alike)
            continue
        gone = found
        if asked.fits(gone):
            return gone
    return None


def given_back(gone: Sequence[Unit], asked: Asked, agreed: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """Those that have to go. Whoever is given back is so for good; as many as can be are at once."""
    broken = set(asked.broken(gone))
    order = sorted(
        gone, key=lambda unit: (unit in broken, unit.highest, unit.whole, unit.total, unit.freed, unit.pods[0].uid), reverse=True
    )
    left = list(gone)
    at = 0
    while at < len(order):
        number = _longest(order[at:], left, asked)
        back = set(order[at : at + number])
        left = [unit for unit in left if unit not in back]
        at += number + 1  # the next one has to go
    if asked.fits(left) and agreed(left):
        return left
    left = list(gone)  # to some pods fewer that go are not always easier: one by one
    for unit in order:
        fewer = [other for other in left if other is not unit]
        if fewer and asked.fits(fewer) and agreed(fewer):
            left = fewer
    return left


def _longest(order: Sequence[Unit], gone: Sequence[Unit], asked: Asked) -> int:
    """How many of the first ones can stay together: by doubling, then by halves."""

    def may_stay(number: int) -> bool:
        back = set(order[:number])
        fewer = [unit for unit in gone if unit not in back]
        return bool(fewer) and asked.fits(fewer)

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
