"""Actions of a cycle, one file each."""

from collections.abc import Callable, Mapping

from pumice.engine.actions.allocate import allocate
from pumice.engine.actions.backfill import backfill
from pumice.engine.actions.enqueue import enqueue
from pumice.engine.cycle import Cycle

ACTIONS: Mapping[str, Callable[[Cycle], None]] = {"enqueue": enqueue, "allocate": allocate, "backfill": backfill}
