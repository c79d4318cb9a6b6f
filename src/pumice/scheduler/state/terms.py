"""The nodes of pods with certain labels: the index behind pod affinity, topology spread and host ports.

Placed pods are counted by their features (equal pods share one Features value), per topology domain and by term. A term is
matched when a pod of a new kind comes, or when the term is first asked for, against those alone that have a label it names:
no decision asks all terms or all pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pumice.scheduler.state.selectors import LabelTable
from pumice.wire.objects import Requirements, match_all

# -- selectors that match a pod, and pods that a selector matches, by label pairs --------------------------------------


Label = tuple[str, str]
Thing = TypeVar("Thing", bound=Hashable)


class SelectorIndex(Generic[Thing]):
    """Things with a selector of pods each. One that asks for a label by value is found by that label only."""

    def __init__(self) -> None:
        self._by_label: dict[Label, dict[Thing, None]] = {}
        self._others: dict[Thing, None] = {}

    def put(self, thing: Thing, selector: Requirements | None) -> None:
        for place in self._places(selector):
            place[thing] = None

    def remove(self, thing: Thing, selector: Requirements | None) -> None:
        for place in self._places(selector):
            place.pop(thing, None)
        for label in labels_wanted(selector) or ():
            if not self._by_label[label]:
                del self._by_label[label]

    def candidates(self, labels: Iterable[Label]) -> Iterator[Thing]:
        """Return what may select a pod with these labels, each once; whether it does is still to be asked."""
        found = [self._by_label[label] for label in labels if label in self._by_label]
        return chain(self._others, *found)

    def _places(self, selector: Requirements | None) -> list[dict[Thing, None]]:
        if selector is None:
            return []  # it selects nothing
        wanted = labels_wanted(selector)
        if wanted is None:
            return [self._others]
        return [self._by_label.setdefault(label, {}) for label in wanted]


def labels_wanted(selector: Requirements | None) -> tuple[Label, ...] | None:
    """Labels of which a selected pod must have one; None where the selector names none by value. All have one key, so that a
    pod has one of them at most."""
    for requirement in selector or ():
        if requirement.operator == "In":
            return tuple((requirement.key, value) for value in dict.fromkeys(requirement.values))
    return None


# -- numbers of pods per topology domain: a few domains in a dict, many in an array ------------------------------------


FEW = 64
"""Domains kept in a dict; an application has pods in a handful, a whole cluster's agents in thousands."""


class DomainCounts:
    """Pods per domain. Domains are the codes of one node label; -1 stands for nodes without it, and counts in ``total`` only."""

    __slots__ = ("_few", "_many", "placed", "total")

    def __init__(self) -> None:
        self._few: dict[int, int] = {}
        self._many: NDArray[np.int64] | None = None
        self.total = 0
        """Pods in all."""
        self.placed = 0
        """Pods on nodes that have the label."""

    def add(self, domain: int, number: int) -> None:
        self.total += number
        if domain < 0:
            return
        self.placed += number
        if self._many is not None:
            if domain >= len(self._many) - 1:
                self._many = self.table(2 * domain + 1)
            self._many[domain] += number
            return
        count = self._few.get(domain, 0) + number
        if count:
            self._few[domain] = count
        else:
            self._few.pop(domain, None)
        if len(self._few) > FEW:
            self._many = self.table(max(self._few) + 1)
            self._few.clear()

    def table(self, domains: int) -> NDArray[np.int64]:
        """Counts by domain, and a last 0 that code -1 finds."""
        if self._many is not None and len(self._many) > domains:
            return self._many
        found = np.zeros(domains + 1, np.int64)
        if self._many is not None:
            found[: len(self._many)] = self._many
        elif self._few:
            found[list(self._few)] = list(self._few.values())
        return found

    def at(self, codes: NDArray[Any], domains: int) -> NDArray[np.int64]:
        """Per row the count of its domain; ``domains``: how many there are."""
        return self.table(domains).take(codes, mode="wrap")


# -- what of a placed pod matters to the placing of others -------------------------------------------------------------


Namespaces = Mapping[str, Mapping[str, str]]
"""Labels of the namespaces that are known, by name."""


class PodTerm(Struct, frozen=True, cache_hash=True):
    """Pods, and the topology over which they are seen: those in ``namespaces`` or in a namespace whose labels meet ``spaces``
    (None: no such selector; empty: every namespace)."""

    selector: Requirements | None
    namespaces: frozenset[str]
    topology: str = ""
    spaces: Requirements | None = None

    def selects(self, namespace: str, labels: Mapping[str, str], known: Namespaces) -> bool:
        inside = namespace in self.namespaces or match_all(self.spaces, known.get(namespace, {}))
        return inside and match_all(self.selector, labels)


class WeightedTerm(Struct, frozen=True, cache_hash=True):
    """A preferred term of pod affinity (positive weight) or anti-affinity (negative); or, of a placed pod, a required term of
    affinity, which speaks for its neighbourhood too (``hard``)."""

    term: PodTerm
    weight: int
    hard: bool = False


class Features(Struct, frozen=True, cache_hash=True):
    """The features of a placed pod that matter to the placing of others. Interned: equal pods share one object."""

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    anti: tuple[PodTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    volumes: tuple[str, ...] = ()


# -- the index of terms ------------------------------------------------------------------------------------------------


ASKED_KEPT = 50_000
"""Counts remembered for terms that were asked for."""

_NONE: Counter[int] = Counter()
Terms = tuple[PodTerm, ...]
"""Terms that one pod must meet together."""
Demand = tuple[Terms, str, bool]
"""Pods that are counted, the label of their nodes by which they are (empty: by node), and whether terminating ones are left
out."""


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
        self.terminating = 0
        """Raised when a pod with anti-affinity went, or a node, or when the domains or namespaces changed in which it refuses
        others: they may run elsewhere now, though no node gained room."""
        self.ports: dict[int, Counter[tuple[str, str, int]]] = {}
        self.volumes: dict[int, Counter[str]] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self._anti = _Held[PodTerm]()
        self._preferred = _Held[WeightedTerm]()
        self._where: dict[Features, Counter[int]] = {}
        self._going: dict[Features, Counter[int]] = {}
        """Of these the pods that are being deleted."""
        self._by_label: dict[Label, dict[Features, None]] = {}
        self._requested: dict[Demand, DomainCounts] = {}
        self._asking: SelectorIndex[Demand] = SelectorIndex()

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
        self.terminating += bool(moved)

    def remove_node(self, row: int) -> None:
        self.labels.remove(row)
        self.version += 1
        self.terminating += 1

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
        self.terminating += 1

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
        self.terminating += bool(features.anti) and not trial

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
        found = self._requested.get(key)
        if found is None:
            if len(self._requested) >= ASKED_KEPT:
                self._forget()
            found = self._requested[key] = DomainCounts()
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
        for hint in self._preferred.index.candidates(labels):
            if hint.term.selects(namespace, plain, self.namespaces):
                yield hint, self._preferred.where[hint]

    @property
    def any_refusing(self) -> bool:
        return bool(self._anti.where)

    @property
    def any_wishing(self) -> bool:
        return bool(self._preferred.where)

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
                self._requested[key].add(self.labels.domain(topology, row), change)
                seen |= change > 0 or going > 0
        self.arrivals += seen
        if number:
            for term in features.anti:
                self._anti.add(term, term.selector, self.labels.domain(term.topology, row), number)
            for hint in features.preferred:
                self._preferred.add(hint, hint.term.selector, self.labels.domain(hint.term.topology, row), number)
        return seen

    def _on(self, row: int) -> list[tuple[Features, int, int]]:
        """Return what stands on a row: pods of each kind, and how many of them are going."""
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
        self._requested.clear()
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
