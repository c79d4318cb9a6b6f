"""The seed of random cases."""

from __future__ import annotations

import os
import random


def chosen_seed() -> int:
    """What PUMICE_SEED says; else 1 where PUMICE_CI is set, for what gates a change tries the same cases each time; else any."""
    return int(os.environ.get("PUMICE_SEED", "0")) or (1 if os.environ.get("PUMICE_CI") else random.randrange(1, 1 << 30))
