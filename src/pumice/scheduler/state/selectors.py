"""Label selectors of nodes as arrays of label codes, one column per label key: a selector is judged for all nodes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pumice.wire.objects import NAME_FIELD, Requirement, Requirements


class LabelTable:
    """Labels of nodes by row, as integer codes per key; -1 where the node lacks the label. Columns are made when first
    asked for and kept up to date from then on."""

    def __init__(self) -> None:
        self._labels: dict[int, tuple[str, Mapping[str, str]]] = {}
        self._codes: dict[str, NDArray[np.int32]] = {}
        self._values: dict[str, dict[str, int]] = {}
        self._capacity = 16

    def put(self, row: int, name: str, labels: Mapping[str, str], capacity: int) -> None:
        self._labels[row] = (name, labels)
        if capacity > self._capacity:
            self._capacity = capacity
            for key, codes in self._codes.items():
                longer = np.full(capacity, -1, np.int32)
                longer[: len(codes)] = codes
                self._codes[key] = longer
        for key, codes in self._codes.items():
            codes[row] = self._code(key, name if key == NAME_FIELD else labels.get(key))

    def has(self, row: int, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether that row stands for this node with just these labels."""
        return self._labels.get(row) == (name, labels)

    def domain(self, key: str, row: int) -> int:
        """The code of a row's label; the row itself for the empty key."""
        return int(self.codes(key)[row]) if key else row

    def domains(self, key: str) -> int:
        """Return how many codes a label has; as many as rows for the empty key."""
        return len(self._values.get(key, ())) if key else self._capacity

    def remove(self, row: int) -> None:
        self._labels.pop(row, None)
        for codes in self._codes.values():
            codes[row] = -1

    def codes(self, key: str) -> NDArray[np.int32]:
        found = self._codes.get(key)
        if found is None:
            found = np.full(self._capacity, -1, np.int32)
            for row, (name, labels) in self._labels.items():
                found[row] = self._code(key, name if key == NAME_FIELD else labels.get(key))
            self._codes[key] = found
        return found

    def matches(self, requirement: Requirement) -> NDArray[np.bool_]:
        """Return which rows satisfy one requirement (rows without a node: as if they had no labels)."""
        codes = self.codes(NAME_FIELD if requirement.field else requirement.key)
        values = self._values.get(NAME_FIELD if requirement.field else requirement.key, {})
        verdicts = np.zeros(len(values) + 1, bool)  # the last entry answers for code -1
        for value, code in values.items():
            verdicts[code] = requirement.accepts(value)
        verdicts[-1] = requirement.accepts(None)
        return np.asarray(verdicts[codes])

    def match_all(self, requirements: Sequence[Requirement] | None) -> NDArray[np.bool_]:
        if requirements is None:
            return np.zeros(self._capacity, bool)
        found = np.ones(self._capacity, bool)
        for requirement in requirements:
            found &= self.matches(requirement)
        return found

    def match_any(self, terms: Sequence[Requirements | None]) -> NDArray[np.bool_]:
        found = np.zeros(self._capacity, bool)
        for term in terms:
            found |= self.match_all(term)
        return found

    def _code(self, key: str, value: str | None) -> int:
        if value is None:
            return -1
        values = self._values.setdefault(key, {})
        return values.setdefault(value, len(values))
