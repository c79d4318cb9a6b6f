"""The scheduler's whole path on a real API: watch, decide, bind with annotations, tell why not, start again.

The same daemons and client run against the embedded and the real kube-apiserver, each as the service account of the
manifests and so with no more than its role. Nodes are hollow: objects that the plugin's own code renders from a machine model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.control_plane import Api
from kit.local_cluster import vgpu_pod
from kit.manifests import token_of
from kit.node_objects import facts

from pumice.adapters.kube import Access, KubeClient
from pumice.apps.scheduler import daemon as scheduler
from pumice.audit.auditor import audit
from pumice.devices.nvidia_vgpu.node.inventory import hollow_node
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import EVENTS, NODES, PODS
from pumice.wire.times import seconds
from pumice.wire.volcano import POD_GROUPS, SCHEDULING_API
from pumice_jobs.apps.controller import daemon as controller
from pumice_lab import first_objects
from pumice_lab.machine import machine_of
from pumice_lab.spec import uniform

pytestmark = pytest.mark.kube
Question = Callable[[], Awaitable[Any]]


class Scene:
    """A namespace, two hollow nodes of two V100 each, and our daemons on one API server."""

    def __init__(self, kube: KubeClient, as_scheduler: KubeClient, as_controller: KubeClient, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        self.as_scheduler, self.as_controller = as_scheduler, as_controller
        self.nodes = [f"{namespace}-n{i}" for i in (1, 2)]
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()

    async def furnish(self) -> None:
        await first_objects.ensure(self.kube, uniform(1, 1, "Tesla-V100-SXM2-16GB"))
        for name in self.nodes:
            cards = [replace(c, uuid=f"{c.uuid[:-6]}{name[-6:]}") for c in facts(machine_of("2xTesla-V100-SXM2-16GB").cards)]
            cards = [replace(c, uuid=f"{c.uuid}-{c.index}") for c in cards]
            node = hollow_node(name, cards)
            node["metadata"]["labels"]["scene"] = self.namespace
            await self.kube.create(NODES, node)

    async def begin(self) -> None:
        self._stop = asyncio.Event()
        ready = asyncio.Event()
        common: dict[str, Any] = {"clock": SystemClock(), "stop": self._stop}
        self._tasks = [
            asyncio.create_task(scheduler.run(scheduler.Settings(listen="127.0.0.1:0"), cluster=self.as_scheduler, **common,
                                              rng=random.Random(1), ready=ready)),
            asyncio.create_task(controller.run(controller.Settings(listen="127.0.0.1:0"), cluster=self.as_controller, **common,
                                               rng=random.Random(2))),
        ]  # fmt: skip
        await asyncio.wait_for(ready.wait(), 20)

    async def kill(self) -> None:
        """The daemons end where they stand."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def tidy(self) -> None:
        await self.kill()
        for pod in (await self.kube.list(PODS, self.namespace))["items"]:
            with contextlib.suppress(ApiError):
                await self.kube.delete(PODS, pod["metadata"]["name"], self.namespace, grace=0)
        for group in (await self.kube.list(POD_GROUPS, self.namespace))["items"]:  # no garbage collector runs here
            with contextlib.suppress(ApiError):
                await self.kube.delete(POD_GROUPS, group["metadata"]["name"], self.namespace)
        for name in self.nodes:
            await self.kube.delete(NODES, name)

    async def create(self, name: str, memory: int, **more: Any) -> None:
        pod = vgpu_pod(name, memory, nodeSelector={"scene": self.namespace}, **more.pop("spec", {}))
        pod["metadata"] |= {"namespace": self.namespace, **more}
        await self.kube.create(PODS, pod)

    async def pod(self, name: str) -> Json:
        return await self.kube.get(PODS, name, self.namespace)

    async def bound(self, *names: str) -> bool:
        return all([(await self.pod(name))["spec"].get("nodeName") for name in names])

    async def refusal(self, name: str) -> str:
        conditions = (await self.pod(name))["status"].get("conditions") or ()
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

    async def until(self, question: Question, seconds: float = 60) -> Any:
        async with asyncio.timeout(seconds):
            while not (answer := await question()):
                await asyncio.sleep(0.03)
            return answer

    async def check(self) -> None:
        nodes = [n for n in (await self.kube.list(NODES))["items"] if n["metadata"]["name"] in self.nodes]
        pods, groups = await self.kube.list(PODS), await self.kube.list(POD_GROUPS)
        assert audit(nodes, pods["items"], groups["items"]) == []


@contextlib.asynccontextmanager
async def scene(api: Api, namespace: str) -> AsyncIterator[Scene]:
    async with _client(api, api.token) as kube, _client(api, token_of(api, "volcano.yml", "volcano-scheduler")) as one, _client(
            api, token_of(api, "volcano.yml", "volcano-controllers")) as other:
        here = Scene(kube, one, other, namespace)
        await here.furnish()
        await here.begin()
        try:
            yield here
            await here.check()
        finally:
            await here.tidy()


def _client(api: Api, token: str) -> KubeClient:
    return KubeClient(Access(api.url, ssl.create_default_context(cafile=str(api.ca)), lambda: token))


def play(api: Api, namespace: str, act: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with scene(api, namespace) as here:
            await act(here)

    asyncio.run(run())


def test_node_and_cards_appear_on_the_pod_in_one_write(api: Api, namespace: str) -> None:
    async def act(here: Scene) -> None:
        first_with_node: asyncio.Future[Json] = asyncio.get_running_loop().create_future()

        async def look() -> None:
            async for event in here.kube.watch(PODS, namespace):
                pod = json.loads(event.raw or b"{}")
                if pod.get("spec", {}).get("nodeName") and not first_with_node.done():
                    first_with_node.set_result(pod)

        looking = asyncio.create_task(look())
        await here.create("a", 4000)
        pod = await asyncio.wait_for(first_with_node, 60)
        looking.cancel()
        notes = pod["metadata"]["annotations"]
        assert notes["volcano.sh/vgpu-node"] == pod["spec"]["nodeName"]
        assert notes["volcano.sh/vgpu-ids-new"].split(",")[1:] == ["NVIDIA", "4000", "0:"]
        assert notes["volcano.sh/bind-phase"] == "allocating"

    play(api, namespace, act)


def test_a_pod_that_does_not_fit_is_told_so_in_condition_and_event(api: Api, namespace: str) -> None:
    async def act(here: Scene) -> None:
        await here.create("big", 20000)
        message = await here.until(lambda: here.refusal("big"))
        assert "memory" in message

        async def event() -> Any:
            events = (await here.kube.list(EVENTS, namespace))["items"]
            return [e for e in events if e["reason"] == "FailedScheduling" and "memory" in e["message"]]

        await here.until(event)

    play(api, namespace, act)


def test_a_gang_lands_whole_or_not_at_all(api: Api, namespace: str) -> None:
    async def act(here: Scene) -> None:
        for name, members, memory in (("fits", 4, 9000), ("too-many", 3, 9000)):
            await here.kube.create(POD_GROUPS, {"apiVersion": SCHEDULING_API, "kind": "PodGroup",
                                                "metadata": {"name": name, "namespace": namespace},
                                                "spec": {"minMember": members, "queue": "default"}})  # fmt: skip
            for index in range(members):
                await here.create(f"{name}-{index}", memory, annotations={"scheduling.k8s.io/group-name": name})
            if name == "fits":
                await here.until(lambda: here.bound(*(f"fits-{i}" for i in range(4))))
        await here.until(lambda: here.refusal("too-many-0"))

        async def condition() -> Any:
            group = await here.kube.get(POD_GROUPS, "too-many", namespace)
            return (group.get("status") or {}).get("conditions")

        (reported,) = await here.until(condition)
        assert (reported["type"], reported["status"]) == ("Unschedulable", "True")
        assert abs(seconds(reported["lastTransitionTime"]) - time.time()) < 60
        assert not any([(await here.pod(f"too-many-{i}"))["spec"].get("nodeName") for i in range(3)])

    play(api, namespace, act)


def test_a_new_scheduler_knows_every_booking_of_the_one_that_was_killed(api: Api, namespace: str) -> None:
    async def act(here: Scene) -> None:
        for index in range(3):
            await here.create(f"old-{index}", 9000)
        await here.until(lambda: here.bound("old-0", "old-1", "old-2"))
        await here.kill()
        await here.create("new-0", 9000)
        await here.create("new-1", 9000)
        await here.begin()

        async def one_each() -> bool:
            placed = [bool((await here.pod(n))["spec"].get("nodeName")) for n in ("new-0", "new-1")]
            waiting = [n for n, p in zip(("new-0", "new-1"), placed, strict=True) if not p]
            return sum(placed) == 1 and bool(await here.refusal(waiting[0]))

        await here.until(one_each)

    play(api, namespace, act)


def test_a_pod_that_is_deleted_gives_its_card_to_the_one_that_waits(api: Api, namespace: str) -> None:
    async def act(here: Scene) -> None:
        for index in range(5):
            await here.create(f"p{index}", 9000)

        async def waiting() -> list[str]:
            names = [f"p{i}" for i in range(5)]
            return [n for n in names if not (await here.pod(n))["spec"].get("nodeName") and await here.refusal(n)]

        late = (await here.until(waiting))[0]
        early = next(f"p{i}" for i in range(5) if f"p{i}" != late)
        await here.kube.delete(PODS, early, namespace, grace=0)
        await here.until(lambda: here.bound(late))

    play(api, namespace, act)
