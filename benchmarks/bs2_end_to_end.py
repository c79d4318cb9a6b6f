"""BS2 to BS4 and BS7, end to end: the scheduler as a process against an API server.

    python -m benchmarks.bs2_end_to_end [--nodes 1000] [--pods 5000] [--quick] [--save] [--only burst,latency,gang,never]

The API server is the real kube-apiserver with etcd when KUBEBUILDER_ASSETS names their binaries, else the embedded one (then in
this process, beside the load: figures on it do not stand in for the real one). Nodes are objects only: 8 cards of 81,920 MiB and
10 shares. ``null_binder`` is a loop that watches pods and sends such Bindings with annotations, next fit, nothing else.
Every run is audited from the objects alone: no card over, no partial gang, nothing lost.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.kit.auditor import audit
from tests.kit.objects import group, node, pod

from benchmarks.bs1_decide import EVERYTHING, shapes
from benchmarks.report import save
from pumice.adapters.kube import KubeClient
from pumice.cluster import kube_control_plane
from pumice.cluster.control_plane import start_embedded
from pumice.cluster.datadir import DataDir
from pumice.cluster.pki import Pki, ensure_pki
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Json, Resource
from pumice.wire import volcano

CRDS = Path(__file__).parents[1] / "deploy" / "manifests" / "crds"
CRD = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
BINDER = "null-binder"


@asynccontextmanager
async def api_server(directory: Path) -> AsyncIterator[tuple[Path, str]]:
    """(kubeconfig, name) of a fresh API server."""
    clock = SystemClock()
    pki: Pki = ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))
    if os.environ.get("KUBEBUILDER_ASSETS"):
        plane: Any = await kube_control_plane.start(
            kube_control_plane.find_assets(), directory / "kube", directory / "logs", pki, clock=clock,
            controller_manager=False,
        )  # fmt: skip
        name = "kube-apiserver and etcd"
    else:
        data = DataDir(directory / "data")
        data.root.mkdir(parents=True, exist_ok=True)
        data.database.parent.mkdir(parents=True, exist_ok=True)
        plane = await start_embedded(data, pki, address="127.0.0.1", port=0, clock=clock, dice=random.Random(1),
                                     kubelet_tokens=[])  # fmt: skip
        name = "embedded"
    try:
        yield kube_control_plane.kubeconfig(pki, plane.server, directory / "kubeconfig"), name
    finally:
        await plane.stop()


async def prepare(kube: KubeClient, nodes: int) -> None:
    for path in sorted(CRDS.glob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if obj:
                await kube.create(CRD, obj)
    for name in ("volcano-system", "default"):
        try:
            await kube.create(volcano.NAMESPACES, {"metadata": {"name": name}})
        except ApiError as error:
            if error.code != 409:
                raise

    async def one(index: int) -> None:
        obj = node(f"n{index:05d}", cards=8, mib=81920, cpu="96", memory="768Gi")
        obj["metadata"].pop("uid")
        made = await kube.create(volcano.NODES, obj)
        if not made.get("status", {}).get("allocatable"):
            await kube.patch(volcano.NODES, obj["metadata"]["name"], {"status": obj["status"]}, subresource="status")

    await bounded([one(index) for index in range(nodes)])
    await asyncio.sleep(1)


async def preload(kube: KubeClient, count: int, nodes: int) -> None:
    """Bound pods, as another scheduler's work would have left them: 20 a node, over its first two cards."""

    async def one(index: int) -> None:
        where = f"n{index // 20 % nodes:05d}"
        ids = f"GPU-{where}-{index % 20 // 10},NVIDIA,4000,5:"
        obj = make_pod(f"running-{index}", index, mib=4000)
        limits = obj["spec"]["containers"][0]["resources"]
        limits["limits"]["volcano.sh/vgpu-cores"] = limits["requests"]["volcano.sh/vgpu-cores"] = "5"
        obj["spec"]["nodeName"] = where
        obj["metadata"]["annotations"] = {
            "volcano.sh/vgpu-node": where, "volcano.sh/vgpu-time": "1", "volcano.sh/vgpu-ids-new": ids,
            "volcano.sh/devices-to-allocate": ids, "volcano.sh/bind-phase": "success", "volcano.sh/bind-time": "1"}  # fmt: skip
        await kube.create(volcano.PODS, obj, "default")

    await bounded([one(index) for index in range(count)])


async def bounded(calls: list[Any], width: int = 32) -> list[Any]:
    room = asyncio.Semaphore(width)

    async def run(call: Any) -> Any:
        async with room:
            return await call

    return await asyncio.gather(*(run(call) for call in calls))


def make_pod(name: str, index: int, *, scheduler: str = "volcano", gang: str | None = None, mib: int = 0) -> Json:
    size, cores = KINDS[index % len(KINDS)]
    obj = pod(name, mib=mib or size, cores=cores, cards=1, group=gang, scheduler=scheduler)
    obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in ("uid", "creationTimestamp")}
    obj.pop("status")
    return obj


KINDS = shapes(20)


class Scheduler:
    """``pumice scheduler`` as a child process; CPU and memory are its own."""

    def __init__(self, kubeconfig: Path, directory: Path, *flags: str) -> None:
        self._conf = directory / "volcano-scheduler.conf"
        self._conf.write_text(EVERYTHING)
        self._log = directory / f"scheduler-{time.monotonic_ns()}.log"
        self._arguments = ["scheduler", "--kubeconfig", str(kubeconfig), "--scheduler-conf", str(self._conf),
                           "--listen-address", "127.0.0.1:0", *flags]  # fmt: skip

    async def __aenter__(self) -> Scheduler:
        began = time.monotonic()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pumice", *self._arguments, stderr=self._log.open("w"), stdin=asyncio.subprocess.DEVNULL
        )
        while "ready nodes" not in self._log.read_text():
            assert self.process.returncode is None, self._log.read_text()[-2000:]
            await asyncio.sleep(0.02)
        self.start_s = time.monotonic() - began
        self._cpu = self.cpu()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.terminate()
        await asyncio.wait_for(self.process.wait(), 20)

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cpu_since_ready(self) -> float:
        return self.cpu() - self._cpu

    def peak_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))) / 1024


class Watcher:
    """When each pod was first seen with a node, by this process' clock."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self.bound: dict[str, float] = {}
        self.news = asyncio.Event()

    async def run(self) -> None:
        async for event in self._kube.watch(volcano.PODS, "default"):
            if event.type in ("ADDED", "MODIFIED"):
                obj = json.loads(event.raw)
                if obj["spec"].get("nodeName"):
                    self.bound.setdefault(obj["metadata"]["name"], time.monotonic())
                    self.news.set()

    async def wait(self, names: set[str], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not names <= self.bound.keys():
                self.news.clear()
                await self.news.wait()


async def clean(kube: KubeClient) -> None:
    """Delete all pods and groups."""
    for resource in (volcano.PODS, volcano.POD_GROUPS):
        objects = (await kube.list(resource, "default"))["items"]
        await bounded([kube.delete(resource, o["metadata"]["name"], "default", grace=0) for o in objects])
    await asyncio.sleep(1)


async def check(kube: KubeClient, expected: int) -> None:
    pods = (await kube.list(volcano.PODS, "default"))["items"]
    groups = (await kube.list(volcano.POD_GROUPS, "default"))["items"]
    found = audit((await kube.list(volcano.NODES))["items"], pods, groups)
    assert not found, found[:3]
    placed = sum(1 for p in pods if p["spec"].get("nodeName"))
    assert placed >= expected, f"{placed} of {expected} are bound"


async def burst(kube: KubeClient, watcher: Watcher, count: int, scheduler: str) -> dict[str, float]:
    """All pods at once; rates from the first create to the last Binding seen."""
    names = {f"b-{scheduler}-{i}" for i in range(count)}
    began = time.monotonic()
    await bounded([kube.create(volcano.PODS, make_pod(f"b-{scheduler}-{i}", i, scheduler=scheduler), "default")
                   for i in range(count)])  # fmt: skip
    created = time.monotonic()
    await watcher.wait(names, 300)
    last = max(watcher.bound[name] for name in names)
    return {"pods_per_s": round(count / (last - began), 1), "created_per_s": round(count / (created - began), 1),
            "behind_creation_s": round(max(0.0, last - created), 3)}  # fmt: skip


async def null_binder(kubeconfig: Path) -> None:
    """Watches pods and binds them, next fit over cards by their counts alone."""
    async with KubeClient.from_kubeconfig(kubeconfig, connections=64) as kube:
        names = [n["metadata"]["name"] for n in (await kube.list(volcano.NODES))["items"]]
        cards = [(name, f"GPU-{name}-{c}") for name in names for c in range(8)]
        left = {card: [81920, 100, 10] for card in cards}
        room = asyncio.Semaphore(32)
        at = 0

        async def send(obj: Json, name: str, ids: str) -> None:
            meta = obj["metadata"]
            keys = ("vgpu-ids-new", "devices-to-allocate")
            annotations = {f"volcano.sh/{key}": ids for key in keys} | {
                "volcano.sh/vgpu-node": name, "volcano.sh/vgpu-time": "1", "volcano.sh/bind-phase": "allocating",
                "volcano.sh/bind-time": "1"}  # fmt: skip
            body = {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": name},
                    "metadata": {"name": meta["name"], "namespace": "default", "annotations": annotations}}  # fmt: skip
            async with room:
                await kube.bind("default", meta["name"], json.dumps(body).encode())

        tasks = set()
        print("ready nodes", file=sys.stderr, flush=True)
        async for event in kube.watch(volcano.PODS, "default", field_selector="spec.nodeName="):
            if event.type != "ADDED":
                continue
            obj = json.loads(event.raw)
            if obj["spec"]["schedulerName"] != BINDER:
                continue
            limits = obj["spec"]["containers"][0]["resources"]["limits"]
            mib, cores = int(limits["volcano.sh/vgpu-memory"]), int(limits["volcano.sh/vgpu-cores"])
            while any(have < want for have, want in zip(left[cards[at]], (mib, cores, 1), strict=True)):
                at += 1
            card = cards[at]
            left[card] = [left[card][0] - mib, left[card][1] - cores, left[card][2] - 1]
            task = asyncio.create_task(send(obj, card[0], f"{card[1]},NVIDIA,{mib},{cores}:"))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


class NullBinder(Scheduler):
    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        super().__init__(kubeconfig, directory)
        self._kubeconfig = kubeconfig

    async def __aenter__(self) -> Scheduler:
        began = time.monotonic()
        code = f"import asyncio,pathlib; from benchmarks.bs2_end_to_end import null_binder as n; asyncio.run(n(pathlib.Path({str(self._kubeconfig)!r})))"  # noqa: E501
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=self._log.open("w"))
        while "ready nodes" not in self._log.read_text():
            await asyncio.sleep(0.02)
        self.start_s = time.monotonic() - began
        self._cpu = self.cpu()
        return self


async def one_burst(kube: KubeClient, watcher: Watcher, child: Scheduler, count: int, name: str) -> dict[str, float]:
    async with child as running:
        before = dict(await writes(kube))
        result = await burst(kube, watcher, count, name)
        await asyncio.sleep(1.5)
        result["api_writes_per_pod"] = round(((await writes(kube))["version"] - before["version"]) / count, 2)
        result["cpu_ms_per_pod"] = round(running.cpu_since_ready() / count * 1000, 3)
        result["peak_rss_mib"] = round(running.peak_mib(), 1)
    await check(kube, count)
    await clean(kube)
    return result


async def writes(kube: KubeClient) -> dict[str, int]:
    found = await kube.list(Resource("", "v1", "configmaps"), "volcano-system")
    return {"version": int(found["metadata"]["resourceVersion"])}


async def latency(kube: KubeClient, watcher: Watcher, rate: float, count: int) -> dict[str, float]:
    """Created to bound at a steady rate, by one clock: from before the create to the watch event with the node."""
    created: dict[str, float] = {}
    start = time.monotonic()
    for i in range(count):
        await asyncio.sleep(max(0.0, start + i / rate - time.monotonic()))
        name = f"l-{i}"
        made = asyncio.create_task(kube.create(volcano.PODS, make_pod(name, i), "default"))
        await made
        created[name] = time.monotonic()
    await watcher.wait(set(created), 60)
    delays = sorted(max(0.0, watcher.bound[name] - at) * 1000 for name, at in created.items())
    return {"p50_ms": round(delays[len(delays) // 2], 2), "p99_ms": round(delays[int(len(delays) * 0.99)], 2),
            "max_ms": round(delays[-1], 2), "pods": count, "rate": rate}  # fmt: skip


async def gang(kube: KubeClient, watcher: Watcher, size: int) -> dict[str, float]:
    body = group("big", minimum=size)
    body["metadata"] = {"name": "big", "namespace": "default"}
    await kube.create(volcano.POD_GROUPS, body, "default")
    names = {f"big-{i}" for i in range(size)}
    await bounded([kube.create(volcano.PODS, make_pod(name, 0, gang="big"), "default") for name in sorted(names)])
    last_created = time.monotonic()
    await watcher.wait(names, 120)
    moments = [watcher.bound[name] for name in names]
    return {"size": size, "first_bound_after_last_create_s": round(min(moments) - last_created, 3),
            "last_bound_after_last_create_s": round(max(moments) - last_created, 3)}  # fmt: skip


async def never(kube: KubeClient, watcher: Watcher, hopeless: int, count: int) -> dict[str, float]:
    """Pods that can never fit, then ordinary ones."""
    await bounded([kube.create(volcano.PODS, make_pod(f"never-{i}", i, mib=90000 + i % 500), "default")
                   for i in range(hopeless)])  # fmt: skip
    await asyncio.sleep(2)
    began = time.monotonic()
    names = {f"after-{i}" for i in range(count)}
    await bounded([kube.create(volcano.PODS, make_pod(name, i), "default") for i, name in enumerate(sorted(names))])
    await watcher.wait(names, 120)
    moments = [watcher.bound[name] - began for name in names]
    return {"never_fit": hopeless, "first_bound_s": round(min(moments), 3), "pods_per_s": round(count / max(moments), 1)}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"nodes": options.nodes, "pods": options.pods, "running": options.running}
    wanted = options.only.split(",")
    with tempfile.TemporaryDirectory(prefix="pumice-bs2-") as place:
        directory = Path(place)
        async with api_server(directory) as (kubeconfig, name):
            result["api_server"] = name
            async with KubeClient.from_kubeconfig(kubeconfig, connections=64) as kube:
                await prepare(kube, options.nodes)
                await preload(kube, options.running, options.nodes)
                watcher = Watcher(kube)
                watching = asyncio.create_task(watcher.run())
                bare = ("--no-events", "--no-status-writes")
                if "burst" in wanted:
                    result["null_binder"] = await one_burst(kube, watcher, NullBinder(kubeconfig, directory), options.pods,
                                                            BINDER)  # fmt: skip
                    result["burst"] = await one_burst(kube, watcher, Scheduler(kubeconfig, directory, *bare), options.pods,
                                                      "volcano")  # fmt: skip
                    watcher.bound.clear()
                    result["burst_with_events_and_status"] = await one_burst(
                        kube, watcher, Scheduler(kubeconfig, directory), options.pods, "volcano")  # fmt: skip
                    rates = result["burst"]["pods_per_s"], result["null_binder"]["pods_per_s"]
                    result["part_of_null_binder"] = round(rates[0] / rates[1], 3)
                async with Scheduler(kubeconfig, directory) as scheduler:
                    result["start_s"] = round(scheduler.start_s, 2)
                    if "latency" in wanted:
                        result["latency_20_per_s"] = await latency(kube, watcher, 20, 100 if options.quick else 600)
                        await check(kube, 100 + options.running)
                        if wanted != ["latency"]:
                            await clean(kube)
                    if "gang" in wanted:
                        result["gang"] = await gang(kube, watcher, 500)
                        await check(kube, 500)
                        await clean(kube)
                    if "never" in wanted:
                        number = 1000 if options.quick else 10000
                        result["never"] = await never(kube, watcher, number, 1000)
                        await check(kube, 1000)
                    result["peak_rss_mib"] = round(scheduler.peak_mib(), 1)
                watching.cancel()
    return result


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--running", type=int, default=0, help="pods that are bound before")
    parser.add_argument("--only", default="burst,latency,gang,never")
    parser.add_argument("--quick", action="store_true", help="fewer pods")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args(argv)
    result = asyncio.run(run(options))
    on = "kube" if result["api_server"].startswith("kube") else "embedded"
    name = f"bs3_latency_{on}" if options.running else f"bs2_end_to_end_{on}"
    save(name, result, keep=options.save)


if __name__ == "__main__":
    main()
