"""The controller of Jobs on a real API server: what it sends is accepted there, and what it reads is what is written there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from kit.control_plane import Api
from kit.job_world import JobWorld, job, on, task

from pumice.adapters.kube import Access, KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError
from pumice.wire.kinds import CONFIGMAPS, NETWORK_POLICIES, SECRETS, SERVICE_ACCOUNTS, SERVICES
from pumice_lab.first_objects import volcano_kinds


@pytest.fixture(scope="session")
def kinds(api: Api) -> None:
    for kind in volcano_kinds():
        api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
    served = ("batch.volcano.sh/v1alpha1/jobs", "bus.volcano.sh/v1alpha1/commands", "scheduling.volcano.sh/v1beta1/queues",
              "scheduling.volcano.sh/v1beta1/podgroups")  # fmt: skip
    api.until_served(*(f"/apis/{kind}" for kind in served))


def play(api: Api, story: Callable[[JobWorld], Awaitable[None]]) -> None:
    async def run() -> None:
        access = Access(api.url, ssl.create_default_context(cafile=str(api.ca)), lambda: api.token)
        async with KubeClient(access) as cluster, KubeClient(access) as hands:
            with suppress(ApiError):  # a real one has no controller here that would make it
                await hands.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
            world = JobWorld(cluster, hands, SystemClock())
            await world.up()
            try:
                await story(world)
            finally:
                await world.kill()

    asyncio.run(run())


@pytest.mark.usefixtures("kinds")
def test_the_job_of_the_guide_lives_through_its_restarts_and_fails(api: Api) -> None:
    async def story(world: JobWorld) -> None:
        name = "guide-default-test-0"
        plugins: dict[str, list[str]] = {"ssh": [], "env": [], "svc": []}
        await world.submit(job("guide", task("default-test", 1), minAvailable=1, maxRetry=3, plugins=plugins,
                               policies=[on("PodEvicted", "RestartJob")]))  # fmt: skip
        for retry in range(3):
            async def running(retry: int = retry) -> bool:
                await world.admit()
                if (await world.pods()).get(name, {}).get("status", {}).get("phase") == "Pending":
                    await world.run(name)
                status = await world.status("guide")
                return (status["state"]["phase"], status.get("retryCount", 0)) == ("Running", retry)

            await world.until(running)
            for kind, called in ((CONFIGMAPS, "guide-svc"), (SERVICES, "guide"), (NETWORK_POLICIES, "guide"),
                                 (SECRETS, "guide-ssh")):  # fmt: skip
                assert await world.found(kind, called) is not None
            await world.remove(name)

        async def failed() -> bool:
            return await world.phase("guide") == "Failed"

        await world.until(failed)
        await world.rest()
        assert (await world.status("guide"))["retryCount"] == 3
        assert name not in await world.pods()
        assert await world.found(SERVICES, "guide") is None

    play(api, story)


@pytest.mark.usefixtures("kinds")
def test_a_job_with_claims_is_scaled_suspended_and_resumed(api: Api) -> None:
    async def story(world: JobWorld) -> None:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await world.submit(job("scaled", task("main", 1), volumes=[{"mountPath": "/out", "volumeClaim": claim}]))
        await world.change("scaled", tasks=[task("main", 3)], minAvailable=3)
        await world.admit()

        def there(count: int, phase: str) -> Callable[[], Awaitable[bool]]:
            async def holds() -> bool:
                found = [name for name in await world.pods() if name.startswith("scaled-")]
                return (len(found), await world.phase("scaled")) == (count, phase)

            return holds

        await world.until(there(3, "Pending"))
        await world.command("AbortJob", "scaled")
        await world.until(there(0, "Aborted"))
        await world.command("ResumeJob", "scaled")
        await world.admit()
        await world.until(there(3, "Pending"))
        assert (await world.status("scaled"))["retryCount"] == 1

    play(api, story)
