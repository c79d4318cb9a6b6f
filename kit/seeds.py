"""The seed of random cases."""

from __future__ import annotations

import os
import random
from typing import Any

from pumice.cel.evaluation import compiled
from pumice.cel.running import Budget


def chosen_seed() -> int:
    """What PUMICE_SEED says; else 1 where PUMICE_CI is set, for what gates a change tries the same cases each time; else any."""
    return int(os.environ.get("PUMICE_SEED", "0")) or (1 if os.environ.get("PUMICE_CI") else random.randrange(1, 1 << 30))


# -- Expressions on an object that has something of everything


SELF = {
    "name": "n", "size": 3, "ratio": 0.5, "words": ["a", "b"], "empty": [], "amount": "3Gi", "none": None,
    "labels": {"k/x": "v"}, "parts": [{"name": "a", "limits": {"mem": "3Gi"}}, {"name": "b"}],
}  # fmt: skip
NAMES = frozenset(("self", "later"))


def value(text: str, budget: Budget | None = None) -> Any:
    return compiled(text, NAMES)({"self": SELF, "later": lambda: 7}, budget)
