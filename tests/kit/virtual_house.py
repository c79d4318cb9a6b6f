"""The whole house in one process and in virtual time: API server, controllers, scheduler, kubelet twin, device plugin.

    PUMICE_MACHINE=DIR python -m tests.kit.virtual_house DIRECTORY

Real are the wire (device plugin gRPC on a unix socket, NVML on the emulated machine); time is not. Prints what came of a
pod that fits, of one that waits until the first is gone ten minutes later, and of one that never fits.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from pumice.apps import controller, device_plugin, scheduler
from pumice.cluster import first_objects
from pumice.cluster.controllers.shell import ControllersSettings
from pumice.cluster.controllers.shell import run as run_controllers
from pumice.cluster.kubelet.settings import KubeletSettings
from pumice.cluster.kubelet.twin import run as run_kubelet
from pumice.cluster.runtime.hollow import HollowRuntime
from pumice.cluster.spec import uniform
from pumice.machine import library_dir
from tests.kit.auditor import audit
from tests.kit.direct_cluster import memory_cluster
from tests.kit.house import NODES, PODS, vgpu_pod
from tests.kit.virtual_time import EPOCH, VirtualClock, run_virtually


async def live(directory: Path) -> dict[str, object]:
    clock, stop = VirtualClock(), asyncio.Event()
    kube = await memory_cluster(clock)
    await first_objects.ensure(kube, uniform(1, 1, "GeForce-GTX-1080-Ti"))
    node = KubeletSettings("n1", directory / "n1", directory, address="127.64.9.2")
    common = {"cluster": kube, "clock": clock, "stop": stop}
    plugin = device_plugin.Settings(node_name="n1", device_plugin_dir=node.plugin_dir, hook_path=directory / "vgpu",
                                    lock_dir=directory / "lock", nvml=str(library_dir()))
    daemons = [
        run_kubelet(node, **common, dice=random.Random(1), runtime=HollowRuntime(clock)),
        device_plugin.run(plugin, **common, dice=random.Random(2)),
        scheduler.run(scheduler.Settings(listen="127.0.0.1:0"), **common, dice=random.Random(3)),
        run_controllers(ControllersSettings(), **common, dice=random.Random(5)),
        controller.run(controller.Settings(listen="127.0.0.1:0"), **common, dice=random.Random(4)),
    ]
    tasks = [asyncio.create_task(daemon) for daemon in daemons]

    async def phase(name: str) -> str:
        pod = await kube.get(PODS, name, "default")
        return str(pod["status"].get("phase"))

    async def until(holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
        deadline = clock.monotonic() + seconds
        while not await holds():
            if clock.monotonic() > deadline:
                nodes, pods = await kube.list(NODES), await kube.list(PODS)
                raise AssertionError(f"not within the virtual time given: {nodes['items'][0]['status']}, "
                                     f"{[(p['metadata']['name'], p['status']) for p in pods['items']]}")
            assert not any(task.done() for task in tasks), [t.exception() for t in tasks if t.done()]
            await clock.sleep(0.5)

    async def is_running(name: str) -> bool:
        return await phase(name) == "Running"

    await kube.create(PODS, vgpu_pod("first", 9000))
    await until(lambda: is_running("first"), 120)
    await kube.create(PODS, vgpu_pod("second", 9000))
    await kube.create(PODS, vgpu_pod("never", 99000))
    await clock.sleep(600)
    waiting = await phase("second")
    await kube.delete(PODS, "first", "default", grace=0)
    await until(lambda: is_running("second"), 120)
    violations = audit((await kube.list(NODES))["items"], (await kube.list(PODS))["items"])
    result = {"second_before": waiting, "second_after": await phase("second"), "never": await phase("never"),
              "violations": violations, "virtual_seconds": clock.now() - EPOCH}  # fmt: skip
    stop.set()
    await asyncio.wait(tasks, timeout=30)
    return result


if __name__ == "__main__":
    print(json.dumps(run_virtually(live(Path(sys.argv[1])))))
