"""The seed of random cases."""

from __future__ import annotations

import os
import random

OF_THIS_RUN = "PUMICE_RUN_SEED"
"""Set by the first process of a run, so that all workers of pytest-xdist collect the same cases."""


def chosen_seed() -> int:
    """Return the seed of PUMICE_SEED; else 1 where PUMICE_CI is set, so that what gates a change tries the same cases each time;
    else a random one, the same in all processes of a run."""
    chosen = int(os.environ.get("PUMICE_SEED", "0")) or (1 if os.environ.get("PUMICE_CI") else 0)
    return chosen or int(os.environ.setdefault(OF_THIS_RUN, str(random.randrange(1, 1 << 30))))
