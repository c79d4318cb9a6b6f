"""What of a placed pod matters to the placing of others, and the terms by which pods ask for one another."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pumice.engine.state.selectors import Requirements, match_all

Namespaces = Mapping[str, Mapping[str, str]]
"""Labels of the namespaces that are known, by name."""


class PodTerm(Struct, frozen=True, cache_hash=True):
    """Which pods, seen over which topology: those in ``namespaces`` or in a namespace whose labels meet ``spaces``
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
    """What of a placed pod matters to the placing of others. Interned: equal pods share one object."""

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    anti: tuple[PodTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    volumes: tuple[str, ...] = ()
