"""``pumice simulate`` places pods where the scheduler daemon places them: the same arrivals and departures, node for node and
card for card."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from kit.scheduler_daemon import CONF, Daemon, daemon
from kit.virtual_time import run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.ports.cluster import Json
from pumice.simulation import manifests
from pumice.simulation.play import Simulation, Submission
from pumice.wire import kinds, names

PODS, APART = 30, 2.0
CARDS = names.VGPU_IDS


def machines() -> list[Json]:
    return [{"apiVersion": "v1", "kind": "Node",
             **manifests.node(f"n{i}", cpu="32", memory="128Gi", model="A100-SXM4-80GB", cards=4, mib=80000)}
            for i in range(2)]  # fmt: skip


def arrivals(seed: int) -> list[Submission]:
    """More than the cards hold at times: some wait until others end. No two things happen at one moment."""
    rng = Random(seed)
    found = []
    for i in range(PODS):
        percent, cards = rng.choice(((20, 1), (35, 1), (50, 1), (100, 1), (100, 2)))
        requested = {"cpu": "1", names.VGPU_NUMBER: str(cards), names.VGPU_MEMORY_PERCENTAGE: str(percent)}
        runs = APART * rng.randrange(6, 40) + 0.6 + 0.02 * i
        found.append(Submission(APART * i, f"p{i:02d}", (manifests.pod(requested),), runs=runs))
    return found


async def live(submissions: list[Submission], running: Daemon) -> dict[str, tuple[str, str]]:
    """What the daemon makes of them, with pods that end as long after their Binding."""
    begin, placed, ends = running.clock.monotonic(), {}, {}
    waiting = {one.name: one for one in submissions}
    while waiting or ends:
        now = running.clock.monotonic()
        pods = await running.cluster.pods()
        for name, one in list(waiting.items()):
            if name not in pods and now >= begin + one.at:
                await running.cluster.create(kinds.PODS, of(one))
            elif name in pods and pods[name]["spec"].get("nodeName"):
                placed[name] = pods[name]["spec"]["nodeName"], pods[name]["metadata"]["annotations"].get(CARDS, "")
                ends[name] = now + one.runs
                del waiting[name]
        for name, at in list(ends.items()):
            if now >= at:
                await running.cluster.delete(kinds.PODS, name, "default", grace=0)
                del ends[name]
        await running.clock.sleep(0.02)
    return placed


def of(submission: Submission) -> dict[str, Any]:
    (template,) = submission.templates
    containers = [{**one, "image": "any"} for one in template["spec"]["containers"]]
    meta = {**template["metadata"], "name": submission.name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta,
            "spec": {**template["spec"], "containers": containers}}


def simulated(submissions: list[Submission]) -> tuple[dict[str, tuple[str, str]], int]:
    case = ClusterSnapshot(now=1e9, scheduler_conf=CONF, objects={"nodes": machines()})
    simulation = Simulation(engine_of(case), case.now, case.objects)
    for _ in simulation.play(submissions):
        pass
    assert not simulation.violations
    waited = sum(1 for run in simulation.runs if run.started is not None and run.started > run.arrived + 1)
    return {run.key.partition("/")[2]: (run.node, run.cards) for run in simulation.runs}, waited


@pytest.mark.parametrize("seed", range(2))
def test_the_daemon_places_every_pod_where_the_simulation_says(seed: int) -> None:
    submissions = arrivals(seed)

    async def main() -> dict[str, tuple[str, str]]:
        unhurried = Settings(budget=1e9)  # a busy machine cuts no cycle short
        async with daemon(*machines(), settings=unhurried) as running:
            return await live(submissions, running)

    expected, waited = simulated(submissions)
    assert waited  # else the order of the queue is not compared
    assert run_virtually(asyncio.wait_for(main(), 1000)) == expected
