"""How much of the cards of nodes is stranded for the pods that the cluster sees: a pure function of free resources and shapes.

The measure is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and a look ahead. For one shape of pods, free
cards are stranded where the node cannot take such a pod (``now``), and where they would be left over once as many as fit were
there, copies counted by cpu and memory as fractions (``ahead``). A node's stranded cards are the mean over the shapes, by how
often each is seen. A pod goes where it strands the least, or uses up the most of what is stranded anyway.

What a card is to a shape depends on the card alone, and a node sums up its cards: so each kind of card is looked at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pumice.devices.card_policies import Stranding

STEP = 0.03
"""Cards. What differs by less is alike: pods are then laid together by the policy's own order."""
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


class Shapes:
    """Shapes with how often each is seen, as arrays."""

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
        self.of_cpu, self.of_memory = _per_pod(self.cpu), _per_pod(self.memory)
        """Pods for each unit of room, and further ones."""
        self.in_groups = self.count > 1
        self.several = bool(self.in_groups.any())
        self.most = np.where(self.count > 1, 1.0, 1e9)
        """Copies on one card: those of a pod of several cards lie on different ones."""

    def __len__(self) -> int:
        return len(self.shapes)


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


def of_nodes(sums: Floats, left: Floats, whole: Floats, count: Floats, cpu: Floats, memory: Floats, allowed: Bools,
             shapes: Shapes, how: Stranding) -> Floats:  # fmt: skip
    """Return how many cards of each node are stranded. ``sums``: of its cards, (nodes, 4, shapes); ``left``: what is left of
    them; ``whole``: how many of its ``count`` cards nobody is on; ``allowed``: (nodes, shapes), where labels let a shape in."""
    found = (1.0 + how.ahead) * left - how.whole * whole**2 / np.maximum(count, 1)
    if not len(shapes):
        return np.asarray(found)
    now, cards, taken, copies = sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3]
    usable = now * ((cpu[:, None] >= shapes.cpu) & (memory[:, None] >= shapes.memory) & (cards >= shapes.count))
    if how.ahead:
        room = np.minimum(_pods(cpu, shapes.of_cpu), _pods(memory, shapes.of_memory))
        part = np.minimum(room * shapes.count / np.maximum(copies, 1.0), 1.0)
        if shapes.several:
            part *= np.where(shapes.in_groups, np.floor(cards / shapes.count) * shapes.count / np.maximum(cards, 1), 1.0)
        usable += taken * part * how.ahead
    return np.asarray(found - (usable * allowed * shapes.weight).sum(axis=1))


def stranded(nodes: FreeNodes, shapes: Shapes, allowed: Bools, how: Stranding) -> Floats:
    """Return how many cards of each node are stranded, from all that is free there."""
    sums = np.zeros((len(nodes), 4, len(shapes)))
    for card in zip(nodes.total, nodes.free, nodes.cores, nodes.slots, nodes.alone, strict=True):
        sums += of_cards(*card, shapes)
    there = nodes.total > 0
    left = value(nodes.total, nodes.free, nodes.cores).sum(axis=0)
    whole, count = (nodes.alone & there).sum(axis=0), there.sum(axis=0)
    return of_nodes(sums, left, whole, count, nodes.cpu, nodes.memory, allowed, shapes, how)


def _per_pod(asked: Floats) -> tuple[Floats, Floats]:
    return np.where(asked > 0, 1.0 / np.maximum(asked, 1e-6), 0.0), np.where(asked > 0, 0.0, 1e18)


def _pods(room: Floats, asked: tuple[Floats, Floats]) -> Floats:
    """Return for how many pods of each shape there is room, as fractions; of who asks for nothing, for any number."""
    return np.asarray(room[:, None] * asked[0] + asked[1])


FreeCard = tuple[int, int, int, int, bool]
"""Of one card: total, free memory, free cores, free slots, and whether nobody is on it."""


def worth_of(card: FreeCard) -> float:
    """Return what is left of one card, as ``value``."""
    total, free, cores, _, _ = card
    return min(free / total, cores / 100.0)


def tightest(cards: Sequence[FreeCard], part: CardPart) -> list[tuple[FreeCard, FreeCard]] | None:
    """Return the cards that a pod takes, each before and after it: of those with room the ones of which least is left, the first
    of equal ones. None where too few have room."""
    fitting = []
    for card in cards:
        total, free, cores, slots, alone = card
        need = total * part.percent // 100 if part.percent <= 100 else part.memory
        if slots < 1 or free < need or cores < part.cores or cores <= 0 or (part.cores == 100 and not alone):
            continue
        fitting.append((card, (total, free - need, cores - part.cores, slots - 1, False)))
    if len(fitting) < part.count:
        return None
    if part.count == 1:
        return [min(fitting, key=lambda found: worth_of(found[0]))]
    return sorted(fitting, key=lambda found: worth_of(found[0]))[: part.count]


def steps(before: Floats, after: Floats) -> Floats:
    """Return by how many steps fewer cards are stranded; rounded first, so that the order of a sum decides nothing."""
    return np.floor(np.round(before - after, 9) / STEP + 0.5)
