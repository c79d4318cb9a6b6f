"""How much of the cards of nodes is stranded for the pods that the cluster sees: a pure function of free resources and shapes.

The measure is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and a look ahead. For one shape of pods, free
cards are stranded where the node cannot take such a pod (``now``), and where they would be left over once as many as fit were
there, copies counted by cpu and memory as fractions (``ahead``). A node's stranded cards are the mean over the shapes, by how
often each is seen. A pod goes where it strands the least, or uses up the most of what is stranded anyway.

Arrays are (cards, nodes) and (nodes, shapes): sums over the few cards of a node go over the first axis, which is quicker.
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
AT_ONCE = 1 << 18
"""Elements of an array, so that it stays in the processor's cache."""
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


def together(first: FreeNodes, second: FreeNodes) -> FreeNodes:
    """Return both, one behind the other."""
    return FreeNodes(
        np.concatenate((first.cpu, second.cpu)), np.concatenate((first.memory, second.memory)),
        np.concatenate((first.total, second.total), axis=1), np.concatenate((first.free, second.free), axis=1),
        np.concatenate((first.cores, second.cores), axis=1), np.concatenate((first.slots, second.slots), axis=1),
        np.concatenate((first.alone, second.alone), axis=1),
    )  # fmt: skip


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
        self.most = np.where(self.count > 1, 1.0, 1e9)
        """Copies on one card: those of a pod of several cards lie on different ones."""

    def __len__(self) -> int:
        return len(self.shapes)


def value(total: Floats, free: Floats, cores: Floats) -> Floats:
    """Return what is left of cards, in cards: the scarcer of memory and cores."""
    return np.minimum(free / np.maximum(total, 1.0), cores / 100.0) * (total > 0)


def stranded(nodes: FreeNodes, shapes: Shapes, allowed: Bools, how: Stranding) -> Floats:
    """Return how many cards of each node are stranded. ``allowed``: (nodes, shapes), where labels let the shape in."""
    most = max(1, AT_ONCE // (max(1, len(shapes)) * max(1, len(nodes.total))))
    if len(nodes) > most:
        parts = [np.arange(begin, min(begin + most, len(nodes))) for begin in range(0, len(nodes), most)]
        return np.concatenate([stranded(nodes[part], shapes, allowed[part], how) for part in parts])
    left = value(nodes.total, nodes.free, nodes.cores)
    whole = (nodes.alone & (nodes.total > 0)).sum(axis=0)
    found = (1.0 + how.ahead) * left.sum(axis=0) - how.whole * whole**2 / np.maximum((nodes.total > 0).sum(axis=0), 1)
    if not len(shapes):
        return np.asarray(found)
    total, free, cores = nodes.total[:, :, None], nodes.free[:, :, None], nodes.cores[:, :, None]
    need = np.maximum(np.floor(total * shapes.percent) + shapes.units, 1e-6)
    copies = np.floor(free / need)
    if shapes.cores.any():
        by_cores = np.where(shapes.cores > 0, np.floor(cores / np.maximum(shapes.cores, 1.0)), np.inf)
        np.minimum(copies, by_cores, out=copies)
        copies *= (shapes.cores < 100) | nodes.alone[:, :, None]
    np.minimum(copies, nodes.slots[:, :, None], out=copies)
    np.minimum(copies, shapes.most, out=copies)
    copies *= (total > 0) & (cores > 0)
    fits = copies > 0
    cards = fits.sum(axis=0)
    room = (nodes.cpu[:, None] >= shapes.cpu) & (nodes.memory[:, None] >= shapes.memory) & allowed
    usable = (left[:, :, None] * fits).sum(axis=0) * (room & (cards >= shapes.count))
    if how.ahead:
        taken = left[:, :, None] - value(total, free - copies * need, cores - copies * shapes.cores)
        in_groups = np.floor(cards / shapes.count) * shapes.count / np.maximum(cards, 1)
        pods = np.maximum(copies.sum(axis=0) / shapes.count, 1e-6)
        part = np.minimum(_pods(nodes.cpu, shapes.cpu), _pods(nodes.memory, shapes.memory)) / pods
        usable += (
            how.ahead * taken.sum(axis=0) * np.where(shapes.count > 1, in_groups, 1.0) * np.minimum(part, 1.0) * allowed
        )
    return np.asarray(found - (usable * shapes.weight).sum(axis=1))


def _pods(room: Floats, asked: Floats) -> Floats:
    """Return for how many pods of each shape there is room, as fractions; of who asks for nothing, for any number."""
    return np.asarray(room[:, None] / np.maximum(asked, 1e-6) + np.where(asked > 0, 0.0, 1e18))


def placed(nodes: FreeNodes, cpu: int, memory: int, part: CardPart | None) -> tuple[FreeNodes, Bools]:
    """Return the nodes with one pod more on each, on the tightest cards that take it, and which nodes have such cards."""
    cards = len(nodes.total)
    free, cores, slots, alone = nodes.free.copy(), nodes.cores.copy(), nodes.slots.copy(), nodes.alone.copy()
    may = np.ones(len(nodes), bool)
    if part is not None:
        units = (
            np.floor(nodes.total * (part.percent / 100))
            if part.percent <= 100
            else np.full_like(free, float(part.memory))
        )
        open_cards = (nodes.total > 0) & (slots > 0) & (free >= units)
        open_cards &= cores >= part.cores if part.cores else cores > 0
        if part.cores == 100:
            open_cards &= alone
        tight = np.where(open_cards, -value(nodes.total, free, cores), -np.inf)
        every = np.arange(len(nodes))
        for _ in range(min(part.count, cards + 1)):
            card = tight.argmax(axis=0) if cards else np.zeros(len(nodes), np.intp)
            may &= (tight[card, every] > -np.inf) if cards else False
            if not may.any():
                break
            tight[card, every] = -np.inf
            free[card, every] -= units[card, every]
            cores[card, every] -= part.cores
            slots[card, every] -= 1
            alone[card, every] = False
    return FreeNodes(nodes.cpu - cpu, nodes.memory - memory, nodes.total, free, cores, slots, alone), may


def steps(before: Floats, after: Floats) -> Floats:
    """Return by how many steps fewer cards are stranded; rounded first, so that the order of a sum decides nothing."""
    return np.floor(np.round(before - after, 9) / STEP + 0.5)
