"""The table of nodes: one row per node, one column per resource dimension, as arrays; and which images nodes have.

Rows of vanished nodes are used again. Every change of a row is appended to a log, so that whoever keeps something per
row (a class of pods) looks at the changed rows only. ``gains`` holds the changes by which a row can only have become
*better* for somebody: the event that unschedulable classes wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.state.resources import CPU, HUGE, MEMORY, PODS, SPREAD_CPU, SPREAD_MEMORY, Vector, vector
from pumice.wire.names import HANDED_OUT
from pumice.wire.objects import Container, Meta, Node, NodeImage, NodeSpec, NodeStatus, PodSpec, Quantities, Taint

Rows = NDArray[np.intp]
Sums = NDArray[np.int64]

PLAIN: Final = 2**50
"""Amounts up to here are added as they are: a thousand of them stay inside 63 bits."""

UNTAINTED: Final[tuple[bool, tuple[Taint, ...]]] = (False, ())
BY_CLAIM: Final = 2**40
"""The amount of a resource of which a node says nothing and that can be had by claim there: the search for devices decides."""
FIRST_DIMENSIONS: Final = (CPU, MEMORY, PODS, SPREAD_CPU, SPREAD_MEMORY)


class ChangeLog:
    """An append-only list of row numbers that is read by cursor and trimmed when it grows."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self._rows: list[int] = []
        self._base = 0
        self._limit = limit

    @property
    def end(self) -> int:
        return self._base + len(self._rows)

    def append(self, row: int) -> None:
        self._rows.append(row)
        if len(self._rows) > self._limit:
            drop = len(self._rows) // 2
            del self._rows[:drop]
            self._base += drop

    def since(self, cursor: int) -> list[int] | None:
        """Distinct rows changed since ``cursor``; None when the log no longer reaches back that far."""
        if cursor < self._base:
            return None
        tail = self._rows[cursor - self._base :]
        return tail if len(tail) < 2 else list(dict.fromkeys(tail))


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The fields of a Node object that are no numbers."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    written: bytes
    """The rest of what is read of the object, packed: five thousand of them are kept only to be compared and read again."""

    @property
    def node(self) -> Node:
        name, labels, annotations, cordoned, taints, allocatable, capacity, reports = _unpack(self.written)
        return Node(Meta(name, labels=labels, annotations=annotations), NodeSpec(cordoned, taints),
                    NodeStatus(allocatable, capacity), reports)  # fmt: skip


Written = tuple[str, dict[str, str], dict[str, str], bool, list[Taint], Quantities, Quantities, dict[str, str]]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Written).decode


def node_bytes(node: Node) -> bytes:
    """All that is read of a Node object; equal bytes mean that an update changed nothing of it. What the plugin has handed out
    changes with every pod, and is kept elsewhere."""
    meta, spec, status = node.metadata, node.spec, node.status
    notes = meta.annotations
    if HANDED_OUT in notes:
        notes = {key: text for key, text in notes.items() if key != HANDED_OUT}
    written: Written = (
        meta.name, meta.labels, notes, spec.unschedulable, spec.taints, status.allocatable, status.capacity, node.reports
    )  # fmt: skip
    return _pack(written)


class NodeTable:
    """Arrays over nodes. ``alloc``, ``used``, ``releasing`` and ``pipelined`` have shape (capacity, dimensions)."""

    def __init__(self) -> None:
        self.dims: dict[str, int] = {name: i for i, name in enumerate(FIRST_DIMENSIONS)}
        self.row_of: dict[str, int] = {}
        self.facts: list[NodeFacts | None] = []
        self.revisions: list[int] = []
        """Per row how often it has changed."""
        self.changes = ChangeLog()
        self.gains = ChangeLog()
        self.total: Vector = {}
        self.version = 0
        """Raised whenever the set of nodes or a node's facts change."""
        self.reliefs = 0
        """Raised whenever some row may fit more than before, taking back a trial included."""
        self.releasing_rows: dict[int, int] = {}
        """Rows with something that is being released, and how many pods that is."""
        self._beyond: dict[tuple[str, int, int], int] = {}
        """Per array, row and column the sum of the amounts above ``PLAIN``."""
        self._free: list[int] = []
        self._rank: NDArray[np.int64] | None = None
        width = 8
        # Column order: a filter walks one dimension over all nodes.
        self.alloc: NDArray[np.int64] = np.zeros((16, width), np.int64, order="F")
        self.used, self.releasing, self.pipelined = (np.zeros((16, width), np.int64, order="F") for _ in range(3))
        self.taint_ids: NDArray[np.int32] = np.zeros(16, np.int32)
        """Per row the number of its taints and cordon in ``taint_sets``; 0 has neither."""
        self.taint_sets: list[tuple[bool, tuple[Taint, ...]]] = [UNTAINTED]
        """Every set in use by its number; numbers that nobody uses any more are given to the next ones."""
        self.taint_changes = ChangeLog()
        """Numbers that mean another set than before."""
        self.soft_taints = 0
        """Number of nodes that have a taint PreferNoSchedule."""
        self._taint_users: list[int] = [0]
        self._taint_numbers: dict[tuple[bool, tuple[Taint, ...]], int] = {UNTAINTED: 0}
        self._taint_free: list[int] = []
        self.by_claim: frozenset[str] = frozenset()
        """Resources in whose place a DeviceClass stands."""
        self.live: NDArray[np.bool_] = np.zeros(16, bool)

    @property
    def capacity(self) -> int:
        return len(self.live)

    def __len__(self) -> int:
        return len(self.row_of)

    def name(self, row: int) -> str:
        facts = self.facts[row]
        return facts.name if facts else ""

    def dim(self, name: str) -> int:
        """Column of a dimension, made when it is new."""
        found = self.dims.get(name)
        if found is None:
            found = self.dims[name] = len(self.dims)
            if found >= self.alloc.shape[1]:
                self._widen(self.alloc.shape[1] * 2)
        return found

    def put(self, node: Node) -> int:
        """Add or update a node's facts and allocatable; what is used stays. Returns the row."""
        name = node.metadata.name
        row = self.row_of.get(name)
        if row is None:
            row = self._new_row()
            self.row_of[name] = row
            self.live[row] = True
            self._rank = None
        self.facts[row] = NodeFacts(
            name, node.metadata.labels, tuple(node.spec.taints), node.spec.unschedulable, node_bytes(node)
        )
        self._set_taints(row, node.spec.unschedulable, tuple(node.spec.taints))
        self._set_allocatable(row, self._with_claimed(vector(node.status.allocatable)))
        self.version += 1
        self.touch(row, gain=True)
        return row

    def had_by_claim(self, names: frozenset[str]) -> None:
        """From now on these resources can be had by claim, where a node offers none of them itself."""
        if names != self.by_claim:
            self.by_claim = names
            for row in self.live_rows().tolist():
                facts = self.facts[row]
                if facts is not None:
                    self._set_allocatable(row, self._with_claimed(vector(facts.node.status.allocatable)))
                    self.touch(row, gain=True)
            self.version += 1

    def by_plugin(self, row: int, resource: str) -> bool:
        """Return whether the node offers the resource itself."""
        return bool(self.alloc[row, self.dim(resource)] < BY_CLAIM)

    def _with_claimed(self, offered: Vector) -> Vector:
        return {**dict.fromkeys(self.by_claim, BY_CLAIM), **{name: value for name, value in offered.items()
                if value or name not in self.by_claim}}  # fmt: skip

    def remove(self, name: str) -> int | None:
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self._set_allocatable(row, {})
        self._set_taints(row, False, ())
        self.used[row] = self.releasing[row] = self.pipelined[row] = 0
        self._beyond = {place: amount for place, amount in self._beyond.items() if place[1] != row}
        self.releasing_rows.pop(row, None)
        self.live[row] = False
        self.facts[row] = None
        self._free.append(row)
        self._rank = None
        self.version += 1
        self.touch(row, gain=False)
        return row

    def touch(self, row: int, *, gain: bool) -> None:
        self.changes.append(row)
        self.revisions[row] += 1
        if gain:
            self.gains.append(row)
            self.reliefs += 1

    def charge(self, row: int, items: Iterable[tuple[int, int]], sign: int, *, gain: bool) -> None:
        """Add ``sign`` times a request (pairs of column and amount) to what is used on a row. ``gain`` says whether
        somebody could fit now who did not before; taking back a trial is none."""
        used = self.used[row]
        for column, amount in items:
            if amount <= PLAIN:
                used[column] += sign * amount
            else:
                self._sum_apart(self.used, "used", row, column, sign * amount)
        if sign < 0:
            self.reliefs += 1
        self.touch(row, gain=gain)

    def set_releasing(self, row: int, items: Iterable[tuple[int, int]], sign: int) -> None:
        self._sum(self.releasing, "releasing", row, items, sign)
        count = self.releasing_rows.get(row, 0) + sign
        if count > 0:
            self.releasing_rows[row] = count
        else:
            self.releasing_rows.pop(row, None)
        self.touch(row, gain=False)

    def set_pipelined(self, row: int, items: Iterable[tuple[int, int]], sign: int) -> None:
        self._sum(self.pipelined, "pipelined", row, items, sign)
        self.touch(row, gain=False)

    def _sum(self, sums: Sums, what: str, row: int, items: Iterable[tuple[int, int]], sign: int) -> None:
        of_row = sums[row]
        for column, amount in items:
            if amount <= PLAIN:
                of_row[column] += sign * amount
            else:
                self._sum_apart(sums, what, row, column, sign * amount)

    def _sum_apart(self, sums: Sums, what: str, row: int, column: int, amount: int) -> None:
        """Very large amounts count as ``HUGE`` together: dozens of absurd ones would else run over and look like room."""
        before = self._beyond.pop((what, row, column), 0)
        after = before + amount
        sums[row, column] += min(after, HUGE) - min(before, HUGE)
        if after:
            self._beyond[what, row, column] = after

    def live_rows(self) -> Rows:
        return np.flatnonzero(self.live)

    def rank(self) -> NDArray[np.int64]:
        """Per row its place in the order of names: how ties are broken."""
        if self._rank is None or len(self._rank) != self.capacity:
            self._rank = np.full(self.capacity, np.iinfo(np.int64).max, np.int64)
            for place, name in enumerate(sorted(self.row_of)):
                self._rank[self.row_of[name]] = place
        return self._rank

    @property
    def tainted(self) -> bool:
        """Return whether any node has a taint or is cordoned."""
        return len(self._taint_numbers) > 1

    def _set_taints(self, row: int, cordoned: bool, taints: tuple[Taint, ...]) -> None:
        old, wanted = int(self.taint_ids[row]), (cordoned, taints)
        if self.taint_sets[old] == wanted:
            return
        self.soft_taints += _soft(taints) - _soft(self.taint_sets[old][1])
        number = self._taint_numbers.get(wanted)
        if number is None:
            number = self._new_taints(wanted)
        self._taint_users[number] += 1
        self.taint_ids[row] = number
        self._taint_users[old] -= 1
        if old and not self._taint_users[old]:  # autoscalers write times into taints: sets come and go without end
            del self._taint_numbers[self.taint_sets[old]]
            self._taint_free.append(old)

    def _new_taints(self, wanted: tuple[bool, tuple[Taint, ...]]) -> int:
        if self._taint_free:
            number = self._taint_free.pop()
            self.taint_sets[number] = wanted
        else:
            number = len(self.taint_sets)
            self.taint_sets.append(wanted)
            self._taint_users.append(0)
        self._taint_numbers[wanted] = number
        self.taint_changes.append(number)
        return number

    def _set_allocatable(self, row: int, new: Vector) -> None:
        columns = {self.dim(name): value for name, value in new.items()}
        by_column = {column: name for name, column in self.dims.items()}
        before = self.alloc[row]
        for column in range(len(self.dims)):
            difference = columns.get(column, 0) - int(before[column])
            if difference:
                name = by_column[column]
                self.total[name] = self.total.get(name, 0) + difference
                if not self.total[name]:
                    del self.total[name]
                before[column] = columns.get(column, 0)

    def _new_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = len(self.facts)
        self.facts.append(None)
        self.revisions.append(0)
        if row >= self.capacity:
            self._lengthen(self.capacity * 2)
        return row

    def _lengthen(self, rows: int) -> None:
        def longer(array: NDArray[Any]) -> NDArray[Any]:
            bigger = np.zeros((rows, *array.shape[1:]), array.dtype, order="F")
            bigger[: len(array)] = array
            return bigger

        self.alloc, self.used = longer(self.alloc), longer(self.used)
        self.releasing, self.pipelined = longer(self.releasing), longer(self.pipelined)
        self.live, self.taint_ids = longer(self.live), longer(self.taint_ids)
        self._rank = None

    def _widen(self, columns: int) -> None:
        def wider(array: NDArray[np.int64]) -> NDArray[np.int64]:
            bigger = np.zeros((len(array), columns), np.int64, order="F")
            bigger[:, : array.shape[1]] = array
            return bigger

        self.alloc, self.used = wider(self.alloc), wider(self.used)
        self.releasing, self.pipelined = wider(self.releasing), wider(self.pipelined)


def _soft(taints: tuple[Taint, ...]) -> bool:
    return any(taint.effect == "PreferNoSchedule" for taint in taints)


# -- images on nodes, for nodeorder's imagelocality (rules of Kubernetes' ImageLocality); equal images are one record --


SMALLEST = 23 * 2**20
"""Bytes below which it does not matter whether an image is there."""
LARGEST = 1000 * 2**20
"""Bytes per container above which more do not matter."""


@dataclass(slots=True, eq=False)
class Record:
    """One image as nodes list it, and the rows of the nodes that do."""

    names: tuple[str, ...]
    size: int
    rows: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Images:
    """Images by name and by node."""

    counted: bool = False
    """True where some plugin scores by images."""
    version: int = 0
    """Raised when any score by images may have changed."""
    fresh: set[str] = field(default_factory=set)
    """Names that no node had before, since somebody last looked: classes of pods that wait may depend on them."""
    _nodes: int = 0
    _records: dict[tuple[tuple[str, ...], int], Record] = field(default_factory=dict)
    _named: dict[str, list[Record]] = field(default_factory=dict)
    _of_row: dict[int, tuple[Record, ...]] = field(default_factory=dict)
    _scores: dict[tuple[str, ...], tuple[int, NDArray[np.float64]]] = field(default_factory=dict)

    def put(self, row: int, listed: Iterable[NodeImage], nodes: int) -> None:
        """Take over the images of the node of that row; ``nodes`` is how many nodes there are."""
        mine = tuple([self._record(tuple(image.names), image.size_bytes) for image in listed if image.names])
        old = self._of_row.get(row, ())
        if nodes == self._nodes and mine == old:
            return
        for record in mine:
            record.rows.add(row)
        if mine:
            self._of_row[row] = mine
        else:
            self._of_row.pop(row, None)
        self._changed(row, [record for record in old if record not in mine], nodes)

    def remove(self, row: int, nodes: int) -> None:
        self._changed(row, self._of_row.pop(row, ()), nodes)

    def matters(self, names: Sequence[str]) -> bool:
        """Return whether some node has one of these images, and anybody asks."""
        return self.counted and any(name in self._named for name in names)

    def scores(self, names: tuple[str, ...], capacity: int) -> NDArray[np.float64]:
        """Per row 0 to 100 for a pod whose containers have these images: sizes of what is there, each as much as the image is
        spread over the nodes."""
        known = self._scores.get(names)
        if known is not None and known[0] == self.version and len(known[1]) == capacity:
            return known[1]
        total = np.zeros(capacity, np.int64)
        for name in names:
            records = self._named.get(name, ())
            spread = sum(len(record.rows) for record in records) / max(self._nodes, 1)
            for record in records:
                total[list(record.rows)] += int(record.size * spread)
        most = LARGEST * max(len(names), 1)
        found = ((np.clip(total, SMALLEST, most) - SMALLEST) * 100 // (most - SMALLEST)).astype(np.float64)
        if len(self._scores) > 1000:
            self._scores.clear()
        self._scores[names] = self.version, found
        return found

    def _record(self, names: tuple[str, ...], size: int) -> Record:
        found = self._records.get((names, size))
        if found is None:
            found = self._records[names, size] = Record(names, max(0, min(size, 2**50)))
            for name in names:
                if name not in self._named:
                    self._named[name] = []
                    self.fresh.add(name)
                self._named[name].append(found)
        return found

    def _changed(self, row: int, gone: Iterable[Record], nodes: int) -> None:
        self._nodes = nodes
        self.version += bool(self._named)
        for record in gone:
            record.rows.discard(row)
            if record.rows or self._records.pop((record.names, record.size), None) is None:
                continue
            for name in record.names:
                self._named[name].remove(record)
                if not self._named[name]:
                    del self._named[name]


def images_of(spec: PodSpec) -> tuple[str, ...]:
    """The images of all containers as nodes name them, sorted."""
    if not spec.init_containers and len(spec.containers) == 1:
        return (_full_name(spec.containers[0]),)
    return tuple(sorted(_full_name(container) for container in (*spec.init_containers, *spec.containers)))


def _full_name(container: Container) -> str:
    name = container.image
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
