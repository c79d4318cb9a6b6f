"""Which pods a selector takes, kept as selectors and pods come and go: nobody looks through all pods for one that changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pumice.ports.cluster import Resource
from pumice_lab.controllers.actions import View
from pumice_lab.requirements import matches_selector

Key = tuple[Resource, str]  # a kind that selects, and a uid
Labels = Mapping[str, str]
_Place = tuple[str, str, str]  # a namespace, and a label that whoever is taken must have (empty: none is sure)


class Selecting:
    def __init__(self, pods_in: Callable[[str], Iterable[View]]) -> None:
        """``pods_in`` a namespace: asked once for each new selector."""
        self._pods_in = pods_in
        self._selectors: dict[Key, tuple[_Place, View]] = {}
        self._at: dict[_Place, set[Key]] = {}
        self._members: dict[Key, set[str]] = {}
        self._of: dict[str, set[Key]] = {}

    def put(self, key: Key, namespace: str, selector: View | None) -> None:
        """The selector is new or another one; None takes nobody."""
        place = (namespace, *next(iter(sorted(((selector or {}).get("matchLabels") or {}).items())), ("", "")))
        if self._selectors.get(key) == (place, selector):
            return
        self.drop(key)
        if selector is not None:
            self._selectors[key] = (place, selector)
            self._at.setdefault(place, set()).add(key)
            for pod in self._pods_in(namespace):
                if matches_selector(selector, _labels(pod)):
                    self._take(key, pod["metadata"]["uid"])

    def drop(self, key: Key) -> None:
        known = self._selectors.pop(key, None)
        if known is None:
            return
        for uid in self._members.pop(key, ()):
            self._of[uid].discard(key)
        self._at[known[0]].discard(key)
        if not self._at[known[0]]:
            del self._at[known[0]]

    def see(self, uid: str, namespace: str, pod: View | None) -> set[Key]:
        """A pod has changed, or is gone. Whose it was, and is."""
        before = self._of.pop(uid, set())
        for key in before:
            self._members[key].discard(uid)
        if pod is None or not self._selectors:
            return before
        labels = _labels(pod)
        places = [(namespace, "", ""), *((namespace, name, value) for name, value in labels.items())]
        now = {key for place in places for key in self._at.get(place, ()) if matches_selector(self._selectors[key][1], labels)}
        for key in now:
            self._take(key, uid)
        return before | now

    def members(self, key: Key) -> Iterable[str]:
        return sorted(self._members.get(key, ()))

    def _take(self, key: Key, uid: str) -> None:
        self._members.setdefault(key, set()).add(uid)
        self._of.setdefault(uid, set()).add(key)


def _labels(pod: View) -> Labels:
    return pod["metadata"].get("labels") or {}
