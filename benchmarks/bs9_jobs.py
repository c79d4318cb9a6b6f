"""BS9, Jobs: one of 1,000 pods, thousands of one pod beside as many bare pods, and what is left of them after ten rounds.

    python -m benchmarks.bs9_jobs [--server auto|kube|embedded] [--nodes N] [--pods N] [--repeats N] [--quick] [--save]

Scheduler and controller run as processes of their own. ``large``: one Job of 1,000 pods in four tasks, from its create
received to the last of its pods answered. ``small``: that many (5,000) Jobs of one pod are created at once, 32 requests at
a time, and in turn with them as many bare pods, for which the same controller writes PodGroups; a rate goes from the first
create received to the last Binding answered. No kubelet is there: once all are bound the load says that the pods run, and
later that they succeeded, so that every Job goes through its life; each must then be Completed with its count, and no
PodGroup may be left. Writes are the controller's, by user agent, events apart: until all run, and until all are over.
``rounds``: ten times a fifth of the Jobs come, end and are deleted; resident memory of the controller after each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.end_to_end.contenders import OursWhole
from benchmarks.end_to_end.load import bounded, check, clean, make_pod, prepare
from benchmarks.end_to_end.measures import Figures, burst, settled
from benchmarks.end_to_end.options import Options, arguments, medians, progress
from benchmarks.end_to_end.server import Server, api_server
from benchmarks.goals import Goal, goals_of
from benchmarks.report import conclude
from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json
from pumice.wire import volcano

MINUTES = 12
LARGE, TASKS = 1000, 4
ROUNDS = 10
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


async def tell(kube: KubeClient, pods: set[str], phase: str) -> None:
    """What their kubelets would say."""
    container: Json = {"name": "c", "image": "x", "imageID": "", "ready": phase == "Running", "restartCount": 0}
    body = {"status": {"phase": phase, "containerStatuses": [container]}}
    await bounded(kube.patch(volcano.PODS, name, body, "default", subresource="status") for name in sorted(pods))


async def through(server: Server, running: OursWhole, jobs: dict[str, int]) -> Figures:
    """From bound to the end of Jobs, of which each has so many pods. The controller's writes, all since the log's mark."""
    pods = {pod["metadata"]["name"] for pod in (await server.kube.list(volcano.PODS, "default"))["items"]
            if pod["metadata"].get("labels", {}).get("volcano.sh/job-name") in jobs}  # fmt: skip
    await settled(server)
    waiting = writes(server)
    await tell(server.kube, pods, "Running")
    await settled(server, 2.5)
    run = writes(server)
    await check_jobs(server.kube, jobs, "Running", "running")
    await tell(server.kube, pods, "Succeeded")
    await settled(server, 2.5)
    over = writes(server)
    await check_jobs(server.kube, jobs, "Completed", "succeeded")
    left = [each["metadata"]["name"] for each in (await server.kube.list(volcano.POD_GROUPS, "default"))["items"]]
    assert not left, f"{len(left)} PodGroups are left: {left[:3]}"
    return {"waiting": waiting, "running": run, "over": over}


def writes(server: Server) -> int:
    """The controller's, on Jobs and what is made for them."""
    server.log.read()
    words = ((what.split(), count) for what, count in server.log.kinds.items())
    return sum(count for (agent, _, kind), count in words if agent == AGENT and kind.partition("/")[0] in OF_JOBS)


async def check_jobs(kube: KubeClient, jobs: dict[str, int], phase: str, counted: str) -> None:
    """Raises AssertionError where a Job's status is not right."""
    found = {obj["metadata"]["name"]: obj.get("status", {}) for obj in (await kube.list(volcano.JOBS, "default"))["items"]}
    wrong = {name: found.get(name) for name, size in jobs.items()
             if (found.get(name, {}).get("state", {}).get("phase"), found[name].get(counted)) != (phase, size)}  # fmt: skip
    assert not wrong, f"{len(wrong)} of {len(jobs)} Jobs are not {phase} with {counted} right: {next(iter(wrong.items()))}"


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
        found = await through(server, running, {name: size})
        result["cpu_ms_per_pod"] = running.controller.cpu_since_mark() / size * 1000
        result["status_writes"] = found["over"] - size - 2  # its pods, and its group made and deleted
        await wipe(server)
    return result


async def small(server: Server, name: str, count: int) -> Figures:
    """Many Jobs of one pod, at once."""
    async with OursWhole(server) as running:
        await settled(server)
        server.log.mark()
        running.controller.mark()
        jobs = {f"{name}-{number}": 1 for number in range(count)}
        began = time.time()
        await create_jobs(server.kube, (make_job(job, number) for number, job in enumerate(jobs)))
        pods = {pod for job in jobs for pod in pods_of(job)}
        await server.log.until_bound(pods, 240)
        result: Figures = {"pods_per_s": count / (max(server.log.bound[pod] for pod in pods) - began)}
        await check(server.kube, pods)
        found = await through(server, running, jobs)
        result["cpu_ms_per_job"] = running.controller.cpu_since_mark() / count * 1000
        result |= {f"writes_until_{what}": number / count for what, number in found.items()}
        result["conflicts"] = server.log.refused[AGENT, 409]
        await wipe(server)
    return result


async def rounds(server: Server, count: int) -> list[float]:
    """Resident MiB of the controller after each round of Jobs."""
    course = []
    async with OursWhole(server) as running:
        for number in range(ROUNDS):
            jobs = {f"r{number}-{index}": 1 for index in range(count)}
            await create_jobs(server.kube, (make_job(job, index) for index, job in enumerate(jobs)))
            await server.log.until_bound({pod for job in jobs for pod in pods_of(job)}, 120)
            await through(server, running, jobs)
            await wipe(server)
            course.append(round(running.controller.resident_mib(), 1))
            progress(f"round {number + 1}/{ROUNDS}", {"resident_mib": course[-1]})
    return course


async def run(options: Options) -> dict[str, Any]:
    found: dict[str, list[Figures]] = {"large": [], "jobs": [], "bare": []}
    async with api_server(options.server) as server:
        await prepare(server.kube, options.nodes)
        size = LARGE // 10 if options.quick else LARGE
        await large(server, "warm", size)
        for number in range(options.repeats):
            found["large"].append(await large(server, f"large-{number}", size))
            progress(f"large {number + 1}/{options.repeats}", found["large"][-1])
            found["bare"].append(await burst(server, OursWhole(server), options.pods, f"bare-{number}"))
            progress(f"bare {number + 1}/{options.repeats}", found["bare"][-1])
            found["jobs"].append(await small(server, f"small-{number}", options.pods))
            progress(f"jobs {number + 1}/{options.repeats}", found["jobs"][-1])
        course = await rounds(server, max(20, options.pods // 5))
        result: dict[str, Any] = {
            "api_server": server.name, "nodes": options.nodes, "small_jobs": options.pods, "pods_of_large_job": size,
            **{name: medians(runs) for name, runs in found.items()}, "resident_mib_after_each_round": course,
        }  # fmt: skip
        result["jobs_to_bare_pods"] = round(result["jobs"]["pods_per_s"]["median"] / result["bare"]["pods_per_s"]["median"], 3)
        result["growth_percent"] = round((course[-1] / course[len(course) // 3] - 1) * 100, 2)
        return result


def goals(result: dict[str, Any]) -> list[Goal]:
    jobs, one = result["jobs"], result["large"]
    return goals_of("bs9_jobs", {
        "a Job of 1,000 pods: all created": one["pods_created_s"]["median"],
        "a Job of 1,000 pods: controller CPU a pod": one["cpu_ms_per_pod"]["median"],
        "Jobs of one pod: rate to that of bare pods": result["jobs_to_bare_pods"],
        "Jobs of one pod: controller CPU a Job": jobs["cpu_ms_per_job"]["median"],
        "Jobs of one pod: writes of the controller until it runs": jobs["writes_until_running"]["median"],
        "Jobs of one pod: writes of the controller in its life": jobs["writes_until_over"]["median"],
        "controller's growth from the fourth round to the tenth": result["growth_percent"],
    })  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = arguments(__doc__ or "", argv, nodes=1000, pods=5000, repeats=3)
    result = asyncio.run(run(options))
    return conclude(f"bs9_jobs_{options.server}", result, goals(result), keep=options.save)


if __name__ == "__main__":
    sys.exit(main())
