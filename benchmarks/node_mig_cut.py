"""A MIG slice cut and served: what a container's start waits for beside the driver.

    python -m benchmarks.node_mig_cut [--quick] [--save]

The driver is the emulated one, and each of its four calls (make and fill, drain and remove) is timed by a wrapper; a real one
takes its tenths of a second there. The rest is ours: matching, planning, the journal on this disk, the pod's annotations (API
server in memory), gRPC. Every pod takes a place over the one before, so each start removes a slice and makes one. Goal: 50 ms.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kit.machines import cards_of
from kit.node_objects import NODE, container, pod_object
from kit.node_world import FakeKubelet, node_cluster
from kit.results import arguments, save

from benchmarks.node_allocate import spread
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.nvml.slices import NvmlSlices
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.ports.clock import SystemClock
from pumice.ports.slices import Place
from pumice.wire import names
from pumice_lab.machine import machine_of

PLACES = ("group1-0", "group2-0")  # 1g.5gb and 2g.10gb at the first memory slice


@dataclass
class Timed(NvmlSlices):
    """Adds up what the driver takes."""

    spent: float = 0.0

    def __post_init__(self) -> None:
        super().__init__()

    def _timed(self, call: Any, place: Place) -> Any:
        began = time.perf_counter()
        try:
            return call(place)
        finally:
            self.spent += time.perf_counter() - began

    def make(self, place: Place) -> None:
        self._timed(super().make, place)

    def fill(self, place: Place) -> str:
        return str(self._timed(super().fill, place))

    def drain(self, place: Place) -> None:
        self._timed(super().drain, place)

    def remove(self, place: Place) -> None:
        self._timed(super().remove, place)


async def measure(root: Path, cards: NvmlCards, pods: int) -> dict[str, Any]:
    (root / "lib.so").write_bytes(b"\x7fELF")
    cluster, kubelet, driver = node_cluster(), FakeKubelet(root), Timed()
    vgpu_plugin.NvmlSlices = lambda: driver  # type: ignore[attr-defined, misc, assignment]
    settings = vgpu_plugin.Settings(
        NODE, device_plugin_dir=root, hook_path=root / "hook", lock_dir=root / "lock", library=root / "lib.so",
        node_config=root / "none.json",
    )  # fmt: skip
    (card,) = (card.uuid for card in cards.facts())
    await kubelet.start()
    stop, ready = asyncio.Event(), asyncio.Event()
    plugin = asyncio.create_task(vgpu_plugin.run(settings, cluster=cluster, clock=SystemClock(), rng=random.Random(1),
                                                 stop=stop, ready=ready, cards=cards))  # fmt: skip
    ours, drivers = [], []
    try:
        await ready.wait()
        for number in range(pods):
            name = f"pod-{number}"
            cluster.put(pod_object(name, f"{card}[{PLACES[number % 2]}],NVIDIA,3000,0:", container("train", 1, 3000)))
            driver.spent, began = 0.0, time.perf_counter()
            answer = await kubelet.allocate(names.VGPU_NUMBER, 1)
            took = time.perf_counter() - began
            (slice_,) = driver.slices(card)
            assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": slice_.uuid}
            ours.append((took - driver.spent) * 1000)
            drivers.append(driver.spent * 1000)
            cluster.change("pods", name, {"status": {"phase": "Succeeded"}})
    finally:
        stop.set()
        await asyncio.wait_for(plugin, 10)
        await kubelet.stop()
    return {"pods": pods, "over the driver's own time ms": spread(ours), "the emulated driver ms": spread(drivers),
            "slices checked": pods}  # fmt: skip


def main() -> None:
    parser = arguments(__doc__, quick="a fifth of the pods")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    base = machine_of("A100-SXM4-40GB")
    model = replace(base, cards=(replace(base.cards[0], mig_mode=True),))
    with tempfile.TemporaryDirectory(prefix="pumice") as folder, cards_of(model) as (_, cards):
        result = asyncio.run(measure(Path(folder), cards, 40 if options.quick else 200))
    save("node_mig_cut", result, keep=options.save)


if __name__ == "__main__":
    main()
