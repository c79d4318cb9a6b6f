"""Numbers of pods per topology domain: a few domains in a dict, many in an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
