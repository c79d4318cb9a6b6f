"""gangpreempt, gangreclaim: room by pods and by whole gangs (spec volcano-core 10.7).

As preempt and reclaim, but plugin gang, which lets no gang fall under its minimum, is not asked: a gang may go too, then all of
it.
"""

from __future__ import annotations

from pumice.engine.cycle.actions.starving import claimants, settle, starving
from pumice.engine.cycle.cycle import Cycle
from pumice.engine.cycle.room.making import Making
from pumice.engine.cycle.room.scope import between_jobs, between_queues


def gangpreempt(cycle: Cycle) -> None:
    making = Making(cycle, between_jobs(cycle.framework, "gangpreempt", gangs=True))
    for job in starving(cycle, "gangpreempt"):
        settle(cycle, making, job, making.for_job(job, claimants(cycle, job)))


def gangreclaim(cycle: Cycle) -> None:
    making = Making(cycle, between_queues(cycle.framework, "gangreclaim", gangs=True))
    for job in starving(cycle, "gangreclaim", lambda queue: not cycle.framework.overused(queue)):
        settle(cycle, making, job, making.for_job(job, claimants(cycle, job)))
