"""Cards of each node that a pod would strand, for policies that count them (``pumice.devices.fragmentation``).

Nodes are judged by the shapes that the cluster has seen, and what is stranded depends on a node's cards, cpu, memory and labels
alone. What a card is to the shapes is remembered for each kind of card. A few rows are looked at by their value, which is
remembered too: a pod makes of its node what was counted before it came. All rows are looked at as arrays, each kind once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from pumice.devices.card_policies import Stranding
from pumice.devices.fitting import EmptyNode, Fitting
from pumice.devices.fragmentation import (
    CardPart,
    FreeCard,
    Shapes,
    each_alone,
    of_cards,
    of_nodes,
    step,
    steps,
    tightest,
    with_share,
    worth_of,
)
from pumice.model.cards import Usage
from pumice.scheduler.plugins.topology import node_affinity_met
from pumice.scheduler.state.cards import DeviceTable
from pumice.scheduler.state.classes import Constraints
from pumice.scheduler.state.node_devices import CardFacts
from pumice.scheduler.state.nodes import Rows
from pumice.scheduler.state.seen_shapes import Fitted
from pumice.scheduler.state.state import State

KINDS = 20_000
"""Kinds of cards remembered; when there are more, all are looked at anew."""
VALUES = 100_000
"""Values of nodes remembered; when there are more, all are forgotten."""
ALIKE_FROM = 32
"""Rows from which on those that are alike are looked for."""
NO_CARD: FreeCard = (0, 0, 0, 0, False)

Cards = tuple[int, ...]
"""Of a node the kinds of its open shared cards, by their numbers, in the order of their places."""
Exchange = list[tuple[int, int]]
"""Of a node the kinds of the cards that a pod would take, each before and after it."""
Totals = tuple[float, float, int, int]
"""Of a node the cpu and memory for which its cards have pods, how many of them are whole, and how many there are."""
NodeKind = tuple[Cards, int, int, int]
"""All that decides how much is stranded: kinds of cards in the order of their numbers, cpu, memory, and which labels."""


@dataclass(slots=True)
class StrandedCards:
    """Of one state, one way of counting and one device type. Rows are those of the table of nodes."""

    state: State
    device_table: DeviceTable
    how: Stranding
    _shapes: Shapes | None = None
    _cursor: int = 0
    _nodes: int = -1
    """Version of the table of nodes by which ``_labels`` were found."""
    _weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    """The frequencies of the shapes that labels let in, for each set of labels."""
    _labels: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    """Per row the number of its set of labels, of which there are few."""
    _kinds: list[FreeCard] = field(default_factory=list)
    """Kinds of cards by their numbers; 0 stands for no card."""
    _numbers: dict[FreeCard, int] = field(default_factory=dict)
    _written: dict[tuple[CardFacts, int, int, int], int] = field(default_factory=dict)
    """The same numbers by what the ledger says of a card: its facts, and of it in use memory, cores and shares."""
    _of_kinds: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4, 0)))
    """The use of each kind of card to the shapes."""
    _left_of_kinds: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """Per kind what is left of it, whether it is whole, and 1."""
    _plain: list[tuple[list[float], float, float, int]] = field(default_factory=list)
    """Per kind what counts where each card counts for itself: what is stranded by sets of labels, the cpu and memory to have, and
    whether it is whole."""
    _read: int = 0
    """Number of kinds that the arrays have."""
    _taken: dict[CardPart, dict[int, tuple[float | None, int]]] = field(default_factory=dict)
    """Per request and kind of card what is left of it and the kind that it becomes; None where it does not take it."""
    _cards: list[Cards] = field(default_factory=list)
    _of_rows: list[Totals] = field(default_factory=list)
    _fitted: tuple[Fitted, Shapes | None, Shapes] | None = None
    """Weights, the shapes that were seen, and these with those weights."""
    _values: dict[NodeKind, float] = field(default_factory=dict)
    _stale: set[int] = field(default_factory=set)
    """Rows that have other cards than the arrays below say."""
    _sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4, 0)))
    _left: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """Per row the sums over its cards."""

    def few(self, rows: Sequence[int], cpu: int, memory: int, part: CardPart | None) -> list[float | None]:
        """Of a handful of rows by how many steps fewer cards are stranded with such a pod; None where no cards take it."""
        self._catch_up()
        alloc, used = self.state.ledger.table.alloc, self.state.ledger.table.used
        found: list[float | None] = [None] * len(rows)
        taken: list[tuple[int, int, int, int, Exchange]] = []
        for place, row in enumerate(rows):
            left_cpu, left_memory = alloc.item(row, 0) - used.item(row, 0), alloc.item(row, 1) - used.item(row, 1)
            if (cards := self._cards[row]) and left_cpu >= cpu and left_memory >= memory:
                exchange = self._exchange(cards, part)
                if exchange is not None:
                    taken.append((place, row, left_cpu, left_memory, exchange))
        self._read_kinds()
        pairs: list[tuple[int, NodeKind, NodeKind]] = []
        for place, row, left_cpu, left_memory, exchange in taken:
            label, free = self._labels.item(row), (left_cpu - cpu, left_memory - memory)
            fewer = self._alone(self._of_rows[row], left_cpu, left_memory, free, exchange, label)
            if fewer is None:
                cards = self._cards[row]
                before = tuple(sorted(cards)), left_cpu, left_memory, label
                pairs.append((place, before, (_exchanged(cards, exchange), *free, label)))
            else:
                found[place] = step(fewer)
        values = self._values
        if unknown := [kind for _, *pair in pairs for kind in pair if kind not in values]:
            self._value(unknown)
        for place, before, after in pairs:
            found[place] = step(values[before] - values[after])
        return found

    def _alone(
        self, row: Totals, cpu: int, memory: int, free: tuple[int, int], exchange: Exchange, label: int
    ) -> float | None:
        """Return how many cards fewer are stranded where the node has cpu and memory for all that its cards could take: then
        each card counts for itself. None where it has less, before the pod or with it."""
        need_cpu, need_memory, whole, count = row
        if cpu < need_cpu or memory < need_memory:
            return None
        fewer, still = 0.0, whole
        for old, new in exchange:
            of_old, cpu_of_old, memory_of_old, was_whole = self._plain[old]
            of_new, cpu_of_new, memory_of_new, _ = self._plain[new]
            fewer += of_old[label] - of_new[label]
            need_cpu += cpu_of_new - cpu_of_old
            need_memory += memory_of_new - memory_of_old
            still -= was_whole
        if free[0] < need_cpu or free[1] < need_memory:
            return None
        return fewer if still == whole else fewer - self.how.whole * (whole**2 - still**2) / count

    def steps(
        self, rows: Rows | None, cpu: int, memory: int, part: CardPart | None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The same of many rows, 0 where no cards take it, and where they do."""
        table = self.state.ledger.table
        self._catch_up()
        self._freshen()
        every = np.arange(table.capacity) if rows is None else rows
        found, may = np.zeros(len(every)), np.zeros(len(every), bool)
        free = table.alloc[every, :2] - table.used[every, :2]
        places = np.flatnonzero((self._left[every, 2] > 0) & (free >= (cpu, memory)).all(axis=1))
        if len(places) >= ALIKE_FROM:
            first, like = self._alike(every[places], free[places])
            chosen = places[first]
        else:
            chosen, like = places, np.arange(len(places))
        if len(chosen):
            of_kinds = self._steps(every[chosen], free[chosen].astype(np.float64), (cpu, memory), part)
            found[places], may[places] = of_kinds[0][like], of_kinds[1][like]
        return found, may

    def _alike(self, rows: Rows, free: NDArray[np.int64]) -> tuple[Rows, Rows]:
        """Of each kind of rows one, and per row the number of its kind: equal cards, equally used, equal room, equal labels as
        far as shapes look at them."""
        key = self.device_table.states_of(rows).astype(np.int64) * len(self._weights) + self._labels[rows]
        for column in (0, 1):
            _, number = np.unique(free[:, column], return_inverse=True)
            _, key = np.unique(key * (int(number.max()) + 1) + number, return_inverse=True)
        _, first, like = np.unique(key, return_index=True, return_inverse=True)
        return first, like

    def _steps(
        self, rows: Rows, free: NDArray[np.float64], requested: tuple[int, int], part: CardPart | None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """As ``steps``, for rows that have the cpu and memory."""
        sums, left, may = self._sums[rows], self._left[rows], np.ones(len(rows), bool)
        weights = self._weights[self._labels[rows]]
        now = self._stranded(sums, left, free, weights)
        if part is not None:
            taken = {cards: self._exchange(cards, part) for cards in {self._cards[row] for row in rows.tolist()}}
            nothing: Exchange = [(0, 0)] * part.count if any(taken.values()) else []  # no more than a node has
            exchanged = np.array([taken[self._cards[row]] or nothing for row in rows.tolist()], np.intp)
            self._read_kinds()
            may[:] = [taken[self._cards[row]] is not None for row in rows.tolist()]
            for before, after in exchanged.transpose(1, 2, 0) if exchanged.size else ():
                sums += self._of_kinds[after] - self._of_kinds[before]
                left += self._left_of_kinds[after] - self._left_of_kinds[before]
        return np.where(may, steps(now - self._stranded(sums, left, free - requested, weights)), 0.0), may

    # -- kinds ----------------------------------------------------------------------------------------------------

    def _exchange(self, cards: Cards, part: CardPart | None) -> Exchange | None:
        """The kinds of the cards that the pod takes, each before and after it; None where too few take it."""
        if part is None:
            return []
        taken = self._taken.setdefault(part, {})
        if part.count == 1:  # as below, without lists: most pods ask for one
            least, best = inf, None
            for kind in cards:
                left, after = taken.get(kind) or self._take(taken, kind, part)
                if left is not None and left < least:
                    least, best = left, (kind, after)
            return None if best is None else [best]
        found = [taken.get(kind) or self._take(taken, kind, part) for kind in cards]
        places = tightest([left for left, _ in found], part.count)
        return None if places is None else [(cards[place], found[place][1]) for place in places]

    def _take(self, taken: dict[int, tuple[float | None, int]], kind: int, part: CardPart) -> tuple[float | None, int]:
        card = self._kinds[kind]
        after = with_share(card, part)
        found = taken[kind] = (None, 0) if after is None else (worth_of(card), self._number(after))
        return found

    def _number(self, card: FreeCard) -> int:
        """The number of a kind of card; new ones are read before they are used."""
        found = self._numbers.get(card)
        if found is None:
            found = self._numbers[card] = len(self._kinds)
            self._kinds.append(card)
        return found

    def _read_kinds(self) -> None:
        """Bring the arrays of kinds up to date."""
        end = len(self._kinds)
        if self._read == end:
            return
        assert self._shapes is not None
        if end > len(self._of_kinds):
            self._of_kinds = _longer(self._of_kinds, 2 * end)
            self._left_of_kinds = _longer(self._left_of_kinds, 2 * end)
        new = self._kinds[self._read :]
        total, free, cores, slots, alone = np.array(new, np.float64).T
        self._of_kinds[self._read : end] = of_cards(total, free, cores, slots, alone > 0, self._shapes)
        self._left_of_kinds[self._read : end] = [(worth_of(card), card[4], card[0] > 0) for card in new]
        stranded, need = each_alone(self._of_kinds[self._read : end], self._left_of_kinds[self._read : end, 0], self._weights,
                               self._shapes, self.how)  # fmt: skip
        self._plain += [
            (each, *requested, int(card[4])) for each, requested, card in zip(stranded.tolist(), need.tolist(), new, strict=True)
        ]
        self._read = end

    def _value(self, kinds: Sequence[NodeKind]) -> None:
        """Remember how much is stranded on nodes of these kinds."""
        self._read_kinds()
        most = max([len(cards) for cards, _, _, _ in kinds])
        cards = np.array([cards + (0,) * (most - len(cards)) for cards, _, _, _ in kinds], np.intp)
        free = np.array([(cpu, memory) for _, cpu, memory, _ in kinds], np.float64)
        weights = self._weights[[label for _, _, _, label in kinds]]
        sums, left = self._of_kinds[cards].sum(axis=1), self._left_of_kinds[cards].sum(axis=1)
        self._values.update(zip(kinds, self._stranded(sums, left, free, weights).tolist(), strict=True))

    def _stranded(
        self, sums: NDArray[np.float64], left: NDArray[np.float64], free: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        assert self._shapes is not None
        return of_nodes(sums, left, free, weights, self._shapes, self.how)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Bring the cards of each row up to date."""
        table, shapes = self.state.ledger.table, self.shapes()
        changed = table.changes.since(self._cursor)
        self._cursor = table.changes.end
        labels = self._weights
        if shapes is not self._shapes or self._nodes != table.version:
            self._allow(shapes)
        if (changed is None or shapes is not self._shapes or labels is not self._weights or len(self._cards) != table.capacity
                or len(self._kinds) > KINDS):  # fmt: skip
            self._forget(shapes)
            changed = np.flatnonzero(table.live).tolist()
        if not changed:
            return
        if len(self._values) > VALUES:
            self._values.clear()
        for row in changed:
            self._cards[row] = self._cards_of(row)
        self._read_kinds()
        for row in changed:
            self._of_rows[row] = self._totals(self._cards[row])
        self._stale.update(changed)

    def shapes(self) -> Shapes:
        """The shapes by which nodes are judged now."""
        seen = self.state.classes.seen
        if not self.how.fitted:
            return seen.current()
        fitted = seen.fit((self.device_table.device_type.name, self.how), self._begin_fit)
        if fitted is None:
            return seen.current()
        if self._fitted is None or self._fitted[0] is not fitted or self._fitted[1] is not fitted.looked:
            self._fitted = fitted, fitted.looked, seen.current().fitted(fitted.weights)
        return self._fitted[2]

    def _begin_fit(self, shapes: Shapes) -> Fitting | None:
        """None where there are no cards yet."""
        self._allow(shapes)
        self._shapes = None  # what is known by the labels before is found anew
        table, nodes = self.state.ledger.table, []
        lets_in = [tuple(takes) for takes in (self._weights > 0).tolist()]
        for row in np.flatnonzero(table.live).tolist():
            devices = self.device_table.devices_on(row)
            cards = [(total, limit) for total, limit, open_, mig, _ in (devices.facts if devices is not None else ())
                     if open_ and not mig and total > 0]  # fmt: skip
            if cards:
                cpu, memory = table.alloc[row, :2].tolist()
                nodes.append(EmptyNode(tuple(cards), cpu, memory, lets_in[self._labels[row]]))
        return Fitting(shapes, nodes, self.how) if nodes else None

    def _totals(self, cards: Cards) -> Totals:
        cpu = memory = 0.0
        whole, plain = 0, self._plain
        for kind in cards:
            _, of_cpu, of_memory, is_whole = plain[kind]
            cpu += of_cpu
            memory += of_memory
            whole += is_whole
        return cpu, memory, whole, len(cards)

    def _cards_of(self, row: int) -> Cards:
        devices = self.device_table.devices_on(row)
        if devices is None:
            return ()
        # from the ledger, not from their arrays: those follow when many rows are looked at
        of_cards, known = zip(devices.facts, devices.usages, strict=False), self._written.get
        found = [known((facts, usage.memory, usage.cores, usage.shares)) for facts, usage in of_cards]
        if None in found:
            found = [self._kind(facts, usage) for facts, usage in zip(devices.facts, devices.usages, strict=False)]
        return tuple([kind for kind in found if kind])

    def _kind(self, facts: CardFacts, usage: Usage) -> int:
        """The kind of a card; none where it is closed or cut into slices."""
        total, limit, open_card, mig, _ = facts
        memory, cores, shares = usage.memory, usage.cores, usage.shares
        shared = open_card and not mig and total > 0
        card = (total, max(0, total - memory), max(0, 100 - cores), max(0, limit - shares), shares == 0)
        found = self._written[facts, memory, cores, shares] = self._number(card) if shared else 0
        return found

    def _forget(self, shapes: Shapes) -> None:
        capacity, seen = self.state.ledger.table.capacity, len(shapes)
        self._shapes, self._kinds, self._numbers, self._read = shapes, [NO_CARD], {NO_CARD: 0}, 1
        self._of_kinds, self._left_of_kinds = np.zeros((64, 4, seen)), np.zeros((64, 3))
        self._sums, self._left = np.zeros((capacity, 4, seen)), np.zeros((capacity, 3))
        self._cards, self._of_rows = [()] * capacity, [(0.0, 0.0, 0, 0)] * capacity
        self._plain = [([0.0] * len(self._weights), 0.0, 0.0, 0)]
        for remembered in (self._written, self._taken, self._values, self._stale):
            remembered.clear()

    def _freshen(self) -> None:
        """Bring the sums of each row up to date."""
        if not self._stale:
            return
        self._read_kinds()
        rows = np.array(sorted(self._stale), np.intp)
        self._stale.clear()
        unlike = {self._cards[row]: None for row in rows.tolist()}
        places = {cards: place for place, cards in enumerate(unlike)}
        like = np.array([places[self._cards[row]] for row in rows.tolist()], np.intp)
        self._sums[rows] = np.array([self._of_kinds[list(cards)].sum(axis=0) for cards in unlike])[like]
        self._left[rows] = np.array([self._left_of_kinds[list(cards)].sum(axis=0) for cards in unlike])[like]

    def _allow(self, shapes: Shapes) -> None:
        table = self.state.ledger.table
        self._nodes, self._labels = table.version, np.zeros(table.capacity, np.intp)
        wanted = [(place, shape.where) for place, shape in enumerate(shapes.shapes) if isinstance(shape.where, Constraints)]
        met = [(place, node_affinity_met(self.state, where)) for place, where in wanted]
        for _, mask in met:
            _, self._labels = np.unique(self._labels * 2 + mask, return_inverse=True)
        _, first = np.unique(self._labels, return_index=True)
        ours = np.array([shape.device_type == self.device_table.device_type.name for shape in shapes.shapes], bool)
        self._weights = np.tile(ours * shapes.weight, (len(first), 1))
        for place, mask in met:
            self._weights[:, place] *= mask[first]


def _exchanged(cards: Cards, exchange: Exchange) -> Cards:
    """The cards of a node once these are exchanged, in the order of their numbers."""
    found = list(cards)
    for old, new in exchange:
        found.remove(old)
        found.append(new)
    return tuple(sorted(found))


def _longer(array: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    found = np.zeros((rows, *array.shape[1:]))
    found[: len(array)] = array
    return found
