"""Forecast of starts: the engine played forward over and over, each time with other run times, drawn from recorded ones.

Who runs and holds devices ends after a time that is drawn on condition that it has run for so long already; who waits runs, once
started, for a time that is drawn as well. Pods that come later are not foreseen.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from pumice.scheduler.engine import Engine
from pumice.simulation.play import PodRun, Simulation
from pumice.wire.held_shares import limits_of, owner_of, request_of
from pumice.wire.share_hours import STEPS, RunKey, clean, seconds_of
from pumice.wire.times import seconds

DRAWS = 39
"""Plays. The truth is as likely below the 4th of them as above the 36th: a tenth each, for it is one more draw."""
FEWEST = 5
"""Recorded runs by which one of a group is told; with fewer, a wider group counts."""

Steps = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Start:
    """One pod. Seconds from now; None: later than all that was played. ``why``: in place of them, a reason."""

    pod: str
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    why: str = ""


@dataclass(slots=True)
class RunTimes:
    """Recorded run times by groups, from narrow to wide: the same owner and request, the owner, the request in the queue, the
    namespace, all."""

    groups: dict[tuple[str, ...], dict[int, int]] = field(default_factory=dict)
    _made: dict[tuple[str, ...], tuple[list[int], list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, recorded: Iterable[tuple[RunKey, Steps]]) -> RunTimes:
        found = cls()
        for key, steps in recorded:
            for group in _groups(key):
                sums = found.groups.setdefault(group, {})
                for step, count in steps.items():
                    sums[step] = sums.get(step, 0) + count
        return found

    def draw(self, key: RunKey, ran: float, rng: random.Random) -> float | None:
        """Seconds that one that ran for ``ran`` runs still; None where nothing is recorded of any that ran for longer."""
        for group in _groups(key):
            if group not in self.groups:
                continue
            steps, above = self._table(group)
            first = bisect_right([seconds_of(step + 1) for step in steps], ran)
            if first == len(steps) or above[-1] - (above[first - 1] if first else 0) < (FEWEST if group else 1):
                continue
            below = above[first - 1] if first else 0
            at = bisect_right(above, below + rng.randrange(above[-1] - below))
            low, high = max(ran, seconds_of(steps[at])), seconds_of(steps[at] + 1)
            return low + rng.random() * (high - low) - ran
        return None

    def _table(self, group: tuple[str, ...]) -> tuple[list[int], list[int]]:
        made = self._made.get(group)
        if made is None:
            steps = sorted(step for step in self.groups[group] if 0 <= step < STEPS)
            made = self._made[group] = steps, list(accumulate(self.groups[group][step] for step in steps))
        return made


def _groups(key: RunKey) -> Sequence[tuple[str, ...]]:
    namespace, queue, owner, request = key
    return (namespace, queue, owner, request), (namespace, owner), ("", queue, request), (namespace,), ()


def run_key(run: PodRun, queue: str) -> RunKey:
    """Under what a pod's run time is recorded; its request is empty where it asks for no devices."""
    limits = limits_of(container.resources for container in run.pod.spec.containers)
    meta = run.pod.metadata
    return meta.namespace, queue, clean(owner_of(meta)), clean(request_of(limits))


def starts(played: Callable[[], Simulation], empty: Engine, times: RunTimes, wanted: Iterable[str] | None = None, *,
           seed: int = 1, draws: int = DRAWS) -> list[Start]:  # fmt: skip
    """The starts of pods that wait (by key; all without ``wanted``). ``played`` makes the cluster as it is; ``empty`` is one
    with its nodes and queues, and no pods."""
    rng = random.Random(seed)
    first = played()
    waiting = [run for run in first.runs if run.started is None and (wanted is None or run.key in set(wanted))]
    found, asked = {}, []
    for run in waiting:
        cls = empty.state.classes.of(run.pod)
        if cls.refusals or empty.placer.choose(cls) is None:
            found[run.key] = Start(run.key, why="never: no node could take it, were it empty")
        else:
            asked.append(run.key)
    if asked and not times.groups:
        found |= {key: Start(key, why="unknown: no run times are recorded") for key in asked}
        asked = []
    seen: dict[str, list[float]] = {key: [] for key in asked}
    for number in range(draws if asked else 0):
        for key, at in _one(first if number == 0 else played(), times, set(asked), rng).items():
            seen[key].append(at)
    for key in asked:
        found[key] = _spread(key, sorted(seen[key]), draws)
    return [found[run.key] for run in waiting]


def _one(simulation: Simulation, times: RunTimes, asked: set[str], rng: random.Random) -> dict[str, float]:
    """One play: the seconds after which each of those asked for starts; infinite where it does not."""
    for run in simulation.runs_alive():
        task = simulation.engine.state.tasks.get(run.pod.metadata.uid)
        key = run_key(run, task.job.queue.name if task is not None and task.job is not None else "")
        ran = max(0.0, simulation.begin - seconds(run.pod.status.start_time)) if run.started is not None else 0.0
        if not key[3]:
            continue  # what holds no devices stays: of it nothing is recorded
        deadline = run.pod.spec.active_deadline_seconds
        still = times.draw(key, ran, rng)
        if still is None and run.started is not None:
            still = ran / (1.0 - rng.random()) - ran  # as long again, by even chance, where nothing is known but its age
        bound = max(0.0, deadline - ran) if deadline is not None else inf
        simulation.runs_for(run, min(inf if still is None else still, bound))
    targets = [run for run in simulation.runs if run.key in asked]
    for _ in simulation.play(()):
        if all(run.started is not None for run in targets):
            break
    return {run.key: inf if run.started is None else run.started for run in targets}


def _spread(key: str, at: Sequence[float], draws: int) -> Start:
    """The order statistics below which a further draw falls with these chances."""
    def place(part: float) -> float | None:
        found = at[max(0, min(draws - 1, round(part * (draws + 1)) - 1))]
        return None if found == inf else found

    if all(each == inf for each in at):
        return Start(key, why=f"unknown: it starts in none of {draws} plays; its conditions are told by `pumice explain pod`")
    return Start(key, place(0.1), place(0.5), place(0.9))
