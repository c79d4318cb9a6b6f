"""Where pods with certain labels are: the index behind pod affinity, topology spread and host ports.

Placed pods are counted by their features (equal pods share one Features value), per topology domain and by term. A term is
matched when a pod of a new kind comes, or when the term is first asked for, against those alone that have a label it names:
no decision asks all terms or all pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from pumice.engine.state.domain_counts import DomainCounts
from pumice.engine.state.features import Features, PodTerm, WeightedTerm
from pumice.engine.state.selector_index import Label, SelectorIndex, labels_wanted
from pumice.engine.state.selectors import LabelTable, Requirements

ASKED_KEPT = 50_000
"""Counts remembered for terms that were asked for."""

_NONE: Counter[int] = Counter()
Terms = tuple[PodTerm, ...]
"""Terms that one pod must meet together."""
Asked = tuple[Terms, str, bool]
"""Whose pods are counted, by which label of their nodes (empty: by node), and whether those that are going are left out."""


class TermIndex:
    """Counts of placed pods per topology domain, by term."""

    def __init__(self) -> None:
        self.labels = LabelTable()
        self.version = 0
        """Raised when a pod came or went that some term may see."""
        self.arrivals = 0
        """Raised when a pod came that some term in use selects, on trial too, or began to go where pods are spread, or when terms
        may select others than before: pods that want to be near it, or spread out with it, may fit now."""
        self.stays = 0
        """The arrivals that are no trial: what is only tried and taken back is no reason to look again."""
        self.departures = 0
        """Raised when a pod that shuns others went, or a node: others may run elsewhere now, though no node gained room."""
        self.ports: dict[int, Counter[tuple[str, str, int]]] = {}
        self.volumes: dict[int, Counter[str]] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self._anti = _Held[PodTerm]()
        self._preferred = _Held[WeightedTerm]()
        self._where: dict[Features, Counter[int]] = {}
        self._going: dict[Features, Counter[int]] = {}
        """Of these the pods that are being deleted."""
        self._by_label: dict[Label, dict[Features, None]] = {}
        self._asked: dict[Asked, DomainCounts] = {}
        self._asking: SelectorIndex[Asked] = SelectorIndex()

    # -- nodes and namespaces -------------------------------------------------------------------------------------

    def put_node(self, row: int, name: str, labels: Mapping[str, str], capacity: int) -> None:
        """A node came or changed. Pods there move to other domains where its labels are others than before."""
        moved = [] if self.labels.has(row, name, labels) else self._on(row)
        for features, number, going in moved:
            self._count(row, features, -number, -going)
        self.labels.put(row, name, labels, capacity)
        for features, number, going in moved:
            self._count(row, features, number, going)
        self.version += 1
        self.arrivals += bool(moved)
        self.stays += bool(moved)

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
        self._forget()
        self.version += 1
        self.arrivals += 1
        self.stays += 1

    # -- pods -----------------------------------------------------------------------------------------------------

    def add(self, row: int, features: Features, *, trial: bool = False) -> None:
        """A pod has its place there."""
        self._keep(row, features, 1)
        self.stays += self._count(row, features, 1, 0) and not trial
        self.version += 1

    def stay(self, features: Features) -> None:
        """A pod is more than a trial from now on."""
        self.stays += any(self._selected(terms, features) for terms, _, _ in self._asking.candidates(features.labels))

    def remove(self, row: int, features: Features, *, trial: bool = False) -> None:
        """The pod is gone, or was never there."""
        self._keep(row, features, -1)
        self._count(row, features, -1, 0)
        self.version += 1
        self.departures += bool(features.anti) and not trial

    def go(self, row: int, features: Features, sign: int = 1) -> None:
        """A pod that is there begins to go; with -1 it does not after all, or is gone (before ``remove``)."""
        rows = self._going.setdefault(features, Counter())
        _bump(rows, row, sign)
        if not rows:
            del self._going[features]
        self.stays += self._count(row, features, 0, sign)
        self.version += 1

    def pretend(self, moves: Iterable[tuple[int, Features, int, int]]) -> None:
        """So many pods come, and so many more of them are going, for the length of a look: nobody need hear of it, for the
        opposite follows."""
        heard = self.version, self.arrivals
        for row, features, number, going in moves:
            self._keep(row, features, number)
            self._count(row, features, number, going)
        self.version, self.arrivals = heard

    # -- questions ------------------------------------------------------------------------------------------------

    def counts(self, terms: Terms, topology: str, *, staying: bool = False) -> DomainCounts:
        """Placed pods that meet all these terms, per domain of that label, or per row where it is empty. ``staying`` leaves
        out those that are being deleted."""
        key = (terms, topology, staying)
        found = self._asked.get(key)
        if found is None:
            if len(self._asked) >= ASKED_KEPT:
                self._forget()
            found = self._asked[key] = DomainCounts()
            if all(term.selector is not None for term in terms):
                self._asking.put(key, terms[0].selector)
            for features in self._may_be_selected(terms[0]):
                if self._selected(terms, features):
                    going = self._going.get(features, _NONE) if staying else _NONE
                    for row, number in self._where[features].items():
                        found.add(self.labels.domain(topology, row), number - going[row])
        return found

    def refusing(self, namespace: str, labels: tuple[Label, ...]) -> Iterator[tuple[PodTerm, DomainCounts]]:
        """Required anti-affinity terms of placed pods that select such a pod, with the domains where those pods are."""
        plain = dict(labels)
        for term in self._anti.index.candidates(labels):
            if term.selects(namespace, plain, self.namespaces):
                yield term, self._anti.where[term]

    def wishing(self, namespace: str, labels: tuple[Label, ...]) -> Iterator[tuple[WeightedTerm, DomainCounts]]:
        """Preferred terms of placed pods that select such a pod, with the domains where those pods are."""
        plain = dict(labels)
        for wish in self._preferred.index.candidates(labels):
            if wish.term.selects(namespace, plain, self.namespaces):
                yield wish, self._preferred.where[wish]

    @property
    def any_refusing(self) -> bool:
        return bool(self._anti.where)

    @property
    def any_wishing(self) -> bool:
        return bool(self._preferred.where)

    def fingerprint(self, row_of: Mapping[str, int]) -> object:
        name_of = {row: name for name, row in row_of.items()}
        return [
            {
                features: {name_of[row]: count for row, count in rows.items() if count and row in name_of}
                for features, rows in table.items()
                if any(count and row in name_of for row, count in rows.items())
            }
            for table in (self._where, self._going)
        ]

    # -- counting -------------------------------------------------------------------------------------------------

    def _keep(self, row: int, features: Features, sign: int) -> None:
        rows = self._where.get(features)
        if rows is None:
            rows = self._where[features] = Counter()
            for label in features.labels:
                self._by_label.setdefault(label, {})[features] = None
        _bump(rows, row, sign)
        if features.ports:
            _bump_all(self.ports, row, features.ports, sign)
        if features.volumes:
            _bump_all(self.volumes, row, features.volumes, sign)
        if not rows:
            del self._where[features]
            for label in features.labels:
                del self._by_label[label][features]
                if not self._by_label[label]:
                    del self._by_label[label]

    def _count(self, row: int, features: Features, number: int, going: int) -> bool:
        """So many pods more there, and so many more that are going. Whether somebody may have waited for that."""
        seen = False
        for key in self._asking.candidates(features.labels):
            terms, topology, staying = key
            change = number - going if staying else number
            if change and self._selected(terms, features):
                self._asked[key].add(self.labels.domain(topology, row), change)
                seen |= change > 0 or going > 0
        self.arrivals += seen
        if number:
            for term in features.anti:
                self._anti.add(term, term.selector, self.labels.domain(term.topology, row), number)
            for wish in features.preferred:
                self._preferred.add(wish, wish.term.selector, self.labels.domain(wish.term.topology, row), number)
        return seen

    def _on(self, row: int) -> list[tuple[Features, int, int]]:
        """What stands on a row: pods of each kind, and how many of them are going."""
        return [
            (features, rows[row], self._going.get(features, _NONE)[row])
            for features, rows in self._where.items()
            if row in rows
        ]

    def _may_be_selected(self, term: PodTerm) -> list[Features]:
        wanted = labels_wanted(term.selector)
        if wanted is None:
            return [] if term.selector is None else list(self._where)
        return [features for label in wanted for features in self._by_label.get(label, ())]

    def _selected(self, terms: Terms, features: Features) -> bool:
        labels = dict(features.labels)
        return all(term.selects(features.namespace, labels, self.namespaces) for term in terms)

    def _forget(self) -> None:
        self._asked.clear()
        self._asking = SelectorIndex()


Key = TypeVar("Key", bound=Hashable)


class _Held(Generic[Key]):
    """Terms that placed pods bring along, and where those pods are."""

    def __init__(self) -> None:
        self.where: dict[Key, DomainCounts] = {}
        self.index: SelectorIndex[Key] = SelectorIndex()

    def add(self, term: Key, selector: Requirements | None, domain: int, number: int) -> None:
        counts = self.where.get(term)
        if counts is None:
            counts = self.where[term] = DomainCounts()
            self.index.put(term, selector)
        counts.add(domain, number)
        if not counts.total:
            del self.where[term]
            self.index.remove(term, selector)


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
