"""Which images the nodes have, for nodeorder's imagelocality (spec volcano-core 11.9; rules of Kubernetes' ImageLocality).

Equal images on many nodes are one record. Only pods of whose images some node has one are told apart by their images; all
others are scored alike whatever they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.wire.objects import Container, NodeImage, PodSpec

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
    """Whether some plugin scores by images."""
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
        """What the node of that row has now; ``nodes`` is how many nodes there are."""
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
        """Whether some node has one of these images, and anybody asks."""
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
