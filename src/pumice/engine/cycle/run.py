"""One scheduling cycle: open, the configured actions, close (spec volcano-core 6).

A cycle works on the live state: every tentative step is part of a statement and can be taken back. It makes no call and reads no
clock; what the world shall do comes out as effects.
"""

from __future__ import annotations

from collections.abc import Callable

from pumice.engine.cycle import reserving, resting, status, unplaced, waking
from pumice.engine.cycle.cycle import Cycle, Plan
from pumice.engine.cycle.room.committing import withdraw_idle


def run(cycle: Cycle, actions: list[tuple[str, Callable[[Cycle], None]]]) -> Plan:
    cycle.actions = frozenset(name for name, _ in actions)
    cycle.started = begin = cycle.tick()
    cycle.placer.evaluation.tick, cycle.placer.evaluation.stages = cycle.tick, cycle.measures.stages
    _open(cycle)
    cycle.measures.open = cycle.tick() - begin
    for name, action in actions:
        before = cycle.tick()
        action(cycle)
        cycle.measures.actions[name] = cycle.measures.actions.get(name, 0.0) + cycle.tick() - before
    _close(cycle)
    cycle.measures.total = cycle.tick() - begin
    return Plan(cycle.effects, cycle.measures, cycle.out_of_time())


def _open(cycle: Cycle) -> None:
    waking.wake(cycle)
    for job in cycle.state.scheduling_queue.dirty:
        job.settle()
    for plugin in cycle.framework.plugins:
        before = cycle.tick()
        plugin.open(cycle)
        cycle.measures.plugins[plugin.name, "OnSessionOpen"] = cycle.tick() - before


def _close(cycle: Cycle) -> None:
    withdraw_idle(cycle)
    reserving.reserve(cycle)
    unplaced.explain(cycle)
    for plugin in cycle.framework.plugins:
        before = cycle.tick()
        plugin.close(cycle)
        cycle.measures.plugins[plugin.name, "OnSessionClose"] = cycle.tick() - before
    cycle.effects.extend(status.close(cycle))
    resting.rest(cycle)
    cycle.state.scheduling_queue.close()
