"""The two annotations by which a pod may have more of its cards than it asked for, while nobody else needs it:
``pumice.io/burst-memory`` in the unit of ``vgpu-memory`` and ``pumice.io/burst-cores`` in percent, totals of each card.

An extended resource has one amount for request and limit. It is the request, by which schedulers count; the limit stands here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pumice.wire.names import BURST_CORES, BURST_MEMORY
from pumice.wire.quantity import LARGEST_CARD, counted, meant_mib

Notes = Mapping[str, Any]


def memory_of(notes: Notes) -> int:
    """Return how much the pod may hold of a card; 0: no more than it asked for."""
    return _amount(notes, BURST_MEMORY, LARGEST_CARD)


def cores_of(notes: Notes) -> int:
    """Return the percent that the pod may have of a card; 0: no more than it asked for."""
    return _amount(notes, BURST_CORES, 100)


def _amount(notes: Notes, key: str, most: int) -> int:
    amount = counted(str(notes.get(key, 0)))
    return amount if 0 < amount <= most else 0


def is_asked(notes: Notes) -> bool:
    return BURST_MEMORY in notes or BURST_CORES in notes


def misspelt(notes: Notes) -> Iterator[tuple[str, str]]:
    """Yield (key, sentence) for each of the two that is no amount."""
    if BURST_MEMORY in notes and not memory_of(notes):
        mib, _ = meant_mib(notes[BURST_MEMORY])
        said = f"{BURST_MEMORY}: {notes[BURST_MEMORY]!r} is not a whole number above 0, in the unit of vgpu-memory"
        yield BURST_MEMORY, f"{said}: write {mib}" if mib else said
    if BURST_CORES in notes and not cores_of(notes):
        yield BURST_CORES, f"{BURST_CORES}: {notes[BURST_CORES]!r} is not a percentage from 1 to 100"


def pointless(notes: Notes, memory: int, cores: int) -> Iterator[tuple[str, str]]:
    """Yield (key, sentence) for each that a container has no use of, which asked for so much of a card; below 0: nobody knows."""
    if 0 < memory_of(notes) <= memory:
        yield BURST_MEMORY, f"{BURST_MEMORY}: {memory_of(notes)} is not above the {memory} that were asked for"
    if cores_of(notes) and (cores == 0 or cores >= 100):
        yield BURST_CORES, f"{BURST_CORES}: {cores_of(notes)} of a container that has no core limit to exceed"
    elif 0 < cores_of(notes) <= cores:
        yield BURST_CORES, f"{BURST_CORES}: {cores_of(notes)} is not above the {cores} that were asked for"
