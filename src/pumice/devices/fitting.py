"""Weights of what is stranded, fitted to the pods that the cluster sees: a pure function of their shapes and of the nodes.

Empty nodes of the cluster's kinds are filled in a model by pods as they were seen. What was stranded for each shape on the way is
then weighed so that together it foretells what is left over of each node at the end (least squares, no weight below 0). The
weights are kept where further fills leave less by them than by the policy's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pumice.devices.card_policies import Stranding
from pumice.devices.fragmentation import Bools, Floats, Shape, Shapes, of_cards, of_nodes, steps, usable_of, value

ENOUGH = 500
"""Pods that were seen before anything is fitted; until then the policy's own weights count."""
MOVED = 0.25
"""The part of the pods that has another shape before weights are fitted anew."""
ROUNDS, RUNS = 2, 2
"""Fills by the weights found so far, and how many of each."""
OVER = 1.3
"""Cards that are asked for in a fill, of each that there is."""
PODS = 800
"""About so many are placed in a fill: so many nodes take part, in these bounds."""
FEWEST, MOST = 8, 96
AT_ONCE, SWEEPS_AT_ONCE = 4, 10
"""Pods that come in one step of a fit, and sweeps of its least squares."""
SWEEPS = 300
PARTS = 100
"""Weights are rounded to such parts, so that another machine's last bits change nothing."""


class EmptyNode(Struct, frozen=True, order=True):
    """A node without pods. ``cards``: total memory and slots of each; ``takes``: which of the shapes its labels let in."""

    cards: tuple[tuple[int, int], ...]
    cpu: int
    memory: int
    takes: tuple[bool, ...]


class Fitting:
    """A fit as far as it has come, in steps of a few milliseconds. Its weights are those of the shapes and nodes that it began
    with, however many cycles its steps are spread over; it is data, so a journal's snapshot has it."""

    def __init__(self, shapes: Shapes, nodes: Sequence[EmptyNode], how: Stranding) -> None:
        totals = [total for node in nodes for total, _ in node.cards]
        self.shapes, self._how = shapes, how
        self._demand = _demand(shapes, float(np.median(totals)))
        pods = OVER * len(totals) / len(nodes) / max(float(shapes.weight @ self._demand), 1e-3)
        count = max(FEWEST, min(MOST, int(PODS / pods)))
        listed = sorted(nodes)
        self._nodes = [listed[at * len(listed) // count] for at in range(count)]
        self._own = dict.fromkeys(shapes.shapes, (1.0, how.ahead))
        self._fitted = self._own
        self._found = shapes
        """With the weights found so far."""
        self._round = 0
        self._fills: list[_Fill] = []
        """Those of this round, of which the last one may be under way."""
        self._squares: _LeastSquares | None = None
        self._seen: list[Floats] = []
        self._left: list[float] = []

    def step(self) -> dict[Shape, tuple[float, float]] | None:
        """Go on a little. Return for each shape what counts of it, once that is known: of cards that it cannot use now, and of
        those that will be left over."""
        compares = self._round == ROUNDS
        if self._squares is not None:
            return self._weigh(self._squares.weights) if self._squares.step() else None
        if self._fills and self._fills[-1].step():
            return None
        if len(self._fills) < RUNS * (1 + compares):
            self._begin(self._found if len(self._fills) < RUNS else self.shapes)
            return None
        if compares:
            left = [float(fill.left[:, 0].sum()) for fill in self._fills]
            return self._fitted if sum(left[:RUNS]) < sum(left[RUNS:]) else self._own
        self._seen += [each for fill in self._fills for each in fill.seen]
        self._left += [float(fill.left[node, 0]) for fill in self._fills for node in fill.at]
        if not self._seen:
            return self._own  # nobody found a place
        self._squares = _LeastSquares(np.array(self._seen), np.array(self._left))
        return None

    def _begin(self, by: Shapes) -> None:
        """The next fill of this round; those that are compared see the same pods come."""
        rng = Random(RUNS * self._round + len(self._fills) % RUNS)
        self._fills.append(_Fill(by, rng.sample(self._nodes, len(self._nodes)), self._how).by(rng, self._demand))

    def _weigh(self, found: Floats) -> dict[Shape, tuple[float, float]] | None:
        """Go on to the next round by these weights."""
        weights = np.rint(found * PARTS) / PARTS
        if not weights.any():
            return self._own  # nothing was left
        self._fitted = dict(zip(self.shapes.shapes, zip(*weights.reshape(2, -1).tolist(), strict=True), strict=True))
        self._found = self.shapes.fitted(self._fitted)
        self._round, self._fills, self._squares = self._round + 1, [], None
        return None


def _demand(shapes: Shapes, total: float) -> Floats:
    """Cards that a pod of each shape takes, where a card has so much memory."""
    return np.asarray(shapes.count * np.maximum(shapes.percent + shapes.units / total, shapes.cores / 100))


class _Fill:
    """Nodes in a model of a fill; nobody leaves."""

    def __init__(self, shapes: Shapes, nodes: Sequence[EmptyNode], how: Stranding) -> None:
        width = max(len(node.cards) for node in nodes)
        cards = np.array([[*node.cards, *[(0, 0)] * (width - len(node.cards))] for node in nodes], np.float64)
        self._shapes, self._how = shapes, how
        self._cards = np.stack((cards[:, :, 0], cards[:, :, 0], np.full(cards.shape[:2], 100.0), cards[:, :, 1],
                                np.ones(cards.shape[:2])))  # fmt: skip
        """Of each node's cards total, free memory, free cores, free slots, and whether nobody is there: (5, nodes, cards)."""
        self._free = np.array([(node.cpu, node.memory) for node in nodes], np.float64)
        self._takes = np.array([node.takes for node in nodes], bool)
        self._weights = self._takes * shapes.weight
        self._sums = self._of(self._cards.reshape(5, -1)).reshape(len(nodes), width, 4, -1).sum(axis=1)
        there = self._cards[0] > 0
        self.left = np.stack((value(*self._cards[:3]).sum(axis=1), there.sum(axis=1), there.sum(axis=1)), axis=1).astype(float)
        """As ``of_nodes`` has it."""
        self.seen: list[Floats] = []
        """Cards that were stranded for each shape on a node just before a pod came there, now and ahead one behind the other."""
        self.at: list[int] = []
        """The nodes where that was."""
        self._fewer: dict[int, tuple[Floats, int]] = {}
        self._coming: list[int] = []

    def by(self, rng: Random, demand: Floats) -> _Fill:
        """Let pods come until they have asked for more than there is. ``demand``: the cards that each shape asks for."""
        asked, cards = 0.0, OVER * self.left[:, 2].sum()
        for kind in rng.choices(range(len(self._shapes)), self._shapes.weight.tolist(), k=4 * PODS):
            self._coming.append(kind)
            asked += float(demand[kind])
            if asked >= cards:
                break
        self._coming.reverse()
        return self

    def step(self) -> bool:
        """Let the next few pods come. Return whether there were any."""
        now = self._coming[-AT_ONCE:]
        del self._coming[-AT_ONCE:]
        for kind in reversed(now):
            self._put(kind)
        return bool(now)

    def _put(self, kind: int) -> None:
        known, until = self._fewer.get(kind, (None, 0))
        if known is None:
            known = self._look(kind, np.arange(len(self._free)))
        elif until < len(self.at):
            rows = np.unique(self.at[until:])
            known[rows] = self._look(kind, rows)
        self._fewer[kind] = known, len(self.at)
        node = int(known.argmax())
        if known[node] == -np.inf:
            return
        row = np.array([node])
        left = self.left[node, 0]
        usable = usable_of(self._sums[row], self._free[row], self._takes[row], self._shapes)
        self.seen.append(np.concatenate([self._shapes.weight * (left - each[0]) for each in usable]))
        self.at.append(node)
        _, cards, sums, left_of = self._with(kind, row)
        self._cards[:, node], self._sums[node], self.left[node] = cards[:, 0], sums[0], left_of[0]
        self._free[node] -= (self._shapes.cpu[kind], self._shapes.memory[kind])

    def _look(self, kind: int, rows: NDArray[np.intp]) -> Floats:
        """By how many steps fewer cards are stranded on each of the nodes with such a pod; -inf where it does not fit."""
        may, _, sums, left = self._with(kind, rows)
        free, weights = self._free[rows], self._weights[rows]
        requested = np.array((self._shapes.cpu[kind], self._shapes.memory[kind]))
        may &= self._takes[rows, kind] & (free >= requested).all(axis=1)
        before = of_nodes(self._sums[rows], self.left[rows], free, weights, self._shapes, self._how)
        return np.where(may, steps(before - of_nodes(sums, left, free - requested, weights, self._shapes, self._how)), -np.inf)

    def _with(self, kind: int, rows: NDArray[np.intp]) -> tuple[Bools, Floats, Floats, Floats]:
        """Return which nodes' cards take such a pod, and these with it: cards, their sums, and what is left of them."""
        shapes, found = self._shapes, self._cards[:, rows].copy()
        count, of_cores = int(shapes.count[kind]), shapes.cores[kind]
        total, free, cores, slots, alone = found
        need = np.floor(total * shapes.percent[kind]) + shapes.units[kind]
        fits = (total > 0) & (free >= need) & (cores >= of_cores) & (cores > 0) & (slots >= 1)
        fits &= (of_cores < 100) | (alone > 0)
        sums, left = self._sums[rows].copy(), self.left[rows].copy()
        may = fits.sum(axis=1) >= count
        order = np.argsort(np.where(fits, value(total, free, cores), np.inf), axis=1, kind="stable")
        each = np.arange(len(rows))
        for place in order[:, :count].T:
            before = found[:, each, place]
            after = before.copy()
            after[1] -= need[each, place]
            after[2:4] -= np.array([[of_cores], [1.0]])
            after[4] = 0.0
            np.maximum(after, 0.0, out=after)  # of nodes that do not take it
            found[:, each, place] = after
            sums += self._of(after) - self._of(before)
            left[:, 0] += value(*after[:3]) - value(*before[:3])
            left[:, 1] -= before[4]
        return may, found, sums, left

    def _of(self, cards: Floats) -> Floats:
        total, free, cores, slots, alone = cards
        return of_cards(total, free, cores, slots, alone > 0, self._shapes)


class _LeastSquares:
    """The weights of the columns, none below 0, by which the rows come nearest to what is wanted. The ridge keeps columns small
    that say the same."""

    def __init__(self, rows: Floats, wanted: Floats) -> None:
        self._of_pairs, self._of_wanted = rows.T @ rows, rows.T @ wanted
        self._of_pairs[np.diag_indices_from(self._of_pairs)] += 1e-3 * self._of_pairs.trace() / len(self._of_pairs) + 1e-12
        self.weights = np.zeros(len(self._of_wanted))
        self._left = SWEEPS

    def step(self) -> bool:
        """Some more sweeps. Return whether it is done."""
        for _ in range(SWEEPS_AT_ONCE):
            self._sweep()
        self._left -= SWEEPS_AT_ONCE
        return self._left <= 0

    def _sweep(self) -> None:
        found, of_pairs, of_wanted = self.weights, self._of_pairs, self._of_wanted
        for at in range(len(found)):
            found[at] = max(0.0, found[at] - (of_pairs[at] @ found - of_wanted[at]) / of_pairs[at, at])
