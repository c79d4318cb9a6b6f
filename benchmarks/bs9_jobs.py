"""BS9, Jobs: one of 1,000 pods, thousands of one pod beside as many bare pods, and what is left of them after ten rounds.

    python -m benchmarks.bs9_jobs [--server auto|kube|embedded] [--nodes N] [--pods N] [--repeats N] [--quick] [--save]

Scheduler and controller run as processes of their own. ``large``: one Job of 1,000 pods in four tasks, from its create
received to the last of its pods answered; no kubelet is there until all are bound. ``small``: that many (3,400 in each of three
repeats) Jobs of one pod are created at once, 32 requests at a time, and in turn with them as many bare pods, for which the same
controller writes PodGroups; a rate goes from the first create received to the last Binding answered. ``lives``: ten rounds of 500
Jobs of one pod that come at once, are run by a kubelet as soon as they are bound, succeed when all have run, and are deleted;
each must be Completed with its count, and no PodGroup may be left. Writes are the controller's, by user agent, events
apart, over whole lives; so is its processor time; its resident memory is read after each round.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.end_to_end.contenders import OursWhole
from benchmarks.end_to_end.load import bounded, check, clean, make_pod, prepare
from benchmarks.end_to_end.measures import Figures, burst, settled
from benchmarks.end_to_end.options import Options, medians, options_of, progress
from benchmarks.end_to_end.server import Server, api_server
from benchmarks.goals import Goal, goals_of
from benchmarks.report import conclude
from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json
from pumice.wire import kinds, volcano

MINUTES = 10
LARGE, TASKS = 1000, 4
ROUNDS, LIVES = 10, 500
AGENT = "pumice-controller"
OF_JOBS = ("jobs", "podgroups", "pods")


def make_job(name: str, index: int, replicas: int = 1, tasks: int = 1) -> Json:
    """A Job whose pods are those of the other benchmarks."""
    template = {"spec": {**make_pod(name, index)["spec"], "restartPolicy": "Never"}}
    each = [{"name": f"t{number}", "replicas": replicas // tasks, "template": template} for number in range(tasks)]
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulerName": "volcano", "queue": "default", "minAvailable": replicas, "tasks": each}}  # fmt: skip


def pods_of(name: str, replicas: int = 1, tasks: int = 1) -> set[str]:
    return {f"{name}-t{number}-{index}" for number in range(tasks) for index in range(replicas // tasks)}


async def create_jobs(kube: KubeClient, jobs: Iterable[Json]) -> None:
    bodies = [json.dumps(obj).encode() for obj in jobs]
    await bounded(kube.request("POST", volcano.JOBS.path("default"), body=body) for body in bodies)


def said(phase: str) -> Json:
    """Return the pod's status as a kubelet writes it."""
    container: Json = {"name": "c", "image": "x", "imageID": "", "ready": phase == "Running", "restartCount": 0}
    return {"status": {"phase": phase, "containerStatuses": [container]}}


async def tell(kube: KubeClient, pods: set[str], phase: str) -> None:
    """Return the statuses that their kubelets would write."""
    await bounded(kube.patch(kinds.PODS, name, said(phase), "default", subresource="status") for name in sorted(pods))


@asynccontextmanager
async def kubelets(kube: KubeClient) -> AsyncIterator[None]:
    """Whatever is bound runs."""
    room = asyncio.Semaphore(32)

    async def run(name: str) -> None:
        async with room:
            await kube.patch(kinds.PODS, name, said("Running"), "default", subresource="status")

    async def watch(group: asyncio.TaskGroup) -> None:
        async for event in kube.watch(kinds.PODS, "default", field_selector="status.phase=Pending"):
            if event.type in ("ADDED", "MODIFIED") and (pod := json.loads(event.raw))["spec"].get("nodeName"):
                group.create_task(run(pod["metadata"]["name"]))

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(group))
        yield
        watching.cancel()


async def run_and_end(server: Server, jobs: dict[str, int], pods: set[str]) -> None:
    """From Running, which their kubelets said, to the end of Jobs, of which each has so many pods."""
    await comes(lambda: check_jobs(server.kube, jobs, "Running", "running"))
    await tell(server.kube, pods, "Succeeded")
    await comes(lambda: check_jobs(server.kube, jobs, "Completed", "succeeded"))
    await comes(lambda: check_groups(server.kube))
    await settled(server)


async def comes(check: Callable[[], Awaitable[None]], seconds: float = 60.0) -> None:
    """Until the check holds. Raises its AssertionError when that takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.3)


def writes(server: Server) -> int:
    """The controller's, on Jobs and what is made for them."""
    server.log.read()
    words = ((what.split(), count) for what, count in server.log.kinds.items())
    return sum(count for (agent, _, kind), count in words if agent == AGENT and kind.partition("/")[0] in OF_JOBS)


async def check_jobs(kube: KubeClient, jobs: dict[str, int], phase: str, counted: str) -> None:
    """Raises AssertionError where a Job's status is not right."""
    found = {obj["metadata"]["name"]: obj.get("status", {}) for obj in (await kube.list(volcano.JOBS, "default"))["items"]}
    status = {name: found.get(name, {}) for name in jobs}
    wrong = {name: said for name, said in status.items()
             if (said.get("state", {}).get("phase"), said.get(counted)) != (phase, jobs[name])}  # fmt: skip
    assert not wrong, f"{len(wrong)} of {len(jobs)} Jobs are not {phase} with {counted} right: {next(iter(wrong.items()))}"


async def check_groups(kube: KubeClient) -> None:
    left = [each["metadata"]["name"] for each in (await kube.list(volcano.POD_GROUPS, "default"))["items"]]
    assert not left, f"{len(left)} PodGroups are left: {left[:3]}"


async def wipe(server: Server) -> None:
    """There is no garbage collector on the server."""
    await server.kube.request("DELETE", volcano.JOBS.path("default"))
    await clean(server.kube)
    await settled(server)


async def large(server: Server, name: str, size: int) -> Figures:
    """One Job of many pods. Its pods are created once the scheduler has let its group in."""
    async with OursWhole(server) as running:
        await settled(server)
        server.log.mark()
        running.controller.mark()
        began = time.time()
        await create_jobs(server.kube, [make_job(name, 0, size, TASKS)])
        pods = pods_of(name, size, TASKS)
        await server.log.until_bound(pods, 120)
        result: Figures = {
            "pods_created_s": max(server.log.created[pod] for pod in pods) - began,
            "pods_bound_s": max(server.log.bound[pod] for pod in pods) - began,
        }
        await check(server.kube, pods)
        await tell(server.kube, pods, "Running")
        await run_and_end(server, {name: size}, pods)
        result["cpu_ms_per_pod"] = running.controller.cpu_since_mark() / size * 1000
        result["status_writes"] = writes(server) - size - 2  # its pods, and its group made and deleted
        await wipe(server)
    return result


async def small(server: Server, name: str, count: int) -> Figures:
    """Many Jobs of one pod, at once."""
    async with OursWhole(server):
        await settled(server)
        server.log.mark()
        jobs = {f"{name}-{number}": 1 for number in range(count)}
        began = time.time()
        await create_jobs(server.kube, (make_job(job, number) for number, job in enumerate(jobs)))
        pods = {pod for job in jobs for pod in pods_of(job)}
        await server.log.until_bound(pods, 240)
        result: Figures = {"pods_per_s": count / (max(server.log.bound[pod] for pod in pods) - began)}
        result["writes_until_bound"] = writes(server) / count
        result["conflicts"] = server.log.refused[AGENT, 409]
        await check(server.kube, pods)
        await wipe(server)
    return result


async def lives(server: Server, count: int, rounds: int) -> tuple[Figures, list[float]]:
    """The controller's cost of a Job in its life, and the controller's resident MiB after each round of Jobs."""
    course, written, spent = list[float](), 0, 0.0
    async with OursWhole(server) as running:
        for number in range(rounds):
            server.log.mark()
            running.controller.mark()
            jobs = {f"r{number}-{index}": 1 for index in range(count)}
            pods = {pod for job in jobs for pod in pods_of(job)}
            async with kubelets(server.kube):
                await create_jobs(server.kube, (make_job(job, index) for index, job in enumerate(jobs)))
                await server.log.until_bound(pods, 120)
                await run_and_end(server, jobs, pods)
            written += writes(server)
            spent += running.controller.cpu_since_mark()
            await wipe(server)
            course.append(round(running.controller.resident_mib(), 1))
            progress(f"round {number + 1}/{rounds}", {"resident_mib": course[-1], "writes_a_job": written / count / (number + 1)})
    over = count * rounds
    return {"writes_per_job": round(written / over, 2), "cpu_ms_per_job": round(spent / over * 1000, 3)}, course


async def run(options: Options) -> dict[str, Any]:
    found: dict[str, list[Figures]] = {"large": [], "jobs": [], "bare": []}
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        size = LARGE // 10 if options.quick else LARGE
        await large(server, "warm", size // 5)
        for number in range(options.repeats):
            found["large"].append(await large(server, f"large-{number}", size))
            progress(f"large {number + 1}/{options.repeats}", found["large"][-1])
            found["bare"].append(await burst(server, OursWhole(server), options.pods, f"bare-{number}"))
            progress(f"bare {number + 1}/{options.repeats}", found["bare"][-1])
            found["jobs"].append(await small(server, f"small-{number}", options.pods))
            progress(f"jobs {number + 1}/{options.repeats}", found["jobs"][-1])
        life, course = await lives(server, *((LIVES // 10, 2) if options.quick else (LIVES, ROUNDS)))
        result: dict[str, Any] = {
            "api_server": server.name, "nodes": options.nodes, "small_jobs": options.pods, "pods_of_large_job": size,
            **{name: medians(runs) for name, runs in found.items()}, "lives": life, "resident_mib_after_each_round": course,
        }  # fmt: skip
        result["jobs_to_bare_pods"] = round(result["jobs"]["pods_per_s"]["median"] / result["bare"]["pods_per_s"]["median"], 3)
        result["growth_percent"] = round((course[-1] / course[len(course) // 3] - 1) * 100, 2)
        return result


def goals(result: dict[str, Any]) -> list[Goal]:
    life, one = result["lives"], result["large"]
    return goals_of("bs9_jobs", {
        "a Job of 1,000 pods: all created": one["pods_created_s"]["median"],
        "a Job of 1,000 pods: controller CPU a pod": one["cpu_ms_per_pod"]["median"],
        "Jobs of one pod: rate to that of bare pods": result["jobs_to_bare_pods"],
        "Jobs of one pod: controller CPU a Job": life["cpu_ms_per_job"],
        "Jobs of one pod: writes of the controller in its life": life["writes_per_job"],
        "controller's growth from the fourth round to the tenth": result["growth_percent"],
    })  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = options_of(__doc__, argv, nodes=1000, pods=3400, repeats=3)
    result = asyncio.run(run(options))
    return conclude(f"bs9_jobs_{options.server}", result, goals(result), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
