"""Stranded parts of the nodes' cards for the pods that the cluster sees: a pure function of free resources and shapes.

The measure is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and a look ahead. For one shape of pods, free
cards are stranded where the node cannot take such a pod (``now``), and where they would be left over once as many as fit were
there, copies counted by cpu and memory as fractions (``ahead``). A node's stranded cards are the mean over the shapes, by how
often each is seen. A pod goes where it strands the least, or uses up the most of what is stranded anyway.

What a card is to a shape depends on the card alone, and a node sums up its cards: so each kind of card is looked at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import floor

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pumice.devices.card_policies import Stranding

STEP = 0.03
"""Cards. What differs by less is alike: pods are then laid together by the policy's own order."""
ENOUGH = 1 - 1e-13
"""Pods for which there is cpu and memory, from which on one more fits: 1 but for rounding."""
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class CardPart(Struct, frozen=True):
    """The request of one pod to cards: so many, and of each ``percent`` of its memory where that is at most 100, else ``memory``
    units; and ``cores`` percent."""

    count: int
    memory: int
    percent: int
    cores: int


class Shape(Struct, frozen=True):
    """The request of a pod, as far as it decides which nodes could take it. ``where``: the labels that it wants of its node."""

    device_type: str
    part: CardPart
    cpu: int
    memory: int
    where: Hashable = None


@dataclass(frozen=True, slots=True)
class FreeNodes:
    """Free resources of nodes: cpu and memory (nodes,), and of their cards (cards, nodes). Closed and absent cards have total
    0."""

    cpu: Floats
    memory: Floats
    total: Floats
    free: Floats
    cores: Floats
    slots: Floats
    alone: Bools
    """True where nobody is on the card."""

    def __getitem__(self, chosen: NDArray[np.intp]) -> FreeNodes:
        return FreeNodes(
            self.cpu[chosen], self.memory[chosen], self.total[:, chosen], self.free[:, chosen], self.cores[:, chosen],
            self.slots[:, chosen], self.alone[:, chosen],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.cpu)


class Fit(Struct, frozen=True):
    """The weights of each shape: ``now`` of cards that it cannot use, ``ahead`` of those that will be left over; and ``left``,
    the sum of both over all shapes, by how often each is seen."""

    now: Floats
    ahead: Floats
    left: float


class Shapes:
    """Shapes with how often each is seen, as arrays."""

    fit: Fit | None = None
    """Weights of their own; without any all count alike, by the policy."""

    def __init__(self, seen: Sequence[tuple[Shape, float]]) -> None:
        self.shapes = tuple(shape for shape, _ in seen)
        parts = [shape.part for shape in self.shapes]
        weight = np.array([often for _, often in seen], np.float64)
        self.weight = weight / max(weight.sum(), 1e-300)
        self.cpu = np.array([shape.cpu for shape in self.shapes], np.float64)
        self.memory = np.array([shape.memory for shape in self.shapes], np.float64)
        self.count = np.array([part.count for part in parts], np.float64)
        self.percent = np.array([part.percent / 100 if part.percent <= 100 else 0.0 for part in parts], np.float64)
        self.units = np.array([0.0 if part.percent <= 100 else float(part.memory) for part in parts], np.float64)
        self.cores = np.array([part.cores for part in parts], np.float64)
        requested = np.stack((self.cpu, self.memory))
        self.per_unit = np.where(requested > 0, 1.0 / np.maximum(requested, 1e-6), 0.0)
        """Pods for each unit of cpu and memory, (2, shapes)."""
        self.further = np.where(requested > 0, 0.0, 1e18)
        """Pods beside those: any number of those that ask for none."""
        self.in_groups = self.count > 1
        self.several = bool(self.in_groups.any())
        self.most = np.where(self.count > 1, 1.0, 1e9)
        """Copies on one card: those of a pod of several cards lie on different ones."""

    def __len__(self) -> int:
        return len(self.shapes)

    def fitted(self, weights: Mapping[Shape, tuple[float, float]]) -> Shapes:
        """Return the same with weights of their own; a shape that has none counts as the others do on the mean."""
        found = copy(self)
        known = np.array([weights.get(shape, (np.nan, np.nan)) for shape in self.shapes]).reshape(-1, 2)
        mean = np.array(list(weights.values())).mean(axis=0)
        now, ahead = np.where(np.isnan(known), mean, known).T
        found.fit = Fit(now, ahead, float(self.weight @ (now + ahead)))
        return found


def value(total: Floats, free: Floats, cores: Floats) -> Floats:
    """Return what is left of cards, in cards: the scarcer of memory and cores."""
    return np.minimum(free / np.maximum(total, 1.0), cores / 100.0) * (total > 0)


def of_cards(total: Floats, free: Floats, cores: Floats, slots: Floats, alone: Bools, shapes: Shapes) -> Floats:
    """Return for each card and shape what a node sums up of its cards, (cards, 4, shapes): what is left of a card that takes such
    a pod, whether it does, what as many as fit would take of it, and how many that are."""
    left = value(total, free, cores)[:, None]
    total, free, cores = total[:, None], free[:, None], cores[:, None]
    need = np.maximum(np.floor(total * shapes.percent) + shapes.units, 1e-6)
    copies = np.floor(free / need)
    np.minimum(copies, np.where(shapes.cores > 0, np.floor(cores / np.maximum(shapes.cores, 1.0)), np.inf), out=copies)
    np.minimum(copies, slots[:, None], out=copies)
    np.minimum(copies, shapes.most, out=copies)
    copies *= (total > 0) & (cores > 0) & ((shapes.cores < 100) | alone[:, None])
    fits = copies > 0
    taken = left - value(total, free - copies * need, cores - copies * shapes.cores)
    return np.stack((left * fits, fits, taken, copies), axis=1)


def each_alone(of_kinds: Floats, left: Floats, weights: Floats, shapes: Shapes, how: Stranding) -> tuple[Floats, Floats]:
    """Return for each kind of card how much is stranded of it, (kinds, labels), and for how much cpu and memory it has pods,
    (kinds, 2). Of a node that has as much for all of its cards, their sums are stranded, whole cards apart; pods of several
    cards see to it that this does not hold. ``weights``: (labels, shapes)."""
    fit = shapes.fit
    if fit is None:
        usable, all_of = (of_kinds[:, 0] + how.ahead * of_kinds[:, 2]) @ weights.T, 1.0 + how.ahead
    else:
        usable, all_of = (fit.now * of_kinds[:, 0] + fit.ahead * of_kinds[:, 2]) @ weights.T, fit.left
    need = np.stack([(of_kinds[:, 3] * requested).max(axis=1, initial=0.0) for requested in (shapes.cpu, shapes.memory)], axis=1)
    return all_of * left[:, None] - usable, np.where(shapes.several, np.inf, need)


def of_nodes(sums: Floats, left: Floats, free: Floats, weights: Floats, shapes: Shapes, how: Stranding) -> Floats:
    """Return how many cards of each node are stranded. ``sums``: of its cards, (nodes, 4, shapes); ``left``: what is left of
    them, how many of them nobody is on, and how many there are, (nodes, 3); ``free``: cpu and memory, (nodes, 2); ``weights``:
    of the shapes that labels let in, (nodes, shapes)."""
    fit = shapes.fit
    found = (1.0 + how.ahead if fit is None else fit.left) * left[:, 0] - how.whole * left[:, 1] ** 2 / np.maximum(left[:, 2], 1)
    if not len(shapes):
        return np.asarray(found)
    room = (free[:, :, None] * shapes.per_unit + shapes.further).min(axis=1)
    usable = sums[:, 0] * ((room >= ENOUGH) & (sums[:, 1] >= shapes.count))
    if fit is not None:
        usable *= fit.now
    if how.ahead:
        part = _part(sums, room, shapes)
        part *= how.ahead if fit is None else fit.ahead
        usable += part
    usable *= weights
    return np.asarray(found - usable.sum(axis=1))


def _part(sums: Floats, room: Floats, shapes: Shapes) -> Floats:
    """Return what as many as fit would take of the nodes' cards. ``room``: pods that cpu and memory suffice for, written over."""
    room *= shapes.count
    room /= np.maximum(sums[:, 3], 1.0)
    part = np.minimum(room, 1.0, out=room)
    if shapes.several:
        cards = sums[:, 1]
        part *= np.where(shapes.in_groups, np.floor(cards / shapes.count) * shapes.count / np.maximum(cards, 1), 1.0)
    part *= sums[:, 2]
    return part


def usable_of(sums: Floats, free: Floats, allowed: Bools, shapes: Shapes) -> tuple[Floats, Floats]:
    """Return the cards of each node that each shape can use now, and what as many as fit would take of them, (nodes, shapes)."""
    room = (free[:, :, None] * shapes.per_unit + shapes.further).min(axis=1)
    now = sums[:, 0] * ((room >= ENOUGH) & (sums[:, 1] >= shapes.count))
    return now * allowed, _part(sums, room, shapes) * allowed


def stranded(nodes: FreeNodes, shapes: Shapes, allowed: Bools, how: Stranding) -> Floats:
    """Return how many cards of each node are stranded, from all that is free there."""
    sums = np.zeros((len(nodes), 4, len(shapes)))
    for card in zip(nodes.total, nodes.free, nodes.cores, nodes.slots, nodes.alone, strict=True):
        sums += of_cards(*card, shapes)
    there = nodes.total > 0
    left = value(nodes.total, nodes.free, nodes.cores).sum(axis=0)
    cards = np.stack((left, (nodes.alone & there).sum(axis=0), there.sum(axis=0)), axis=1)
    return of_nodes(sums, cards, np.stack((nodes.cpu, nodes.memory), axis=1), allowed * shapes.weight, shapes, how)


FreeCard = tuple[int, int, int, int, bool]
"""Of one card: total, free memory, free cores, free slots, and whether nobody is on it."""


def worth_of(card: FreeCard) -> float:
    """Return what is left of one card, as ``value``."""
    total, free, cores, _, _ = card
    return min(free / total, cores / 100.0)


def with_share(card: FreeCard, part: CardPart) -> FreeCard | None:
    """Return the card once the share of such a pod is on it; None where it does not take that."""
    total, free, cores, slots, alone = card
    need = total * part.percent // 100 if part.percent <= 100 else part.memory
    if slots < 1 or free < need or cores < part.cores or cores <= 0 or (part.cores == 100 and not alone):
        return None
    return total, free - need, cores - part.cores, slots - 1, False


def tightest(left: Sequence[float | None], count: int) -> list[int] | None:
    """Return the places of the cards that a pod takes: those of which least is left, the first of equal ones. ``left``: what is
    left of each card, None where it does not take a share. None where too few do."""
    fitting = [(worth, place) for place, worth in enumerate(left) if worth is not None]
    if len(fitting) < count:
        return None
    return [min(fitting)[1]] if count == 1 else [place for _, place in sorted(fitting)[:count]]


def steps(fewer: Floats) -> Floats:
    """Return how many steps so many cards fewer are; rounded first, so that the order of a sum decides nothing."""
    return np.floor(np.rint(fewer * 1e9) / 1e9 / STEP + 0.5)


def step(fewer: float) -> float:
    """Return the same of one node."""
    return float(floor(round(fewer * 1e9) / 1e9 / STEP + 0.5))
