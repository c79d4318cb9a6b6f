"""The use of each share over the last hour, as a node's monitor keeps it: a ring of points a share, bounded. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

POINTS, EVERY = 240, 15.0
"""Points a share, and seconds between two of them: an hour."""
SHARES = 2048
"""Shares of a node that are kept, over four megabytes of rings; a node with 16 cards of 100 shares each has fewer."""
UNIT = 4096
"""Bytes of memory in which a point counts."""
NOTHING, NO_CORES = 0xFFFFFFFF, 0xFF

Key = tuple[str, str, str, str]
"""Namespace, pod, container, and UUID of the card."""


class ShareHistory(Struct, frozen=True):
    """One share: bytes and percent at each point, the newest last; None where nothing was told. ``limit`` in bytes,
    ``cores_limit`` in percent, 0 where there is none."""

    container: str
    uuid: str
    limit: int
    cores_limit: int
    memory: list[int | None]
    cores: list[int | None]


class PodHistory(Struct, frozen=True):
    """The shares of one pod. ``until`` is when the last point was, in Unix seconds, ``every`` the seconds between two."""

    until: float = 0.0
    every: float = EVERY
    shares: list[ShareHistory] = []


@dataclass(frozen=True, slots=True)
class Point:
    """A share now: bytes and percent, None where nobody tells, and what it is limited to."""

    memory: int | None
    cores: int | None
    limit: int
    cores_limit: int


class _Ring:
    __slots__ = ("cores", "cores_limit", "last", "limit", "memory")

    def __init__(self) -> None:
        self.memory, self.cores = array("I", [NOTHING]) * POINTS, array("B", [NO_CORES]) * POINTS
        self.limit = self.cores_limit = self.last = 0


@dataclass(slots=True)
class History:
    """The use of cards over time. ``add`` is called each ``EVERY`` seconds. ``left_out`` counts shares of the last round for
    which there was no room."""

    left_out: int = 0
    _round: int = 0
    _until: float = 0.0
    _rings: dict[Key, _Ring] = field(default_factory=dict)

    def add(self, at: float, points: Mapping[Key, Point]) -> None:
        """Note one round, at Unix seconds. A share that has told nothing for an hour is forgotten."""
        self._round += 1
        self._until = at
        here = self._round % POINTS
        for key in [key for key, ring in self._rings.items() if key not in points and self._round - ring.last >= POINTS]:
            del self._rings[key]
        self.left_out = 0
        for ring in self._rings.values():
            ring.memory[here], ring.cores[here] = NOTHING, NO_CORES
        for key, point in points.items():
            found = self._rings.get(key)
            if found is None:
                if len(self._rings) >= SHARES:
                    self.left_out += 1
                    continue
                found = self._rings[key] = _Ring()
            found.last, found.limit, found.cores_limit = self._round, point.limit, point.cores_limit
            if point.memory is not None:
                found.memory[here] = min(max(0, point.memory) // UNIT, NOTHING - 1)
            if point.cores is not None:
                found.cores[here] = min(max(0, point.cores), NO_CORES - 1)

    def of(self, namespace: str, pod: str) -> PodHistory:
        """Return what is known of a pod, from the first point at which any of its shares told something."""
        rings = [(key, ring) for key, ring in self._rings.items() if key[:2] == (namespace, pod)]
        order = [(self._round + 1 + i) % POINTS for i in range(POINTS)]
        told = [i for i, place in enumerate(order) if any(_told(ring, place) for _, ring in rings)]
        order = order[told[0] :] if told else []
        return PodHistory(self._until, EVERY, [
            ShareHistory(key[2], key[3], ring.limit, ring.cores_limit, _line(ring.memory, order, NOTHING, UNIT),
                         _line(ring.cores, order, NO_CORES, 1))
            for key, ring in sorted(rings, key=lambda item: item[0])
        ])  # fmt: skip


def _told(ring: _Ring, place: int) -> bool:
    return ring.memory[place] != NOTHING or ring.cores[place] != NO_CORES


def _line(values: Sequence[int], order: Sequence[int], nothing: int, unit: int) -> list[int | None]:
    return [None if values[place] == nothing else values[place] * unit for place in order]
