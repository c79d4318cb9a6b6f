"""The figures of a play: what is allocated of the cards and the CPUs beside them, and how much of the free memory is stranded.

Fragmentation is the measure of FGD (Weng et al., USENIX ATC 2023): of the memory that is free on cards, how much the next pod
is expected to find no use for, if it is drawn from those that the play submits. On a node that lacks CPU, memory or enough
cards for a kind of pod, that is all of it, else what lies on cards too small. Cards in MIG mode are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pumice.audit.amounts import requests
from pumice.audit.auditor import Books
from pumice.audit.card_rules import Card, Want, wants

SHAPES = 30
"""The most frequent kinds of pods that fragmentation is measured by."""
AMOUNTS = ("memory", "cores", "shares", "cpu")
"""Of cards: their memory, cores and shares (slots); and the CPUs of the nodes that have cards."""


class Shape(NamedTuple):
    """A kind of pod that asks for cards, and which part of them all it is."""

    weight: float
    cpu: float
    memory: float
    want: Want


class Sample(NamedTuple):
    """The figures of one moment, as parts of all: of ``AMOUNTS``, and the stranded part of the cards' memory."""

    at: float
    waiting: int
    memory: float
    cores: float
    shares: float
    cpu: float
    stranded: float


class Meter:
    """Keeps the means over time while pods arrive, and samples for the pictures."""

    def __init__(self, books: Books, templates: Iterable[Mapping[str, Any]]) -> None:
        self.books, self.shapes = books, shapes_of(templates)
        self.samples: list[Sample] = []
        self.idle = 0.0
        """Hours of cards that nobody held, by the part of their memory."""
        self._at = 0.0
        self._nodes = len(books.nodes)
        self._capacity = books.capacity()
        self._sums: Counter[str] = Counter()
        self._stranded: dict[str, float] = {}

    def advance(self, now: float, arriving: bool) -> None:
        """The time until ``now`` has passed without a change."""
        passed = now - self._at
        if passed > 0:
            self.idle += passed / 3600 * len(self.books.cards) * (1 - self.parts()["memory"])
        if arriving:
            parts = self.parts()
            for name in AMOUNTS:
                self._sums[name] += parts[name] * passed  # type: ignore[assignment]
            self._sums["time"] += passed  # type: ignore[assignment]
        self._at = now

    def touch(self, node: str) -> None:
        """Forget what a node whose pods have changed strands."""
        self._stranded.pop(node, None)

    def parts(self) -> dict[str, float]:
        """Return which part of each amount is held."""
        if len(self.books.nodes) != self._nodes:
            self._nodes, self._capacity = len(self.books.nodes), self.books.capacity()
        return {name: float(self.books.held[name] / (self._capacity[name] or 1)) for name in AMOUNTS}

    def mean(self, name: str) -> float:
        """Return the mean over the time in which pods arrived; where they came at once, what is held then."""
        return self._sums[name] / self._sums["time"] if self._sums["time"] > 0 else self.last(name)

    def last(self, name: str) -> float:
        """Return the part that was held when the last pod had come."""
        return float(getattr(self.samples[-1], name)) if self.samples else self.parts().get(name, 0.0)

    def sample(self, now: float, waiting: int) -> None:
        self.samples.append(Sample(now, waiting, stranded=self.stranded(), **self.parts()))

    def stranded(self) -> float:
        """Return the part of all memory of cards that is free and of no use to the next pod, as expected."""
        for name in self.books.nodes:
            if name not in self._stranded:
                self._stranded[name] = self._on(name)
        lost = sum(self._stranded[name] for name in self.books.nodes)
        return lost / (self._capacity["memory"] or 1)

    def _on(self, name: str) -> float:
        cards = [card for card in self.books.cards_on[name] if not card.mig]
        free = sum(card.total - card.memory for card in cards)
        if not free or not self.shapes:
            return 0.0
        cpu, memory = room(self.books, name)
        return sum(shape.weight * (lost(shape.want, cards) if shape.cpu <= cpu and shape.memory <= memory else free)
                   for shape in self.shapes)  # fmt: skip


def room(books: Books, name: str) -> tuple[float, float]:
    """The free CPUs and memory of a node."""
    have, used = books.have[name], books.used[name]
    return float(have["cpu"] - used["cpu"]), float(have["memory"] - used["memory"])


def lost(want: Want, cards: Sequence[Card]) -> int:
    """The free memory of a node's cards that is of no use to this request."""
    of_use = [card.total - card.memory for card in cards if card.takes(want.of(card), want.cores)]
    return sum(card.total - card.memory for card in cards) - (sum(of_use) if len(of_use) >= want.number else 0)


def shapes_of(templates: Iterable[Mapping[str, Any]]) -> list[Shape]:
    """The most frequent kinds of pods that ask for cards."""
    by_id: dict[int, Mapping[str, Any]] = {}
    counted: Counter[int] = Counter()
    for template in templates:
        by_id[id(template)] = template
        counted[id(template)] += 1
    kinds: Counter[tuple[float, float, Want]] = Counter()
    for key, number in counted.items():
        asked = wants(by_id[key])
        if asked:
            whole = requests(by_id[key])
            kinds[float(whole["cpu"]), float(whole["memory"]), asked[0]] += number
    frequent = kinds.most_common(SHAPES)
    total = sum(number for _, number in frequent)
    return [Shape(number / total, *kind) for kind, number in frequent]
