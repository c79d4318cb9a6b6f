"""Actions of a cycle, one file each."""

from collections.abc import Callable, Mapping

from pumice.scheduler.cycle.actions.allocate import allocate, backfill
from pumice.scheduler.cycle.actions.defrag import defrag
from pumice.scheduler.cycle.actions.enqueue import enqueue
from pumice.scheduler.cycle.actions.preempt import gangpreempt, gangreclaim, preempt, reclaim, shuffle
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.state.moves import ACTION

ACTIONS: Mapping[str, Callable[[Cycle], None]] = {
    "enqueue": enqueue, "allocate": allocate, "backfill": backfill, "preempt": preempt, "reclaim": reclaim,
    "gangpreempt": gangpreempt, "gangreclaim": gangreclaim, "shuffle": shuffle, ACTION: defrag,
}  # fmt: skip
