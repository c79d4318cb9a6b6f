"""A Job is deleted while the Jobs controller hears of its pods and not of it (found by the histories of the whole plane)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano
from pumice_jobs.apps.controller import daemon as controller
from pumice_lab.controllers.manager import Controllers, ControllersSettings

JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train", "namespace": "default"},
    "spec": {"schedulerName": "volcano", "minAvailable": 1, "queue": "default", "tasks": [
        {"name": "main", "replicas": 1, "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}]},
}  # fmt: skip


class DeafToJobs(FaultyCluster):
    """Lists and watches of Jobs are not answered while it is ``deaf``; everything else is, of what is made for a Job the
    first forty."""

    deaf, made = False, 0

    async def request(self, verb: str, path: str, **more: Any) -> bytes:
        self.made += verb == "POST" and path.endswith(("/pods", "/podgroups"))
        if self.made > 40 or (self.deaf and path.endswith("/jobs")):
            raise ApiError(0, "Unreachable", "nobody answers")
        return await super().request(verb, path, **more)

    async def stream(self, path: str, params: Mapping[str, str], *, idle: float) -> Any:
        if self.deaf and path.endswith("/jobs"):
            raise ApiError(0, "Unreachable", "nobody answers")
        return await super().stream(path, params, idle=idle)


async def _story(let_in: bool) -> int:
    clock = VirtualClock()
    hands = await faulty_cluster(clock)
    ours = DeafToJobs(hands.api, clock)
    stop = asyncio.Event()
    jobs = controller.Controller(controller.Settings(listen="127.0.0.1:0", share_hours=False), ours, clock, Random(1), stop)
    running = [asyncio.create_task(jobs.run()),
               asyncio.create_task(Controllers(ControllersSettings(), hands, clock, Random(2)).run(stop, None))]  # fmt: skip
    await clock.sleep(5)
    await hands.create(volcano.JOBS, JOB, "default")
    await clock.sleep(5)
    [group] = (await hands.list(volcano.POD_GROUPS))["items"]
    if let_in:
        await hands.patch(volcano.POD_GROUPS, group["metadata"]["name"], {"status": {"phase": "Inqueue"}}, "default")
        await clock.sleep(5)
    assert len((await hands.list(kinds.PODS))["items"]) == let_in
    ours.deaf = True
    ours.hang_up(forget=False, seconds=0)
    await clock.sleep(2)
    await hands.delete(volcano.JOBS, "train", "default")
    await clock.sleep(3)
    made = sum(event.change == "ADDED" and event.stored.resource.endswith(("/pods", "/podgroups"))
               for event in hands.api.storage._history)  # fmt: skip
    stop.set()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return made


@pytest.mark.parametrize("let_in", [True, False], ids=["with a pod", "with a PodGroup alone"])
def test_a_controller_that_has_not_heard_that_a_job_is_gone_makes_nothing_for_it_again_and_again(let_in: bool) -> None:
    assert run_virtually(_story(let_in)) <= 5
