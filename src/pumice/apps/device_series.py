"""The device series of ``/metrics`` (spec deviceshare-nvidia 17), kept as rendered lines.

A card's lines are made again only when what is booked on that card has changed. ``prepare`` does it in slices of a few
milliseconds, so that a scrape is never in a cycle's way; ``section`` does what is left and joins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from pumice.engine.engine import Engine
from pumice.engine.model import Task
from pumice.engine.node_book import NodeBook
from pumice.engine.observe import escape, number
from pumice.model.cards import Piece, Usage

FAMILIES = (
    ("volcano_vgpu_device_memory_limit", "Registered memory of a card"),
    ("volcano_vgpu_device_shared_number", "Shares of a card in use"),
    ("volcano_vgpu_device_allocated_memory", "Memory of a card charged to pods"),
    ("volcano_vgpu_device_allocated_cores", "Cores of a card charged to pods"),
    ("volcano_vgpu_device_memory_allocation_for_a_certain_pod", "Memory of a card charged to one pod"),
    ("volcano_vgpu_device_core_allocation_for_a_certain_pod", "Cores of a card charged to one pod"),
    ("pumice_vgpu_device_pod_memory", "Memory of a card charged to one pod, told apart by namespace"),
    ("pumice_vgpu_device_pod_cores", "Cores of a card charged to one pod, told apart by namespace"),
)
_LIMIT, _SHARES, _MEMORY, _CORES, _POD_MEMORY, _POD_CORES, _OWN_MEMORY, _OWN_CORES = (name for name, _ in FAMILIES)

SLICE = 0.002
"""Seconds of rendering before everybody else has a turn."""

Lines = tuple[str, ...]
"""Text per family, each with its line ends."""
CardStamp = tuple[int, int, int, tuple[tuple[str, tuple[Piece, ...]], ...]]
"""Total, charged memory and cores, and who holds what."""


@dataclass(slots=True)
class _Node:
    """What is kept of one node. ``book`` and ``version`` say of which state; ``cards`` has per card its stamp and lines."""

    book: NodeBook
    version: int = -1
    cards: list[tuple[CardStamp, Lines]] = field(default_factory=list)
    columns: tuple[bytes, ...] = ()


@dataclass(slots=True)
class DeviceSeries:
    """The device lines of one engine. ``rendered`` counts the cards whose lines were made."""

    engine: Engine
    rendered: int = 0
    _nodes: dict[tuple[str, str], _Node] = field(default_factory=dict)
    _parts: list[bytes] = field(default_factory=list)
    _fresh: bool = False

    async def prepare(self, give_way: Callable[[], Awaitable[None]]) -> None:
        """Render what has changed, and give way every few milliseconds."""
        began = perf_counter()
        for key, book in list(self._stale()):
            self._render(key, book)
            if perf_counter() - began > SLICE:
                await give_way()
                began = perf_counter()

    def section(self) -> list[bytes]:
        """All families, in pieces to be joined."""
        for key, book in list(self._stale()):
            self._render(key, book)
        alive = {(name, node) for name, family in self._books() for node in family}
        if self._fresh and len(alive) == len(self._nodes):
            return self._parts
        for key in self._nodes.keys() - alive:
            del self._nodes[key]
        self._parts = []
        for place, (name, text) in enumerate(FAMILIES):
            self._parts.append(f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode())
            self._parts += [self._nodes[name, node].columns[place] for name, family in self._books() for node in family]
        self._fresh = True
        return self._parts

    def _books(self) -> Iterator[tuple[str, Mapping[str, NodeBook]]]:
        for name, family in self.engine.state.ledger.books.items():
            if name.startswith("nvidia-vgpu"):
                yield name, family.nodes

    def _stale(self) -> Iterator[tuple[tuple[str, str], NodeBook]]:
        for name, family in self._books():
            for node, book in family.items():
                kept = self._nodes.get((name, node))
                if kept is None or kept.book is not book or kept.version != book.version:
                    yield (name, node), book

    def _render(self, key: tuple[str, str], book: NodeBook) -> None:
        kept = self._nodes.get(key)
        if kept is None or kept.book is not book:
            kept = self._nodes[key] = _Node(book)
        tasks, cards = self.engine.state.tasks, []
        for place, (card, usage) in enumerate(zip(book.inventory.cards, book.usages, strict=True)):
            stamp = (card.total, usage.memory, usage.cores, tuple(usage.holders.items()))
            if place < len(kept.cards) and kept.cards[place][0] == stamp:
                cards.append(kept.cards[place])
                continue
            where = f'devID="{escape(card.uuid)}",NodeName="{escape(book.name)}"'
            cards.append((stamp, _card_lines(where, card.total, usage, tasks)))
            self.rendered += 1
        kept.cards, kept.version = cards, book.version
        kept.columns = tuple("".join(column).encode() for column in zip(*(lines for _, lines in cards), strict=True))
        kept.columns = kept.columns or (b"",) * len(FAMILIES)
        self._fresh = False


def _card_lines(where: str, total: int, usage: Usage, tasks: Mapping[str, Task]) -> Lines:
    """The lines of one card. Upstream's labels lack the namespace: equal pod names share a series (D-43)."""
    by_name: dict[str, tuple[int, int]] = {}
    memories: list[str] = []
    cores: list[str] = []
    for uid, pieces in usage.holders.items():
        task = tasks.get(uid)
        namespace, name = (task.namespace, task.name) if task is not None else ("", escape(uid))
        memory = core = 0
        for piece in pieces:
            memory += piece.asked
            core += piece.cores
        before = by_name.get(name)
        by_name[name] = (memory, core) if before is None else (before[0] + memory, before[1] + core)
        pod = f'{where},podNamespace="{namespace}",podName="{name}"}} '
        memories.append(f"{_OWN_MEMORY}{{{pod}{memory}\n")
        cores.append(f"{_OWN_CORES}{{{pod}{core}\n")
    return (
        f"{_LIMIT}{{{where}}} {number(total)}\n",
        f"{_SHARES}{{{where}}} {usage.shares}\n",
        f"{_MEMORY}{{{where}}} {number(usage.memory)}\n",
        f"{_CORES}{{{where}}} {number(usage.cores)}\n",
        "".join([f'{_POD_MEMORY}{{{where},podName="{name}"}} {memory}\n' for name, (memory, _) in by_name.items()]),
        "".join([f'{_POD_CORES}{{{where},podName="{name}"}} {core}\n' for name, (_, core) in by_name.items()]),
        "".join(memories),
        "".join(cores),
    )
