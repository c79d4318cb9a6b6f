"""openb with pods that come and go: the tasks of the trace at a steady load, those that fit nowhere are lost.

    python -m benchmarks.openb_churn DATA [--quick] [--save] [--streams 5] [--policies lookahead,binpack] [--cells default@0.95]
                                          [--runs FILE]

DATA and ``--runs`` as in ``benchmarks.openb``. Tasks of a list come as a Poisson stream that offers 0.95 or 1.1 of the GPUs and
live for a lognormal time of mean 1 and sigma 1; after 3 such lives the next 5 are measured: which part of the GPUs that were
asked for was lost, and which is allocated on average. The scheduler's own placer decides and books, one pod at a time.
``best-fit`` is a plain model of the published policy (the least of free cpu and GPUs left, weighted alike): beside it a policy
of ours is judged, for one that fills an empty cluster well may leave no whole node to pods of eight cards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.kept_runs import KeptRuns
from benchmarks.openb import capacity_of, engine_of, machines_of, request, requests, tasks_in
from benchmarks.report import conclude
from pumice.scheduler.state.ledger import Holding
from pumice.simulation.changes import with_policy
from pumice.simulation.manifests import Json
from pumice.simulation.trace import THOUSANDTHS, Task
from pumice.wire import names
from pumice.wire.objects import Pod, convert
from pumice_lab.first_objects import SCHEDULER_CONF

MINUTES = 60
CELLS = tuple(f"{pods}@{load}" for pods in ("default", "gpushare100", "multigpu50") for load in (0.95, 1.1))
BEST_FIT = "best-fit"
SHIPPED = "lookahead"
WARM, MEASURED = 3.0, 5.0
Leave = Callable[[], None]


class Placing:
    """The scheduler's placer under a policy."""

    def __init__(self, policy: str, machines: Sequence[Json]) -> None:
        self._engine = engine_of(with_policy(SCHEDULER_CONF, policy), machines)

    def place(self, number: int, task: Task) -> Leave | None:
        """Book the task and return what takes it away again; None where it fits nowhere."""
        state, placer = self._engine.state, self._engine.placer
        pod = convert(Pod, request(number, task))
        state.pods.put(pod, 0.0)
        booked = state.tasks[pod.metadata.uid]
        choice = placer.choose(booked.cls)
        if choice is None:
            state.pods.drop(pod)
            state.scheduling_queue.unschedulable_now.clear()
            return None
        state.ledger.reserve(Holding(booked.uid, choice.node, booked.request, choice.allocations))
        return lambda: state.pods.drop(pod)


class BestFit:
    """Of the nodes that a task fits on the one with the least cpu and GPUs left, weighted alike; on it the tightest cards."""

    def __init__(self, machines: Sequence[Json]) -> None:
        have = [obj["status"]["allocatable"] for obj in machines]
        self._cpu = np.array([int(each["cpu"][:-1]) for each in have], np.int64)
        self._memory = np.array([int(each["memory"][:-2]) for each in have], np.int64)
        cards = np.array([int(each[names.VGPU_CORES]) // 100 for each in have])
        self._cards = np.where(np.arange(cards.max()) < cards[:, None], THOUSANDTHS, -1)
        self._most = float(self._cpu.max()), float(cards.max() * THOUSANDTHS)

    def place(self, number: int, task: Task) -> Leave | None:
        """As ``Placing.place``."""
        asked = requests(task.template)
        cpu, memory = int(asked["cpu"][:-1]), int(asked["memory"][:-2])
        count, share = int(asked.get(names.VGPU_NUMBER, 0)), int(asked.get(names.VGPU_MEMORY, 0))
        fits = (self._cpu >= cpu) & (self._memory >= memory)
        if count:
            fits &= (self._cards >= share).sum(axis=1) >= count
        if not fits.any():
            return None
        left = self._cpu / self._most[0] + np.maximum(self._cards, 0).sum(axis=1) / self._most[1]
        at = int(np.where(fits, left, np.inf).argmin())
        fitting = np.flatnonzero(self._cards[at] >= share)
        chosen = fitting[np.argsort(self._cards[at, fitting], kind="stable")[:count]]

        def change(sign: int) -> None:
            self._cpu[at] += sign * cpu
            self._memory[at] += sign * memory
            self._cards[at, chosen] += sign * share

        change(-1)
        return lambda: change(1)


def stream(policy: str, data: Path, tasks: Sequence[Task], load: float, seed: int) -> dict[str, float]:
    """Per cent of what was asked for that was lost, and of the GPUs that are allocated."""
    machines = machines_of(data, seed)
    place = (BestFit(machines) if policy == BEST_FIT else Placing(policy, machines)).place
    capacity, rng = capacity_of(machines), np.random.default_rng(seed)
    between = fmean([task.thousandths for task in tasks]) / (load * capacity)
    end, now, number, allocated = WARM + MEASURED, 0.0, 0, 0
    asked = lost = 0
    area = 0.0
    leaving: list[tuple[float, int, int, Leave]] = []
    while True:
        arrives = now + rng.exponential(between)
        while leaving and leaving[0][0] <= min(arrives, end):
            at, _, thousandths, leave = heappop(leaving)
            area += allocated * max(0.0, at - max(now, WARM))
            now = max(now, at)
            allocated -= thousandths
            leave()
        area += allocated * max(0.0, min(arrives, end) - max(now, WARM))
        now = arrives
        if now >= end:
            return {"blocked": 100 * lost / asked, "allocated": 100 * area / MEASURED / capacity}
        task, life = tasks[int(rng.integers(len(tasks)))], float(rng.lognormal(-0.5, 1.0))
        leave_it = place(number, task)
        number += 1
        if now >= WARM:
            asked += task.thousandths
            lost += task.thousandths * (leave_it is None)
        if leave_it is not None:
            allocated += task.thousandths
            heappush(leaving, (now + life, number, task.thousandths, leave_it))


def summary(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over streams, and the standard error of what was lost."""
    lost = [run["blocked"] for run in runs]
    error = stdev(lost) / len(lost) ** 0.5 if len(lost) > 1 else 0.0
    return {"blocked": round(fmean(lost), 2), "standard_error": round(error, 2), "streams": len(lost),
            "allocated": round(fmean([run["allocated"] for run in runs]), 2)}  # fmt: skip


def figures(result: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    """The worst cell: how much more the shipped policy loses than the best other one."""
    above = [
        row[SHIPPED]["blocked"] - min(found["blocked"] for policy, found in row.items() if policy != SHIPPED)
        for row in result.values() if SHIPPED in row and len(row) > 1
    ]  # fmt: skip
    return {"worst cell, blocked above the best other policy": max(above)} if len(above) == len(CELLS) else {}


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="one cell, one stream")
    parser.add_argument("data", nargs="?", default=os.environ.get("PUMICE_OPENB"), help="folder of the trace's CSV files")
    parser.add_argument("--streams", type=int, default=5)
    parser.add_argument("--policies", default=f"{SHIPPED},fgd,binpack,{BEST_FIT}")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--runs", default="", help="a file that keeps each run as it ends, and knows those that it has")
    options = parser.parse_args(argv)
    if not options.data:
        print("openb_churn: not run, for the trace is not ours to ship: name its folder, or set PUMICE_OPENB", file=sys.stderr)
        return 0
    data, streams = Path(options.data), 1 if options.quick else options.streams
    cells = CELLS[:1] if options.quick else options.cells.split(",")
    policies, kept = options.policies.split(","), KeptRuns(options.runs)
    found: dict[str, dict[str, list[dict[str, float]]]] = {cell: {policy: [] for policy in policies} for cell in cells}
    for seed in range(42, 42 + streams):  # outside the cells: what is cut off has as many streams of each
        for cell in cells:
            pods, _, load = cell.partition("@")
            tasks = tasks_in(data, pods)
            for policy in policies:
                run = kept.of(f"{cell} {policy} {seed}", partial(stream, policy, data, tasks, float(load), seed))
                found[cell][policy].append(run)
                print(seed, cell, policy, run, file=sys.stderr)
    result: dict[str, Any] = {cell: {policy: summary(runs) for policy, runs in row.items()} for cell, row in found.items()}
    return conclude("openb_churn", result, goals_of("openb_churn", figures(result)), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
