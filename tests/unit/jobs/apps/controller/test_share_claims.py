"""The controller's templates of claims: one a workload, however many pods and however often a write fails, and gone with it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import pod
from kit.virtual_time import VirtualClock, run_virtually

from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES
from pumice.wire.names import SHARE_CLAIMS
from pumice.wire.share_claims import Share, render, template
from pumice_jobs.apps.controller.daemon import Controller, Settings

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "11111111-2222-3333-4444-555555555555", "controller": True}


@contextlib.asynccontextmanager
async def controller(cluster: FaultyCluster, clock: VirtualClock) -> AsyncIterator[None]:
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = Settings(listen="127.0.0.1:0", share_claims=True)
    running = asyncio.create_task(Controller(settings, cluster, clock, random.Random(1), stop, ready).run())
    await asyncio.wait_for(ready.wait(), 10)
    yield
    stop.set()
    await running


def claiming(name: str, **meta: Any) -> Json:
    found = pod(name)
    notes = {**(found["metadata"].get("annotations") or {}), SHARE_CLAIMS: render({"t": Share(1, 3000, 50)})}
    found["metadata"] |= {"labels": {SHARE_CLAIMS: "true"}, "annotations": notes, **meta}
    found["spec"]["resourceClaims"] = [{"name": "t", "resourceClaimTemplateName": "t"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": found["metadata"], "spec": found["spec"]}


async def templates(cluster: FaultyCluster) -> dict[str, list[str]]:
    """Their names, and the uids of their owners."""
    return {obj["metadata"]["name"]: [one["uid"] for one in obj["metadata"]["ownerReferences"]]
            for obj in (await cluster.list(RESOURCE_CLAIM_TEMPLATES))["items"]}  # fmt: skip


def test_pods_of_one_workload_have_one_template_that_is_their_workloads_whatever_fails() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        lost = iter([ApiError(500, "InternalError", "later"), (ApiError(0, "Unreachable", "the answer is lost"), True)])
        cluster.fault = lambda verb, path: next(lost, None) if verb == "POST" and "resourceclaimtemplates" in path else None
        async with controller(cluster, clock):
            for name in "abc":
                await cluster.create(PODS, claiming(name, ownerReferences=[OWNER]), "default")
            await clock.sleep(5)
            assert await templates(cluster) == {"t": [OWNER["uid"]]}
            bare = await cluster.create(PODS, claiming("bare"), "default")
            await clock.sleep(5)
            assert await templates(cluster) == {"t": [OWNER["uid"], bare["metadata"]["uid"]]}
            await cluster.delete(RESOURCE_CLAIM_TEMPLATES, "t", "default")
            await clock.sleep(70)
            assert set((await templates(cluster))["t"]) == {OWNER["uid"], bare["metadata"]["uid"]}, "as long as pods wait for it"

    run_virtually(story())


def test_what_keeps_a_template_from_being_made_is_told_on_the_pod_and_tried_again() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        own = template("t", "default", Share(2))
        await cluster.create(RESOURCE_CLAIM_TEMPLATES, own, "default")
        async with controller(cluster, clock):
            await cluster.create(PODS, claiming("a"), "default")
            await clock.sleep(5)
            [event] = [one for one in (await cluster.list(EVENTS))["items"] if one["reason"] == "NoClaimTemplate"]
            assert "is there and asks for something else" in event["message"]
            await cluster.delete(RESOURCE_CLAIM_TEMPLATES, "t", "default")
            await clock.sleep(70)
            assert len(await templates(cluster)) == 1

    run_virtually(story())


def test_without_being_told_so_the_controller_makes_none() -> None:
    assert Settings().share_claims is False
