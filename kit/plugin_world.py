"""The vGPU plugin of one node with everything that it meets: emulated cards, a kubelet on a real socket, an API server."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kit.fake_cluster import FakeCluster
from kit.machines import cards_of
from kit.node_objects import NODE, two_cards
from kit.node_world import FakeKubelet, node_cluster
from kit.virtual_time import VirtualClock, run_virtually
from pumice.adapters.nvml import NvmlCards
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice_lab.machine import Machine, MachineModel


@dataclass
class World:
    """``plugin`` runs one; ``root`` holds the kubelet's folder of sockets (``plugins``) and the hook directory."""

    cluster: FakeCluster
    kubelet: FakeKubelet
    machine: Machine
    cards: NvmlCards
    settings: vgpu_plugin.Settings
    root: Path

    @asynccontextmanager
    async def plugin(self, **changes: Any) -> AsyncIterator[None]:
        stop, ready = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(
            vgpu_plugin.run(
                replace(self.settings, **changes), cluster=self.cluster, clock=VirtualClock(), rng=random.Random(7),
                stop=stop, ready=ready, cards=self.cards,
            )
        )  # fmt: skip
        waiter = asyncio.create_task(ready.wait())
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED, timeout=120)
        waiter.cancel()
        try:
            if task.done():
                task.result()
            assert ready.is_set()
            yield
        finally:
            stop.set()
            await task  # without a limit, for which time would jump: its gRPC server ends by threads of its own


def in_a_world(
    test: Callable[[World], Awaitable[None]], model: MachineModel | None = None,
    kubelet: Callable[[Path], FakeKubelet] = FakeKubelet,
) -> Callable[[], None]:  # fmt: skip
    """The test in a world of its own, in virtual time, on two V100 unless ``model`` says otherwise. ``kubelet``: by the folder of
    the plugins' sockets."""

    async def play(machine: Machine, cards: NvmlCards) -> None:
        with tempfile.TemporaryDirectory(prefix="pumice") as folder:  # a socket path has at most 107 bytes
            root = Path(folder)
            (root / "plugins").mkdir()
            (root / "lib.so").write_bytes(b"\x7fELF first")
            world = World(
                node_cluster(), kubelet(root / "plugins"), machine, cards,
                vgpu_plugin.Settings(
                    NODE, device_plugin_dir=root / "plugins", hook_path=root / "hook", lock_dir=root / "lock",
                    library=root / "lib.so", node_config=root / "none.json",
                ), root,
            )  # fmt: skip
            await world.kubelet.start()
            try:
                await test(world)
            finally:
                await world.kubelet.stop()

    def run() -> None:
        with cards_of(model or two_cards()) as (machine, cards):
            run_virtually(play(machine, cards))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
