"""Devices in use by claims, summed by pool, and the numbers by which others see that something changed.

Who holds what, and whether by a status or a decision, ``device_claims`` tells; nothing else is counted here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pumice.claims.filling import fullness
from pumice.claims.objects import Result
from pumice.claims.partitions import State
from pumice.claims.slices import PoolID, Slices
from pumice.claims.usage import Usage, usage_of
from pumice.scheduler.state.claimed_cards import ClaimedCards
from pumice.scheduler.state.nodes import NodeTable


@dataclass(slots=True)
class DevicesInUse:
    """The devices that claims hold. ``held``: by pool and uid of the claim."""

    table: NodeTable
    slices: Slices
    version: int = 0
    gains: int = 0
    """Number of times that devices came or were given back for good."""
    """Raised when something has changed, beyond single nodes, that may help a pod with claims."""
    state: int = 0
    """Raised when any node may be judged otherwise than before, beyond single nodes; trials are counted, too."""
    cards: ClaimedCards = field(init=False)
    held: dict[PoolID, dict[str, tuple[Result, ...]]] = field(default_factory=lambda: defaultdict(dict))
    pools_of: dict[str, frozenset[PoolID]] = field(default_factory=dict)
    revisions: dict[PoolID, int] = field(default_factory=lambda: defaultdict(int))
    _usage: dict[PoolID, Usage] = field(default_factory=dict)
    _last: dict[PoolID, Usage] = field(default_factory=dict)
    """The last usage of a pool: it remembers counters of devices that are published no more."""
    _full: dict[PoolID, tuple[int, tuple[float, int], frozenset[State]]] = field(default_factory=dict)
    """Use of a pool at that revision, and its cards that are partitioned, of equal ones one."""

    def __post_init__(self) -> None:
        self.cards = ClaimedCards(self.slices)

    def on(self, node: str, more: Sequence[Result], is_free: Callable[[str], bool] | None) -> Usage:
        """Return what is in use of the devices that the node may use, with ``more`` and without what is held by claims that are
        free."""
        parts = []
        for pool in self.slices.may_concern(node):
            held = self.held.get(pool)
            free = {uid for uid in held or () if is_free is not None and is_free(uid)}
            mine = [result for result in more if (result.driver, result.pool) == pool]
            if free or mine:
                left = [result for uid, results in (held or {}).items() if uid not in free for result in results]
                parts.append(usage_of([*left, *mine], self.slices, self.of_pool(pool)))
            elif held:
                parts.append(self.of_pool(pool))
        return parts[0] if len(parts) == 1 else _together(parts)

    def set_aside(self, uid: str, *, back: bool) -> None:
        """Leave a claim out, or count it again, for as long as a question is asked."""
        self.cards.set_aside(uid, back=back)
        pools = self.pools_of.get(uid, frozenset())
        for pool in pools:
            self.revisions[pool] += 1
        self.touch(pools, gain=False)

    def _results_of(self, uid: str) -> list[Result]:
        return [one for pool in self.pools_of.get(uid, ()) for one in self.held[pool][uid]]

    def of_pool(self, pool: PoolID) -> Usage:
        found = self._usage.get(pool)
        if found is None:
            results = (result for results in self.held.get(pool, {}).values() for result in results)
            found = self._usage[pool] = self._last[pool] = usage_of(results, self.slices, self._last.get(pool))
        return found

    def fullness(self, node: str) -> tuple[float, frozenset[State]]:
        """Return which part of the cards that a node has by its pools claims hold, from 0 to 1, and the partitioned ones,
        one of those that are equal."""
        used, number, partitioned = 0.0, 0, frozenset[State]()
        for pool in self.slices.may_concern(node):
            if pool not in self.held:
                number, states = number + self.slices.cards_in(pool)[0], self.slices.partitioned_pool(pool).idle
            else:
                _, (in_use, of), states = self._look(pool)
                used, number = used + in_use, number + of
            partitioned = partitioned | states if partitioned else states
        return (used / number if number else 0.0), partitioned

    def _look(self, pool: PoolID) -> tuple[int, tuple[float, int], frozenset[State]]:
        known = self._full.get(pool)
        if known is None or known[0] != self.revisions[pool]:
            usage, of = self.of_pool(pool), self.slices.partitioned_pool(pool)
            states = frozenset(of.states(usage.devices, usage.remembered).values()) if of.places else of.idle
            known = self._full[pool] = self.revisions[pool], fullness(pool, usage, self.slices), states
        return known

    def remember(self, pools: Iterable[PoolID]) -> None:
        """Look at devices in use before what is published changes."""
        for pool in pools:
            if pool in self.held:
                self.of_pool(pool)

    def hold(self, uid: str, results: Sequence[Result], *, trial: bool) -> None:
        """From now on the claim holds these. ``trial``: nobody else can count on what it gave back."""
        by_pool: dict[PoolID, list[Result]] = defaultdict(list)
        for result in results:
            by_pool[result.driver, result.pool].append(result)
        before, changed, less = self.pools_of.pop(uid, frozenset()), set(), False
        for pool in before | by_pool.keys():
            held, now = self.held[pool], tuple(by_pool.get(pool, ()))
            if held.get(uid, ()) == now:
                continue
            changed.add(pool)
            less = less or len(now) < len(held.get(uid, ()))
            if now:
                held[uid] = now
            else:
                held.pop(uid, None)
            if not held:
                del self.held[pool]
                self._last.pop(pool, None)
                self._full.pop(pool, None)
            self._usage.pop(pool, None)
            self.revisions[pool] += 1
        if by_pool:
            self.pools_of[uid] = frozenset(by_pool)
        if changed:
            self.cards.holds(uid, results, gain=less and not trial)
            self.touch(changed, gain=less and not trial)

    def touch(self, pools: Iterable[PoolID], *, gain: bool) -> None:
        self.gains += gain
        for pool in pools:
            nodes = self.slices.nodes_of(pool)
            if nodes is None:
                self.state += 1
                self.version += gain
            for node in nodes or ():
                row = self.table.row_of.get(node)
                if row is not None:
                    self.table.touch(row, gain=gain)

    def rows(self, pools: Iterable[PoolID]) -> set[int]:
        names = {node for pool in pools for node in self.slices.nodes_of(pool) or ()}
        return {self.table.row_of[name] for name in names if name in self.table.row_of}

    def republished(self, pools: set[PoolID], rows: set[int]) -> None:
        """Other devices are published: nodes of before and of now are looked at."""
        for pool in pools:
            self._usage.pop(pool, None)
            self.revisions[pool] += 1
            for uid in self.held.get(pool, ()):
                self.cards.holds(uid, self._results_of(uid), gain=True)
        self.touch(pools, gain=True)
        for row in rows:
            self.table.touch(row, gain=True)


def _together(parts: Sequence[Usage]) -> Usage:
    """Return the sum of the usages of different pools."""
    return Usage(
        frozenset().union(*(part.exclusive for part in parts)),
        frozenset().union(*(part.shared for part in parts)),
        {id_: amounts for part in parts for id_, amounts in part.consumed.items()},
        {id_: consumption for part in parts for id_, consumption in part.remembered.items()},
        sharers={id_: number for part in parts for id_, number in part.sharers.items()},
    )
