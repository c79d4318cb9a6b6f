"""Where pods with certain labels are: the index behind pod affinity, topology spread and host ports.

Placed pods are counted by their features (equal pods share one Features value), so a term is matched once per kind of
pod and not once per pod. A term's count per row exists only while some class of pods asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from pumice.engine.state.selectors import LabelTable, Requirements, match_all

if TYPE_CHECKING:
    from pumice.engine.state.ledger import Features


PodSelector = tuple[Requirements | None, frozenset[str], Requirements | None]
Namespaces = Mapping[str, Mapping[str, str]]
"""Labels of the namespaces that are known, by name."""


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Which pods, seen over which topology: those in ``namespaces`` or in a namespace whose labels meet ``spaces``
    (None: no such selector; empty: every namespace)."""

    selector: Requirements | None
    namespaces: frozenset[str]
    topology: str = ""
    spaces: Requirements | None = None

    def selects(self, namespace: str, labels: Mapping[str, str], known: Namespaces) -> bool:
        inside = namespace in self.namespaces or match_all(self.spaces, known.get(namespace, {}))
        return inside and match_all(self.selector, labels)

    @property
    def pods(self) -> PodSelector:
        """The term without its topology: terms that select the same pods share their counts."""
        return (self.selector, self.namespaces, self.spaces)


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preferred term of pod affinity (positive weight) or anti-affinity (negative)."""

    term: PodTerm
    weight: int


class TermIndex:
    """Counts of placed pods per row, by term."""

    def __init__(self) -> None:
        self.labels = LabelTable()
        self.version = 0
        """Raised when a pod came or went that some term may see."""
        self.arrivals = 0
        """Raised when a pod came that some term in use selects, on trial too, or when terms may select others than before: pods
        that want to be near it, or spread out with it, may fit now."""
        self.stays = 0
        """The arrivals that are no trial: what is only tried and taken back is no reason to look again."""
        self.departures = 0
        """Raised when a pod that shuns others went, or a node: others may run elsewhere now, though no node gained room."""
        self.ports: dict[int, Counter[tuple[str, str, int]]] = {}
        self.volumes: dict[int, Counter[str]] = {}
        self.anti: dict[PodTerm, Counter[int]] = {}
        """Required anti-affinity terms of placed pods: term to rows where such pods are."""
        self.preferred: dict[WeightedTerm, Counter[int]] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self._where: dict[Features, Counter[int]] = {}
        self._counts: dict[PodSelector, NDArray[np.int64]] = {}
        self._seen_by: dict[Features, list[PodSelector]] = {}
        self._capacity = 16

    def put_node(self, row: int, name: str, labels: Mapping[str, str], capacity: int) -> None:
        self._capacity = max(capacity, self._capacity)
        for key, counts in self._counts.items():
            if len(counts) < self._capacity:
                self._counts[key] = np.concatenate([counts, np.zeros(self._capacity - len(counts), np.int64)])
        self.version += 1
        self.labels.put(row, name, labels, self._capacity)

    def remove_node(self, row: int) -> None:
        self.labels.remove(row)
        self.version += 1
        self.departures += 1

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Labels of a namespace, None when it is gone. A change makes every count stale: namespaces change rarely."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        self._counts.clear()
        self._seen_by.clear()
        self.version += 1
        self.arrivals += 1
        self.stays += 1

    def add(self, row: int, features: Features, *, trial: bool = False) -> None:
        self._change(row, features, 1)
        if not trial:
            self.stay(features)

    def stay(self, features: Features) -> None:
        """A pod is more than a trial from now on."""
        if self._seen_by.get(features):
            self.stays += 1

    def remove(self, row: int, features: Features, *, trial: bool = False) -> None:
        self._change(row, features, -1)
        if features.anti and not trial:
            self.departures += 1

    def counts(self, term: PodTerm) -> NDArray[np.int64]:
        """Per row the number of placed pods that the term selects. Shape (capacity,)."""
        found = self._counts.get(term.pods)
        if found is None:
            found = np.zeros(self._capacity, np.int64)
            self._counts[term.pods] = found
            for features, rows in self._where.items():
                if term.selects(features.namespace, dict(features.labels), self.namespaces):
                    self._seen_by.setdefault(features, []).append(term.pods)
                    for row, count in rows.items():
                        found[row] += count
        return found

    def per_domain(self, term: PodTerm) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(count of the row's domain per row, domain code per row); code -1 and count 0 where the label is absent."""
        codes = self.labels.codes(term.topology)
        counts = self.counts(term)
        present = codes >= 0
        if not present.any():
            return np.zeros(len(codes), np.int64), codes
        sums = np.bincount(codes[present], weights=counts[present])
        spread = np.zeros(len(codes), np.int64)
        spread[present] = sums[codes[present]].astype(np.int64)
        return spread, codes

    def rows_in_domains(self, topology: str, rows: Counter[int]) -> NDArray[np.int64]:
        """Per row the sum of ``rows`` over the row's own domain."""
        codes = self.labels.codes(topology)
        sums: Counter[int] = Counter()
        for row, count in rows.items():
            if codes[row] >= 0:
                sums[int(codes[row])] += count
        table = np.zeros((max(sums) if sums else 0) + 2, np.int64)
        for code, count in sums.items():
            table[code] = count
        bounded = np.where((codes >= 0) & (codes < len(table) - 1), codes, len(table) - 1)
        return np.asarray(table[bounded])

    def fingerprint(self, row_of: Mapping[str, int]) -> object:
        name_of = {row: name for name, row in row_of.items()}
        return {
            features: {name_of[row]: count for row, count in rows.items() if count and row in name_of}
            for features, rows in self._where.items()
            if any(count and row in name_of for row, count in rows.items())
        }

    def _change(self, row: int, features: Features, sign: int) -> None:
        rows = self._where.get(features)
        if rows is None:
            rows = self._where[features] = Counter()
            labels = dict(features.labels)
            seen = [
                key for key in self._counts
                if PodTerm(key[0], key[1], "", key[2]).selects(features.namespace, labels, self.namespaces)
            ]  # fmt: skip
            self._seen_by[features] = seen
        _bump(rows, row, sign)
        seen_by = self._seen_by.get(features, ())
        for key in seen_by:
            self._counts[key][row] += sign
        if sign > 0 and seen_by:
            self.arrivals += 1
        if features.ports:
            _bump_all(self.ports, row, features.ports, sign)
        if features.volumes:
            _bump_all(self.volumes, row, features.volumes, sign)
        for term in features.anti:
            _bump_holder(self.anti, term, row, sign)
        for weighted in features.preferred:
            _bump_holder(self.preferred, weighted, row, sign)
        if not rows:
            del self._where[features]
            self._seen_by.pop(features, None)
        self.version += 1


Key = TypeVar("Key", bound=Hashable)


def _bump(counter: Counter[Key], key: Key, sign: int) -> None:
    count = counter.get(key, 0) + sign
    if count:
        counter[key] = count
    else:
        del counter[key]


def _bump_all(table: dict[int, Counter[Key]], row: int, parts: tuple[Key, ...], sign: int) -> None:
    for part in parts:
        counter = table.setdefault(row, Counter())
        _bump(counter, part, sign)
        if not counter:
            del table[row]


def _bump_holder(index: dict[Key, Counter[int]], term: Key, row: int, sign: int) -> None:
    holders = index.setdefault(term, Counter())
    _bump(holders, row, sign)
    if not holders:
        del index[term]
