"""Nodes that are alike in their cards, as arrays: their states, and the cards and marks that requests name.

Thousands of nodes are alike, so a device type ranks states: one row of arrays for all nodes with equal cards, equally used. The
row of a state that the last node has left is used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.devices.protocol import Columns, Marks, WithoutConstraints
from pumice.scheduler.state.node_devices import CardFacts, CardUse, NodeDevices

State = tuple[tuple[CardFacts, ...], tuple[CardUse, ...]]
"""Everything of a node's cards that the arrays hold, hashable."""


class CardStates:
    """The states of nodes' cards, numbered. ``ids`` maps a row of the node table to its state; state 0 has no cards."""

    def __init__(self) -> None:
        self.ids: NDArray[np.int32] = np.zeros(16, np.int32)
        self.columns = _empty_columns(16, 8)
        self._types: dict[str, int] = {}
        self._numbers: dict[State, int] = {}
        self._of_id: list[State | None] = [None]
        self._users: list[int] = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        """Return how many numbers were ever given, with those that are free again."""
        return len(self._of_id)

    def __getitem__(self, number: int) -> State | None:
        return self._of_id[number]

    def of(self, row: int) -> State | None:
        return self._of_id[int(self.ids[row])]

    def fit_rows(self, rows: int) -> None:
        """The node table has grown to so many rows."""
        if rows > len(self.ids):
            longer = np.zeros(rows, np.int32)
            longer[: len(self.ids)] = self.ids
            self.ids = longer

    def part(self, chosen: Any) -> Columns:
        """The arrays of some states."""
        c = self.columns
        assert c.state is not None
        return Columns(
            c.total[chosen], c.memory[chosen], c.cores[chosen], c.shares[chosen], c.share_limit[chosen],
            c.flags[chosen], c.mig[chosen], c.type_id[chosen], c.types, c.state[chosen],
        )  # fmt: skip

    def type_id(self, name: str) -> int:
        """The number of a type of cards, which the arrays hold for its name."""
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = len(self._types)
            self.columns = replace(self.columns, types=tuple(self._types))
        return found

    def put(self, row: int, state: State | None) -> None:
        """The node of that row is in this state now, or has no cards."""
        old = int(self.ids[row])
        if state is None:
            self.ids[row] = 0
            self._drop(old)
            return
        if self._of_id[old] == state:
            return
        known = self._numbers.get(state)
        if known is not None:
            self.ids[row] = known
            self._users[known] += 1
            self._drop(old)
        elif old and self._users[old] == 1:  # nobody else is in the old state: it becomes the new one
            before = self._of_id[old]
            assert before is not None
            del self._numbers[before]
            self._fill(old, state, before)
        else:
            self._drop(old)
            number = self._free.pop() if self._free else self._new_id()
            self._users[number] = 1
            self._fill(number, state, None)
            self.ids[row] = number

    def _drop(self, number: int) -> None:
        if not number:
            return
        self._users[number] -= 1
        if not self._users[number]:
            state = self._of_id[number]
            assert state is not None
            del self._numbers[state]
            self._of_id[number] = None
            self.columns.flags[number] = False
            self._free.append(number)

    def _new_id(self) -> int:
        number = len(self._of_id)
        self._of_id.append(None)
        self._users.append(0)
        if number >= len(self.columns.total):
            self._grow(2 * number, self.columns.total.shape[1])
        return number

    def _fill(self, number: int, state: State, before: State | None) -> None:
        """Write a state's arrays; with ``before`` only the cards that differ from it."""
        self._of_id[number] = state
        self._numbers[state] = number
        facts, used = state
        if len(facts) > self.columns.total.shape[1]:
            self._grow(len(self.columns.total), len(facts))
        c = self.columns
        assert c.state is not None
        if before is None or before[0] != facts:
            for array in (c.total, c.share_limit, c.memory, c.cores, c.shares):
                array[number] = 0
            c.flags[number] = c.mig[number] = False
            c.type_id[number] = c.state[number] = -1
            for place, (total, limit, open_card, mig, kind) in enumerate(facts):
                c.total[number, place], c.share_limit[number, place] = total, limit
                c.flags[number, place], c.mig[number, place] = open_card, mig
                c.type_id[number, place] = kind
            before = None
        for place, values in enumerate(used):
            if before is None or before[1][place] != values:
                (c.memory[number, place], c.cores[number, place], c.shares[number, place],
                 c.state[number, place]) = values  # fmt: skip

    def _grow(self, rows: int, cards: int) -> None:
        bigger = _empty_columns(rows, cards)
        have_rows, have_cards = self.columns.total.shape
        for name in ("total", "memory", "cores", "shares", "share_limit", "flags", "mig", "type_id", "state"):
            getattr(bigger, name)[:have_rows, :have_cards] = getattr(self.columns, name)
        self.columns = replace(bigger, types=self.columns.types)


def _empty_columns(rows: int, cards: int) -> Columns:
    def zeros(kind: Any) -> NDArray[Any]:
        return np.zeros((rows, cards), kind)

    return Columns(
        zeros(np.int64), zeros(np.int64), zeros(np.int64), zeros(np.int64), zeros(np.int64), zeros(np.bool_),
        zeros(np.bool_), np.full((rows, cards), -1, np.int32), (), np.full((rows, cards), -1, np.int32),
    )  # fmt: skip


# -- nodes with a card, or a pod with a mark, that a request names ------------------------------------------------------


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

    def add(self, node_devices: NodeDevices) -> None:
        """A node on which nothing is booked yet."""
        if self._cards is not None:
            self._cards.update(dict.fromkeys(node_devices.by_uuid, node_devices.name))

    def forget(self, node_devices: NodeDevices) -> None:
        for marks in node_devices.marks.values():
            self.note(node_devices, marks, -1)
        if self._cards is not None:
            for uuid in node_devices.by_uuid:
                if self._cards.get(uuid) == node_devices.name:
                    del self._cards[uuid]

    def note(self, node_devices: NodeDevices, marks: Marks, sign: int) -> None:
        """A pod with these marks came or went."""
        self.marks += sign
        if self._marked is not None:
            _count(self._marked, node_devices.name, marks, sign)

    @property
    def asked_for_marks(self) -> bool:
        """Return whether somebody has asked where pods with a mark are."""
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
            self._cards = {uuid: name for name, node_devices in self._nodes.items() for uuid in node_devices.by_uuid}
        return self._cards

    def _all_marked(self) -> dict[str | int, Counter[str]]:
        if self._marked is None:
            self._marked = {}
            for name, node_devices in self._nodes.items():
                for marks in node_devices.marks.values():
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
