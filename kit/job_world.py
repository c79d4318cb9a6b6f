"""The controller of Jobs on the embedded API server in virtual time, with hands for what scheduler and kubelet do.

    async with job_world() as world:
        await world.submit(job("j", task("main", 2), policies=[...]))
        await world.start()                      # the group is let in, the pods run
        await world.end("j-main-0", code=3)
        assert await world.phase("j") == "Restarting"
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import node
from kit.virtual_time import VirtualClock
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Json, Resource
from pumice.wire import kinds, volcano
from pumice.wire.kinds import CRDS
from pumice_jobs.apps.controller.daemon import Controller, Settings

ABOUT = "batch.volcano.sh/v1alpha1"
MOMENT = 2.5
"""Seconds in which a controller that is left alone comes to rest, its counts written."""


def task(name: str, replicas: int = 1, /, **fields: Any) -> Json:
    """A task of one container."""
    template = fields.pop("template", None) or {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    return {"name": name, "replicas": replicas, "template": template, **fields}


def job(name: str, *tasks: Json, namespace: str = "default", labels: Json | None = None, annotations: Json | None = None,
        **spec: Any) -> Json:  # fmt: skip
    return {
        "apiVersion": ABOUT, "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"tasks": list(tasks), **spec},
    }  # fmt: skip


def on(event: str, action: str, **more: Any) -> Json:
    """A policy."""
    return {"event": event, "action": action, **more}


def mindcluster_job() -> Json:
    """The Job of MindCluster's guide."""
    container = {"name": "resnet50infer", "image": "mindie", "command": ["/bin/bash", "-c", "tail -f /dev/null"],
                 "resources": {"limits": {"huawei.com/npu-core": "8"}, "requests": {"huawei.com/npu-core": "8"}}}  # fmt: skip
    template = {"metadata": {"labels": {"app": "infers", "vnpu-level": "low"}},
                "spec": {"schedulerName": "volcano", "containers": [container], "nodeSelector": {"host-arch": "huawei-arm"}}}
    return job("mindx-dls", task("default-test", 1, template=template), labels={"ring-controller.atlas": "ascend-310P"},
               minAvailable=1, schedulerName="volcano", policies=[on("PodEvicted", "RestartJob")], maxRetry=3, queue="default",
               plugins={"ssh": [], "env": [], "svc": []})  # fmt: skip


class JobWorld:
    def __init__(self, cluster: Any, hands: Any, clock: Clock) -> None:
        """``cluster`` is the controller's client, ``hands`` everybody else's."""
        self.cluster, self.hands, self.clock = cluster, hands, clock
        self._starts = 0

    async def up(self) -> None:
        """Start a controller."""
        self._starts += 1
        self.stop, ready = asyncio.Event(), asyncio.Event()
        settings = Settings(listen="127.0.0.1:0", share_hours=False)
        self.controller = Controller(settings, self.cluster, self.clock, random.Random(self._starts), self.stop, ready)
        self.controller.jobs.effects.keys = lambda: ("PRIVATE", "ssh-rsa PUBLIC\n")
        self.task = asyncio.create_task(self.controller.run())
        await ready.wait()

    async def down(self) -> None:
        self.stop.set()
        await self.task

    async def kill(self) -> None:
        """As by kill -9: nothing that was under way is finished, nothing is handed over."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def cut_off(self, writes: int, *, carried_out: bool = False) -> None:
        """So many more writes get through, and none after them: whoever is killed now died there. ``carried_out``: of the next
        one only the answer is lost."""
        left = [writes]

        def fault(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
            if verb == "GET" or "/events" in path:
                return None
            left[0] -= 1
            dead = ApiError(0, "Unreachable", "dead")
            return None if left[0] >= 0 else (dead, True) if left[0] == -1 and carried_out else dead

        self.cluster.fault = fault

    async def replace(self) -> None:
        """The controller is killed, and another one takes over."""
        await self.kill()
        self.cluster.fault = lambda verb, path: None
        await self.up()
        await self.rest()

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
        end = self.clock.monotonic() + seconds
        while not await holds():
            assert self.clock.monotonic() < end, "it does not come to be"
            await self.clock.sleep(0.05)

    async def rest(self, seconds: float = MOMENT) -> None:
        await self.clock.sleep(seconds)

    # -- users ----------------------------------------------------------------------------------------------------

    async def submit(self, obj: Json) -> None:
        await self.hands.create(volcano.JOBS, obj, obj["metadata"]["namespace"])
        await self.rest()

    async def change(self, name: str, **spec: Any) -> None:
        await self.hands.patch(volcano.JOBS, name, {"spec": spec}, "default")
        await self.rest()

    async def command(self, action: str, name: str) -> None:
        uid = (await self.job(name))["metadata"]["uid"]
        target = {"apiVersion": ABOUT, "kind": "Job", "name": name, "uid": uid, "controller": True}
        body = {"apiVersion": volcano.BUS_API, "kind": "Command", "action": action, "target": target,
                "metadata": {"generateName": f"{name}-{action.lower()}-", "ownerReferences": [target]}}  # fmt: skip
        await self.hands.create(volcano.COMMANDS, body, "default")
        await self.rest()

    # -- what scheduler and kubelet do ----------------------------------------------------------------------------

    async def admit(self) -> None:
        """Let every group in that waits."""
        for name, found in (await self.groups()).items():
            if found.get("status", {}).get("phase") in ("", None, "Pending"):
                await self.mark_group(name, phase="Inqueue")
        await self.rest()

    async def mark_group(self, name: str, **status: Any) -> None:
        await self._mind(self.hands.patch(volcano.POD_GROUPS, name, {"status": status}, "default"))

    async def start(self, *names: str) -> None:
        """Let groups in, then bind and run the pods named, or all."""
        await self.admit()
        for name, found in (await self.pods()).items():
            if (not names or name in names) and found["status"].get("phase") == "Pending":
                await self.run(name)
        await self.rest()

    async def run(self, name: str) -> None:
        found = (await self.pods()).get(name)
        if found is not None and not found["spec"].get("nodeName"):
            binding = f'{{"metadata":{{"name":"{name}"}},"target":{{"kind":"Node","name":"n1"}}}}'
            await self._mind(self.hands.bind("default", name, binding.encode()))
        await self.report(name, "Running", ready=True)

    async def end(self, name: str, code: int = 0) -> None:
        await self.report(name, "Failed" if code else "Succeeded", state={"terminated": {"exitCode": code}})
        await self.rest()

    async def restart_container(self, name: str, times: int = 1) -> None:
        await self.report(name, "Running", ready=True, restartCount=times)
        await self.rest()

    async def report(self, name: str, phase: str, **container: Any) -> None:
        state = {"name": "c", "image": "busybox", "imageID": "", "ready": False, "restartCount": 0, **container}
        body = {"status": {"phase": phase, "containerStatuses": [state]}}
        await self._mind(self.hands.patch(kinds.PODS, name, body, "default", subresource="status"))

    async def remove(self, name: str) -> None:
        """Somebody deletes or evicts the pod, and its kubelet lets it go."""
        await self._mind(self.hands.delete(kinds.PODS, name, "default", grace=0))
        await self.rest()

    async def bury(self) -> None:
        """Let every pod go that is being deleted."""
        for name, found in (await self.pods()).items():
            if found["metadata"].get("deletionTimestamp"):
                await self._mind(self.hands.delete(kinds.PODS, name, "default", grace=0))
        await self.rest()

    # -- what is there --------------------------------------------------------------------------------------------

    async def job(self, name: str) -> Json:
        return await self.hands.get(volcano.JOBS, name, "default")

    async def status(self, name: str) -> Json:
        return (await self.job(name)).get("status") or {}

    async def phase(self, name: str) -> str:
        return str((await self.status(name)).get("state", {}).get("phase", ""))

    async def pods(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in (await self.hands.list(kinds.PODS, "default"))["items"]}

    async def groups(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in (await self.hands.list(volcano.POD_GROUPS))["items"]}

    async def group_uids(self) -> set[str]:
        return {each["metadata"]["uid"] for each in (await self.groups()).values()}

    async def found(self, kind: Resource, name: str) -> Json | None:
        try:
            return await self.hands.get(kind, name, "default")
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def events(self, reason: str = "") -> list[str]:
        return [e["message"] for e in (await self.hands.list(kinds.EVENTS))["items"] if reason in ("", e["reason"])]

    async def _mind(self, call: Any) -> None:
        """Somebody may have been faster."""
        try:
            await call
        except ApiError as error:
            if error.code not in (404, 409):
                raise


async def forget_the_first_phase(cluster: FaultyCluster) -> None:
    found = await cluster.get(CRDS, "jobs.batch.volcano.sh")
    for version in found["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
    await cluster.update(CRDS, found)


@asynccontextmanager
async def job_world(*, told_to_wait: bool = True) -> AsyncIterator[JobWorld]:
    """A running controller and one node. ``told_to_wait``: whether the definition of Jobs says that a new one is pending, as
    ours does; Volcano's leaves its phase away."""
    clock = VirtualClock()
    cluster = await faulty_cluster(clock)
    if not told_to_wait:
        await forget_the_first_phase(cluster)
    await cluster.put_node(node("n1"))
    world = JobWorld(cluster, FaultyCluster(cluster.api, clock), clock)
    await world.up()
    try:
        yield world
    finally:
        await world.kill()
