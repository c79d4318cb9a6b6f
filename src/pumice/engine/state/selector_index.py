"""Finding what selects a pod, and which pods are selected, without asking each of them: by label pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from pumice.engine.state.selectors import Requirements

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
        """What may select a pod with these labels, each once; whether it does is still to be asked."""
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
