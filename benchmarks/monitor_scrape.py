"""A scrape of the node's monitor with many containers, with hostile regions among them, and what 10,000 scrapes leave behind.

    python -m benchmarks.monitor_scrape [--quick] [--save]

Processor time of this process for one page of which nothing was read before: pods, grants, regions, the driver's lists, the
text. The driver is one that answers at once. Each page is read by prometheus-client's parser and compared with what lies in the
regions.
A hostile region says that 1,024 processes on 16 cards use all there is, and that a writer is at work on each of them.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kit.node_objects import NODE, container, gives, pod_object
from kit.region_files import Proc, region_bytes, write
from kit.results import arguments
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.apps.monitor.accounts import AccountRounds
from pumice.apps.monitor.daemon import MetricsPage
from pumice.apps.monitor.reader import DriverWatch, NodeReader
from pumice.apps.service.http import read_process
from pumice.effects.vocabulary import Event
from pumice.node.pods import NodePod
from pumice.ports.cards import CardProcess, CardReading, InstanceReading
from pumice.ports.clock import SystemClock
from pumice.ports.processes import Owner
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.objects import Node as KubeNode
from pumice.wire.objects import convert

MINUTES = 5
MIB = 1 << 20
CARDS = [f"GPU-0a0a0a0a-0000-4000-8000-{i:012d}" for i in range(16)]
USED = 5 * MIB


class Driver:
    """Eight cards, and as many processes on them as it is told."""

    def __init__(self) -> None:
        self.there: tuple[CardProcess, ...] = ()

    def readings(self) -> tuple[CardReading, ...]:
        return tuple(CardReading(i, uuid, 1 << 30, 1 << 35, 50, 20, "Tesla V100-SXM2-32GB") for i, uuid in enumerate(CARDS[:8]))

    def processes(self) -> tuple[CardProcess, ...]:
        return self.there

    def instances(self) -> tuple[InstanceReading, ...]:
        return ()

    def owners(self, pids: Any) -> dict[int, Owner]:
        return {}

    def close(self) -> None:
        return


class LeapingClock(SystemClock):
    """A clock that is told to go ahead, so that what was read before is old."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Own:
    """Pods and node as their watches would have them (``OwnNode``), without an API server that remembers every change."""

    def __init__(self) -> None:
        self.name, self.clock = NODE, LeapingClock()
        self.held: dict[str, NodePod] = {}
        self.node = convert(KubeNode, {"metadata": {"name": NODE}})

    @property
    def pods(self) -> list[NodePod]:
        return list(self.held.values())

    @property
    def recorder(self) -> Own:
        return self

    async def try_to_write(self, event: Event) -> None:
        """Hostile regions are told of."""


class Node:
    """A node with its monitor; ``folder`` is the plugin's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.driver, self.own = folder, Driver(), Own()
        self.count = 0
        own: Any = self.own
        self.reader = NodeReader(lambda: self.folder, own, NvidiaConfig())
        self.watch = DriverWatch(Driver, self.driver, own.clock)
        self.accounts = AccountRounds(self.reader, self.watch, self.driver, own, 5.0)
        self.page = MetricsPage(own, self.reader, self.watch, self.accounts, legacy=True)

    def close(self) -> None:
        self.watch.close()
        self.reader.close()

    def run(self, count: int, processes: int, *, hostile: bool = False) -> None:
        """So many more containers, one on each card in turn."""
        for _ in range(count):
            name, card = f"p{self.count}", self.count % 8
            pod = pod_object(name, gives(CARDS[card]), container("train", 1, 3000, 50), uid=name, phase="Running")
            self.own.held[name] = convert(NodePod, pod)
            write(self.folder / f"{name}_train" / "r.cache", hostile_region() if hostile else region(card, processes))
            self.count += 1
        self.driver.there = tuple(CardProcess(CARDS[i % 8], i, USED) for i in range(len(self.own.held) * processes))
        self._publish()

    def leave(self, name: str) -> None:
        """A pod goes, and its folder with it."""
        del self.own.held[name]
        shutil.rmtree(self.folder / f"{name}_train")
        self._publish()

    def _publish(self) -> None:
        handed = "".join(f"{uid} {pod.annotations[names.VGPU_IDS]}\n" for uid, pod in sorted(self.own.held.items()))
        self.own.node = convert(KubeNode, {"metadata": {"name": NODE, "annotations": {names.HANDED_OUT: handed}}})

    async def scrape(self) -> tuple[float, str]:
        """Milliseconds of processor time, and the page. Nothing that was read before counts as fresh."""
        self.own.clock.ahead += 3600
        began = time.process_time()
        text = await self.page.text()
        return (time.process_time() - began) * 1000, text


def region(card: int, processes: int) -> bytes:
    procs = tuple(Proc(i + 1, {0: (1, 1, USED, USED)}, {0: 3}) for i in range(processes))
    return bytes(region_bytes(devices=1, procs=procs, uuids={0: CARDS[card].encode()}, last=1_700_000_000))


def hostile_region() -> bytes:
    everything = dict.fromkeys(range(16), (2 ** 64 - 1,) * 4)
    procs = tuple(Proc(i + 1, everything, sequence=1) for i in range(1024))  # type: ignore[arg-type]
    return bytes(region_bytes(devices=16, procs=procs, uuids={i: uuid.encode() for i, uuid in enumerate(CARDS)}))


def check(text: str, containers: int, processes: int, hostile: int = 0) -> None:
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    used = found["vGPU_device_memory_usage_in_bytes"]
    assert len(used) == containers + hostile
    assert sum(sample.value == processes * USED for sample in used) == containers
    assert len({sample.labels["podname"] for sample in used}) == containers + hostile


async def scrapes(folder: Path, containers: int, processes: int, runs: int, hostile: int = 0) -> list[float]:
    node = Node(folder)
    try:
        node.run(containers, processes)
        node.run(hostile, 1, hostile=True)
        check((await node.scrape())[1], containers, processes, hostile)
        gc.collect()
        return [(await node.scrape())[0] for _ in range(runs)]
    finally:
        node.close()


async def churn(folder: Path, rounds: int) -> float:
    """Growth of resident memory in percent over so many scrapes, between which a container comes and one goes each time; the
    first tenth does not count, in which everything is met for the first time."""
    node = Node(folder)
    try:
        node.run(16, 4)
        early = 0
        for number in range(rounds):
            node.run(1, 4)
            node.leave(f"p{node.count - 17}")
            await node.scrape()
            if number % 5 == 0:
                await node.accounts.round()
            if number == rounds // 10:
                gc.collect()
                early = resident()
        gc.collect()
        return 100 * (resident() - early) / early
    finally:
        node.close()


def resident() -> int:
    reading = read_process()
    assert reading is not None
    return reading.resident


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="two runs, 100 scrapes")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--scrapes", type=int, default=10_000, help="of the run that measures memory")
    options = parser.parse_args(argv)
    if options.quick:
        options.runs, options.scrapes = 2, 100
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        few = asyncio.run(scrapes(place / "few", 64, 16, options.runs))
        many = asyncio.run(scrapes(place / "many", 512, 16, options.runs))
        hostile = asyncio.run(scrapes(place / "hostile", 64, 16, options.runs, hostile=64))
        growth = asyncio.run(churn(place / "churn", options.scrapes))
    result: dict[str, Any] = {
        "64_containers_ms": median(few, 2), "512_containers_ms": median(many, 2), "64_and_64_hostile_ms": median(hostile, 2),
        "growth_percent": round(growth, 2), "scrapes": options.scrapes,
    }  # fmt: skip
    middle = {name: result[name]["median"] for name in ("64_containers_ms", "512_containers_ms", "64_and_64_hostile_ms")}
    goals = goals_of("monitor_scrape", {
        "64 containers of 16 processes": middle["64_containers_ms"],
        "512 containers of 16 processes": middle["512_containers_ms"],
        "added by 64 hostile regions": middle["64_and_64_hostile_ms"] - middle["64_containers_ms"],
        "growth over 10,000 scrapes with churn": growth,
    })  # fmt: skip
    return conclude("monitor_scrape", result, goals, keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
