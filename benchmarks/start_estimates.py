"""Does the true start lie in the spread of `pumice explain --start`? Cases whose run times are known to the one who made them.

A case is a small cluster with pods that run and wait, and a record of run times of the same distributions. The truth is one
play of the engine with run times drawn from those themselves; the estimate knows the record alone.

    python -m benchmarks.start_estimates [--quick] [--save] [--cases 1000] [--seed 1]
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import Any

from kit.objects import node, pod
from kit.results import arguments, save
from kit.scheduler_confs import conf, sharing

from benchmarks.report import SHORT
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.simulation.play import Simulation
from pumice.simulation.starts import RunTimes, starts
from pumice.wire.share_hours import RunKey, step_of
from pumice.wire.times import stamp

MINUTES = 10
NOW = 1_800_000_000.0
CONF = conf("priority", "gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), "proportion")
RECORDED = 400
"""Runs of each owner."""


@dataclass(frozen=True)
class World:
    case: ClusterSnapshot
    still: dict[str, float]
    """The truth: how long each pod runs still, or will run."""
    times: RunTimes
    target: str


@dataclass(frozen=True)
class Owner:
    """Its pods run for a lognormal time."""

    name: str
    memory: int
    median: float
    sigma: float

    def time(self, rng: random.Random, ran: float = 0.0) -> float:
        while (found := self.median * rng.lognormvariate(0.0, self.sigma)) <= ran:
            pass
        return found


def world_of(rng: random.Random) -> World:
    """Cards are full; some pods wait, and the last of them is asked for."""
    owners = [Owner(f"owner{chr(97 + n)}", rng.choice((4000, 8000)), rng.choice((600, 3600, 14400)), rng.uniform(0.3, 1.2))
              for n in range(3)]  # fmt: skip
    nodes = [node(f"n{n}", cards=rng.randrange(1, 4), mib=8000) for n in range(rng.randrange(1, 4))]
    still: dict[str, float] = {}
    pods: list[dict[str, Any]] = []
    recorded: dict[RunKey, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for owner in owners:
        key = "default", "default", owner.name, f"vgpu-memory={owner.memory},vgpu-number=1"
        for _ in range(RECORDED):
            recorded[key][step_of(owner.time(rng))] += 1
    for place, each in enumerate(nodes):
        for entry in filter(None, each["metadata"]["annotations"]["volcano.sh/node-vgpu-register"].split(":")):
            uuid, owner = entry.partition(",")[0], rng.choice(owners)
            for _ in range(8000 // owner.memory):
                ran = rng.uniform(0, owner.median)
                made = pod(f"{owner.name}-{len(pods)}", mib=owner.memory,
                           annotations={"volcano.sh/vgpu-ids-new": f"{uuid},NVIDIA,{owner.memory},0:"})  # fmt: skip
                made["spec"]["nodeName"] = f"n{place}"
                made["status"] = {"phase": "Running", "startTime": stamp(NOW - int(ran))}
                still[f"default/{made['metadata']['name']}"] = owner.time(rng, int(ran)) - int(ran)
                pods.append(made)
    for number in range(rng.randrange(1, 8)):
        owner = rng.choice(owners)
        made = pod(f"{owner.name}-{len(pods)}", mib=owner.memory)
        made["metadata"]["creationTimestamp"] = stamp(NOW - 600 + number)
        still[f"default/{made['metadata']['name']}"] = owner.time(rng)
        pods.append(made)
    target = f"default/{pods[-1]['metadata']['name']}"
    case = ClusterSnapshot(now=NOW, scheduler_conf=CONF, objects={"nodes": nodes, "pods": pods})
    return World(case, still, RunTimes.of(recorded.items()), target)


def truth(world: World) -> float:
    simulation = Simulation(engine_of(world.case), NOW, world.case.objects)
    for run in simulation.runs_alive():
        simulation.runs_for(run, world.still[run.key])
    for _ in simulation.play(()):
        pass
    found = next(run for run in simulation.runs if run.key == world.target)
    return inf if found.started is None else found.started


def judged(cases: int, seed: int) -> dict[str, Any]:
    """How often the truth lay in the spread, and on which side it was outside."""
    below = inside = above = unknown = 0
    for number in range(cases):
        rng = random.Random(f"{seed}/{number}")
        world = world_of(rng)
        empty = engine_of(ClusterSnapshot(now=NOW, scheduler_conf=CONF, objects={"nodes": world.case.objects["nodes"]}))
        (found,) = starts(lambda world=world: Simulation(engine_of(world.case), NOW, world.case.objects), empty, world.times,  # type: ignore[misc]
                          {world.target}, seed=rng.randrange(2**32))  # fmt: skip
        at = truth(world)
        if found.p10 is None:
            unknown += 1
        elif at < found.p10:
            below += 1
        elif found.p90 is not None and at > found.p90:
            above += 1
        else:
            inside += 1
    return {"cases": cases, "seed": seed, "inside": inside, "below": below, "above": above, "unknown": unknown,
            "coverage": inside / cases}  # fmt: skip


def main() -> int:
    options = arguments(__doc__, quick="three cases")
    options.add_argument("--cases", type=int, default=1000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    begin = time.process_time()
    found = judged(3 if given.quick else given.cases, given.seed)
    save("start_estimates", {**found, "cpu_seconds": round(time.process_time() - begin, 1)}, keep=given.save)
    return SHORT if found["unknown"] or (not given.quick and not 0.75 <= found["coverage"] <= 0.85) else 0


if __name__ == "__main__":
    sys.exit(main())
