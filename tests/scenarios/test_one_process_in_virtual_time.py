"""API server, scheduler, controllers, kubelet twin and device plugin in one process, in virtual time.

Every daemon takes clock, random generator and transport as arguments, so hours of a cluster with faults pass in seconds. The
plugin and
the kubelet still speak gRPC over a real socket, the cards are an emulated machine's, and containers have no processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kit.direct_cluster import DirectCluster, memory_cluster
from kit.machines import cards_of
from kit.virtual_time import VirtualClock, run_virtually

from pumice.adapters.nvml import NvmlCards
from pumice.apps.scheduler import daemon as scheduler
from pumice.audit.auditor import audit
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.ports.cluster import Json
from pumice.wire.kinds import NODES, PODS
from pumice_jobs.apps.controller import daemon as controller
from pumice_lab import first_objects
from pumice_lab.controllers import manager
from pumice_lab.kubelet.run import HollowRuntime
from pumice_lab.kubelet.run import run as run_kubelet
from pumice_lab.kubelet.settings import KubeletSettings
from pumice_lab.spec import uniform

Daemon = Callable[[asyncio.Event, asyncio.Event], Awaitable[None]]


class OneProcess:
    """Every daemon by name; each can be killed (cancelled where it stands) and started again."""

    def __init__(
        self, kube: DirectCluster, clock: VirtualClock, directory: Path, cards: NvmlCards, seed: int
    ) -> None:
        self.kube, self.clock, self.rng = kube, clock, random.Random(seed)
        self.runtime = HollowRuntime(clock)
        node = KubeletSettings("n1", directory / "n1", directory, address="127.0.0.1", cpu="64", memory="256Gi", pods=200)
        (directory / "libvgpu.so").write_bytes(b"\x7fELF")
        plugin = vgpu_plugin.Settings("n1", device_plugin_dir=node.plugin_dir, hook_path=directory / "hook",
                                        lock_dir=directory / "lock", library=directory / "libvgpu.so")
        with_ports: dict[str, tuple[Any, Any, dict[str, Any]]] = {
            "controllers": (manager.run, manager.ControllersSettings(), {}),
            "scheduler": (scheduler.run, scheduler.Settings(listen="127.0.0.1:0"), {}),
            "groups": (controller.run, controller.Settings(listen="127.0.0.1:0"), {}),
            "kubelet": (run_kubelet, node, {"runtime": self.runtime}),
            "plugin": (vgpu_plugin.run, plugin, {"cards": cards}),
        }
        self._daemons = with_ports
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str) -> None:
        run, settings, more = self._daemons[name]
        ready = asyncio.Event()
        rng = random.Random(self.rng.random())
        self._tasks[name] = asyncio.create_task(run(settings, cluster=self.kube, clock=self.clock, rng=rng,
                                                    stop=asyncio.Event(), ready=ready, **more), name=name)
        reported = asyncio.create_task(ready.wait())
        await asyncio.wait({self._tasks[name], reported}, return_when=asyncio.FIRST_COMPLETED)
        reported.cancel()
        if self._tasks[name].done():
            self._tasks[name].result()

    async def kill(self, name: str) -> None:
        self._tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks[name]

    async def start_all(self) -> None:
        await first_objects.ensure(self.kube, uniform(1, 2, "A100-SXM4-40GB"))
        for name in self._daemons:
            await self.start(name)

    async def end(self) -> None:
        for name in reversed(self._tasks):
            await self.kill(name)
        await self.runtime.close()

    async def pods(self) -> list[Json]:
        items: list[Json] = (await self.kube.list(PODS, "default"))["items"]
        return items

    async def violations(self) -> list[str]:
        return audit((await self.kube.list(NODES))["items"], await self.pods())


def share(name: str, memory: int, cores: int, seconds: int) -> Json:
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory, "volcano.sh/vgpu-cores": cores}
    container = {"name": "c", "image": "any", "command": ["sleep", str(seconds)], "resources": {"limits": limits}}
    return {"metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulerName": "volcano", "restartPolicy": "Never", "containers": [container]}}


def in_one_process(work: Callable[[OneProcess], Awaitable[None]], seed: int = 0) -> None:
    async def main(directory: Path, cards: NvmlCards) -> None:
        clock = VirtualClock()
        one = OneProcess(await memory_cluster(clock), clock, directory, cards, seed)
        try:
            await one.start_all()
            await work(one)
        finally:
            await one.end()

    folder = tempfile.TemporaryDirectory(prefix="pumice")  # a socket path has at most 107 bytes
    with folder as directory, cards_of("2xA100-SXM4-40GB") as (_, cards):
        run_virtually(main(Path(directory), cards))


def test_a_pod_gets_its_share_from_create_to_env_in_virtual_time() -> None:
    async def work(one: OneProcess) -> None:
        await one.kube.create(PODS, share("p", 3000, 50, 600))
        await one.clock.sleep(5)
        (pod,) = await one.pods()
        assert pod["status"]["phase"] == "Running"
        (spec,) = one.runtime.started
        assert (spec.env["CUDA_DEVICE_MEMORY_LIMIT_0"], spec.env["CUDA_DEVICE_SM_LIMIT"]) == ("3000m", "50")
        assert "/etc/ld.so.preload" in {mount.target for mount in spec.mounts}
        await one.clock.sleep(600)
        assert (await one.pods())[0]["status"]["phase"] == "Succeeded"

    in_one_process(work)


def test_kills_of_every_daemon_lose_nothing_and_book_nothing_twice() -> None:
    async def work(one: OneProcess) -> None:
        rng, wanted = random.Random(5), 24
        for number in range(wanted):
            pod = share(f"p{number}", rng.choice((2000, 9000, 20000)), rng.choice((10, 30, 60)), rng.randrange(10, 200))
            await one.kube.create(PODS, pod)
            await one.clock.sleep(rng.uniform(0, 12))
            if number % 4 == 3:
                victim = rng.choice(("scheduler", "groups", "plugin", "controllers", "kubelet"))
                await one.kill(victim)
                await one.clock.sleep(rng.uniform(0, 5))
                await one.start(victim)
                await one.clock.sleep(3)  # until the node shows its devices again
            assert await one.violations() == []
        for _ in range(60):
            if all(pod["status"].get("phase") == "Succeeded" for pod in await one.pods()):
                break
            await one.clock.sleep(60)
            assert await one.violations() == []
        ends = {pod["metadata"]["name"]: (pod["status"].get("phase"), pod["status"].get("reason")) for pod in await one.pods()}
        assert {name: end for name, end in ends.items() if end[0] != "Succeeded"} == {}
        assert len(ends) == wanted

    in_one_process(work)
