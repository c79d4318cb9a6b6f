"""reclaim: a queue gets back what others borrowed of its share (spec volcano-core 10.5)."""

from __future__ import annotations

from pumice.engine.cycle.actions.starving import claimants, settle, starving
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.room.making import Making
from pumice.engine.cycle.room.scope import between_queues


def reclaim(cycle: Cycle) -> None:
    making = Making(cycle, between_queues(cycle.framework))
    for job in starving(cycle, "reclaim", lambda queue: not cycle.framework.overused(queue)):
        settle(cycle, making, job, making.for_job(job, claimants(cycle, job)))
