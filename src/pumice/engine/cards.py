"""The books of one device family: per node its cards, what is booked on each, and the same as arrays.

Only the ledger writes here. ``Usage`` rows are exact (who holds what); ``columns`` repeat their sums so that a family
can rank all nodes at once. Both are changed by the same two functions, ``charge`` and ``discharge``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.families.seam import Columns, Family, Inventory, Marks, NodeCards
from pumice.model.cards import Card, Grant, Mode, Piece, Slot, Usage
from pumice.model.refusal import Refusal

NO_MARKS = Marks()


@dataclass(slots=True)
class NodeBook:
    """One node's cards. ``marks`` maps pod uid to its marks, ``doubts`` to what its annotations claim and cannot be true:
    such a card takes no new pods while the pod is there (D-25)."""

    name: str
    inventory: Inventory
    usages: list[Usage]
    marks: dict[str, Marks] = field(default_factory=dict)
    doubts: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)
    by_uuid: dict[str, int] = field(default_factory=dict)
    version: int = 0
    """Raised by every change of usage (rendered metrics are kept by it)."""

    def quarantined(self) -> dict[int, str]:
        """Card index to the first doubt about it; a doubt that names no card of ours closes them all."""
        found: dict[int, str] = {}
        for doubts in self.doubts.values():
            for doubt in doubts:
                place = self.by_uuid.get(doubt.field)
                for index in range(len(self.usages)) if place is None else (place,):
                    found.setdefault(index, doubt.text)
        return found


class FamilyBook:
    """All nodes of one family."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.nodes: dict[str, NodeBook] = {}
        self._rows: dict[str, int] = {}
        self._types: dict[str, int] = {}
        self.columns = _empty_columns(16, 8)

    # -- nodes --------------------------------------------------------------------------------------------------

    def put(self, name: str, row: int, inventory: Inventory | None, rows: int) -> bool:
        """Set a node's inventory. True when it changed: usage is then empty and must be charged again."""
        old = self.nodes.get(name)
        if inventory is None:
            if old is None:
                return False
            self.remove(name)
            return True
        if old is not None and old.inventory == inventory and self._rows.get(name) == row:
            return False
        book = NodeBook(name, inventory, [Usage() for _ in inventory.cards])
        book.by_uuid = {card.uuid: place for place, card in enumerate(inventory.cards)}
        self.nodes[name], self._rows[name] = book, row
        self.fit_rows(rows, len(inventory.cards))
        self._write_facts(row, inventory.cards)
        for place, usage in enumerate(book.usages):
            self._write_usage(name, place, usage)
        return True

    def remove(self, name: str) -> None:
        self.nodes.pop(name, None)
        row = self._rows.pop(name, None)
        if row is not None:
            self._write_facts(row, ())

    def view(self, name: str, *, without: Iterable[str] = (), plus: Mapping[str, Grant] | None = None) -> NodeCards:
        """One node as ``Family.fit`` sees it. ``without`` and ``plus`` make the future view of pipelining: as if those
        pods were gone and those grants there."""
        book = self.nodes[name]
        if without or plus:
            book = _future(book, without, plus or {})
        exclusive: dict[int, frozenset[int]] = {}
        groups: dict[int, frozenset[str]] = {}
        if book.marks:
            for place, usage in enumerate(book.usages):
                marks = [(uid, book.marks[uid]) for uid in usage.holders if uid in book.marks]
                rules = frozenset(rule for _, mark in marks for rule in mark.rules)
                held = frozenset(
                    mark.group
                    for uid, mark in marks
                    if mark.group and any(p.memory or p.cores for p in usage.holders[uid])
                )
                index = book.inventory.cards[place].index
                if rules:
                    exclusive[index] = rules
                if held:
                    groups[index] = held
        return NodeCards(name, book.inventory, book.usages, exclusive, groups, book.quarantined() if book.doubts else {})

    # -- usage --------------------------------------------------------------------------------------------------

    def charge(self, uid: str, grant: Grant, marks: Marks = NO_MARKS) -> None:
        """Book a grant. Pieces on cards that are not registered (any more) are not charged anywhere."""
        book = self.nodes.get(grant.node)
        if book is None:
            return
        by_card = _by_card(book, grant)
        for place, pieces in by_card.items():
            _book(book.usages[place], uid, pieces)
            self._write_usage(grant.node, place, book.usages[place])
        if by_card and marks != NO_MARKS:
            book.marks[uid] = marks
        if grant.doubts:
            book.doubts[uid] = grant.doubts
            self._write_flags(book)

    def discharge(self, uid: str, grant: Grant) -> None:
        """The exact reverse of ``charge``."""
        book = self.nodes.get(grant.node)
        if book is None:
            return
        for place, usage in enumerate(book.usages):
            if uid in usage.holders:
                _unbook(usage, uid)
                self._write_usage(grant.node, place, usage)
        book.marks.pop(uid, None)
        if book.doubts.pop(uid, None) is not None:
            self._write_flags(book)

    def _write_flags(self, book: NodeBook) -> None:
        row, closed = self._rows[book.name], book.quarantined()
        for place, card in enumerate(book.inventory.cards):
            self.columns.flags[row, place] = card.healthy and not card.blocked and place not in closed

    # -- arrays -------------------------------------------------------------------------------------------------

    def rows(self, rows: NDArray[np.intp] | None) -> Columns:
        """The arrays of those rows (all rows: the arrays themselves, not to be changed)."""
        c = self.columns
        if rows is None:
            return c
        return Columns(
            c.total[rows], c.memory[rows], c.cores[rows], c.shares[rows], c.share_limit[rows], c.flags[rows],
            c.mig[rows], c.type_id[rows], c.types, None if c.state is None else c.state[rows],
        )  # fmt: skip

    def has_cards(self, rows: NDArray[np.intp] | None) -> NDArray[np.bool_]:
        ids = self.columns.type_id if rows is None else self.columns.type_id[rows]
        return np.asarray((ids >= 0).any(axis=1))

    def fit_rows(self, rows: int, cards: int = 0) -> None:
        """Make the arrays at least that large (the node table has grown)."""
        have_rows, have_cards = self.columns.total.shape
        if rows <= have_rows and cards <= have_cards:
            return
        bigger = _empty_columns(max(rows, have_rows), max(have_cards, cards))
        for name in ("total", "memory", "cores", "shares", "share_limit", "flags", "mig", "type_id", "state"):
            getattr(bigger, name)[:have_rows, :have_cards] = getattr(self.columns, name)
        self.columns = replace(bigger, types=self.columns.types)

    def _write_facts(self, row: int, cards: tuple[Card, ...]) -> None:
        c = self.columns
        if row >= len(c.total):
            return
        for array in (c.total, c.memory, c.cores, c.shares, c.share_limit):
            array[row] = 0
        c.flags[row] = c.mig[row] = False
        c.type_id[row] = -1
        assert c.state is not None
        c.state[row] = -1
        for place, card in enumerate(cards):
            c.total[row, place] = card.total
            c.share_limit[row, place] = card.shares
            c.flags[row, place] = card.healthy and not card.blocked
            c.mig[row, place] = card.mode is Mode.MIG
            c.type_id[row, place] = self._type_id(card.type)

    def _write_usage(self, node: str, place: int, usage: Usage) -> None:
        row, c = self._rows[node], self.columns
        self.nodes[node].version += 1
        c.memory[row, place] = usage.memory
        c.cores[row, place] = usage.cores
        c.shares[row, place] = usage.shares
        assert c.state is not None
        c.state[row, place] = self.family.card_state(place, usage, self.nodes[node].inventory)

    def _type_id(self, name: str) -> int:
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = len(self._types)
            self.columns = replace(self.columns, types=tuple(self._types))
        return found


def _by_card(book: NodeBook, grant: Grant) -> dict[int, tuple[Piece, ...]]:
    found: dict[int, tuple[Piece, ...]] = {}
    for piece in grant.pieces:
        place = book.by_uuid.get(piece.uuid)
        if place is not None:
            found[place] = (*found.get(place, ()), piece)
    return found


def _book(usage: Usage, uid: str, pieces: tuple[Piece, ...]) -> None:
    usage.holders[uid] = (*usage.holders.get(uid, ()), *pieces)
    for piece in pieces:
        usage.shares += 1
        usage.memory += piece.memory
        usage.cores += piece.cores
        if piece.slot is not None:
            usage.slots.add(piece.slot.number)
            usage.group = piece.slot.group


def _unbook(usage: Usage, uid: str) -> None:
    for piece in usage.holders.pop(uid):
        usage.shares -= 1
        usage.memory -= piece.memory
        usage.cores -= piece.cores
    slots: list[Slot] = [p.slot for held in usage.holders.values() for p in held if p.slot is not None]
    usage.slots = {slot.number for slot in slots}
    usage.group = slots[-1].group if slots else ""  # an emptied card is free for any geometry again (D-22)


def _future(book: NodeBook, without: Iterable[str], plus: Mapping[str, Grant]) -> NodeBook:
    usages = [
        Usage(u.shares, u.memory, u.cores, u.group, set(u.slots), dict(u.holders)) for u in book.usages
    ]
    copy = NodeBook(book.name, book.inventory, usages, dict(book.marks), dict(book.doubts), book.by_uuid)
    for uid in without:
        for usage in usages:
            if uid in usage.holders:
                _unbook(usage, uid)
    for uid, grant in plus.items():
        for place, pieces in _by_card(copy, grant).items():
            _book(usages[place], uid, pieces)
    return copy


def _empty_columns(rows: int, cards: int) -> Columns:
    def zeros(kind: Any) -> NDArray[Any]:
        return np.zeros((rows, cards), kind)

    return Columns(
        zeros(np.int64), zeros(np.int64), zeros(np.int64), zeros(np.int64), zeros(np.int64), zeros(np.bool_),
        zeros(np.bool_), np.full((rows, cards), -1, np.int32), (), np.full((rows, cards), -1, np.int32),
    )  # fmt: skip
