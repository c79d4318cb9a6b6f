"""Expressions on an object that has something of everything."""

from __future__ import annotations

from typing import Any

from pumice.cel.evaluation import compiled
from pumice.cel.running import Budget

SELF = {
    "name": "n", "size": 3, "ratio": 0.5, "words": ["a", "b"], "empty": [], "amount": "3Gi", "none": None,
    "labels": {"k/x": "v"}, "parts": [{"name": "a", "limits": {"mem": "3Gi"}}, {"name": "b"}],
}  # fmt: skip
NAMES = frozenset(("self", "later"))


def value(text: str, budget: Budget | None = None) -> Any:
    return compiled(text, NAMES)({"self": SELF, "later": lambda: 7}, budget)
