"""The seed of random cases."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest

OF_THIS_RUN = "PUMICE_RUN_SEED"
"""Set by the first process of a run, so that all workers of pytest-xdist collect the same cases."""


def chosen_seed() -> int:
    """Return the seed of PUMICE_SEED; else 1 where PUMICE_CI is set, so that what gates a change tries the same cases each time;
    else a random one, the same in all processes of a run."""
    chosen = int(os.environ.get("PUMICE_SEED", "0")) or (1 if os.environ.get("PUMICE_CI") else 0)
    return chosen or int(os.environ.setdefault(OF_THIS_RUN, str(random.randrange(1, 1 << 30))))


def some_of(cases: Iterable[Any], count: int) -> list[Any]:
    """Return the cases as parameters of a test: ``count`` of them, drawn by the seed, for `make test`, all others for the soak.
    A tuple is one case of a test with several parameters."""
    every = list(cases)
    drawn = set(random.Random(chosen_seed()).sample(range(len(every)), min(count, len(every))))
    return [case if at in drawn else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.soak)
            for at, case in enumerate(every)]
