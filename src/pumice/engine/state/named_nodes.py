"""Which nodes have a card, or a pod with a mark, that an ask names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from pumice.devices.protocol import Marks, WithoutConstraints
from pumice.engine.state.device_table import NodeDevices


class NamedNodes:
    """Worked out when the first such ask comes and kept up to date from then on: most clusters have none, and a list of
    every pod's PodGroup is long."""

    def __init__(self, nodes: Mapping[str, NodeDevices]) -> None:
        self._nodes = nodes
        self._cards: dict[str, str] | None = None
        """UUID to node; None before anybody asked."""
        self._marked: dict[str | int, Counter[str]] | None = None
        """PodGroup or number of a rule to the nodes with pods that carry that mark, and how many."""
        self.marks = 0
        """Pods on any node that carry a mark."""

    def add(self, book: NodeDevices) -> None:
        """A node on which nothing is booked yet."""
        if self._cards is not None:
            self._cards.update(dict.fromkeys(book.by_uuid, book.name))

    def forget(self, book: NodeDevices) -> None:
        for marks in book.marks.values():
            self.note(book, marks, -1)
        if self._cards is not None:
            for uuid in book.by_uuid:
                if self._cards.get(uuid) == book.name:
                    del self._cards[uuid]

    def note(self, book: NodeDevices, marks: Marks, sign: int) -> None:
        """A pod with these marks came or went."""
        self.marks += sign
        if self._marked is not None:
            _count(self._marked, book.name, marks, sign)

    @property
    def asked_for_marks(self) -> bool:
        """Whether somebody has asked where pods with a mark are."""
        return self._marked is not None

    def of(self, split: WithoutConstraints) -> set[str]:
        """Names of the nodes that have a card or a pod which the ask names."""
        found: set[str] = set()
        if split.uuids:
            cards = self._all_cards()
            found.update(cards[uuid] for uuid in split.uuids if uuid in cards)
        if split.group or split.rules:
            marked = self._all_marked()
            for mark in _names(split.group, split.rules):
                found.update(marked.get(mark, ()))
        return found

    def _all_cards(self) -> dict[str, str]:
        if self._cards is None:
            self._cards = {uuid: name for name, book in self._nodes.items() for uuid in book.by_uuid}
        return self._cards

    def _all_marked(self) -> dict[str | int, Counter[str]]:
        if self._marked is None:
            self._marked = {}
            for name, book in self._nodes.items():
                for marks in book.marks.values():
                    _count(self._marked, name, marks, 1)
        return self._marked


def _count(marked: dict[str | int, Counter[str]], name: str, marks: Marks, sign: int) -> None:
    for mark in _names(marks.group, marks.rules):
        nodes = marked.setdefault(mark, Counter())
        nodes[name] += sign
        if not nodes[name]:
            del nodes[name]
            if not nodes:
                del marked[mark]


def _names(group: str, rules: frozenset[int]) -> Iterator[str | int]:
    if group:
        yield group
    yield from rules
