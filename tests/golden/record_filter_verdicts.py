"""Ask the real kube-scheduler which nodes pass its filters, and store the answers as the golden set of our predicates.

    KUBEBUILDER_ASSETS=$(make -s kube) .venv/bin/python -m tests.golden.record_filter_verdicts --cases 400
    KUBEBUILDER_ASSETS=$(make -s kube) .venv/bin/python -m tests.golden.record_filter_verdicts --first 1000 --cases 150

What was recorded before of other seeds is kept.

A filter extender receives the nodes that passed every built-in filter and lets none through, so nothing is ever bound.
Each case is asked twice; cases whose two answers differ (the scheduler's cache lagged) are printed and left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import gzip
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from tests.golden.cluster_generator import CLASSES, NAMESPACES, Case, generate

from pumice.adapters.kube import KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError
from pumice.wire import kinds
from pumice_lab import kube_control_plane, pki

GOLDEN = Path(__file__).parent / "filter_verdicts.json.gz"
STORAGE = {
    "PersistentVolumeClaim": kinds.PERSISTENT_VOLUME_CLAIMS, "PersistentVolume": kinds.PERSISTENT_VOLUMES,
    "CSINode": kinds.CSI_NODES, "VolumeAttachment": kinds.VOLUME_ATTACHMENTS,
    "StorageClass": kinds.STORAGE_CLASSES, "CSIDriver": kinds.CSI_DRIVERS,
    "CSIStorageCapacity": kinds.CSI_STORAGE_CAPACITIES,
}  # fmt: skip
SETTLE_SECONDS = 0.15  # for the scheduler's caches: watches of different kinds are not ordered among themselves


class Extender:
    """Remembers the nodes that passed, by pod uid, and refuses them all."""

    def __init__(self) -> None:
        self.passed: dict[str, list[str]] = {}

    async def filter(self, request: web.Request) -> web.Response:
        arguments = await request.json()
        names = sorted(arguments.get("NodeNames") or arguments.get("nodenames") or [])
        pod = arguments.get("Pod") or arguments.get("pod")
        self.passed[pod["metadata"]["uid"]] = names
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "recorded"), "Error": ""})


@contextlib.asynccontextmanager
async def control_plane(directory: Path, extender_port: int | None, *, verbosity: int = 0) -> AsyncIterator[KubeClient]:
    """etcd, kube-apiserver and a kube-scheduler that asks the extender, if there is one; its log is ``scheduler.log``."""
    keys = pki.ensure_pki(directory / "pki", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))
    assets = kube_control_plane.find_assets()
    plane = await kube_control_plane.start(assets, directory, directory, keys, clock=SystemClock(),
                                           controller_manager=False)
    try:
        kubeconfig = kube_control_plane.kubeconfig(keys, plane.server, directory / "kubeconfig")
        config = directory / "scheduler.yaml"
        config.write_text(yaml.safe_dump({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False}, "percentageOfNodesToScore": 100,
            "profiles": [{"schedulerName": "default-scheduler",
                          "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}],
            "extenders": [{"urlPrefix": f"http://127.0.0.1:{extender_port}", "filterVerb": "filter",
                           "nodeCacheCapable": True}] if extender_port is not None else [],
        }))  # fmt: skip
        with (directory / "scheduler.log").open("wb") as log:
            plane.processes["kube-scheduler"] = await asyncio.create_subprocess_exec(
                assets / "kube-scheduler", f"--config={config}", "--secure-port=0", f"-v={verbosity}", stdout=log, stderr=log)
        async with KubeClient.from_kubeconfig(kubeconfig) as kube:
            yield kube
    finally:
        await plane.stop()


async def put(kube: KubeClient, obj: dict[str, Any]) -> None:
    await kube.create(STORAGE[obj["kind"]], obj, obj["metadata"].get("namespace", ""))
    if obj["kind"] == "PersistentVolume":  # no controller runs here that would say so
        phase = {"status": {"phase": "Bound" if "claimRef" in obj["spec"] else "Available"}}
        await kube.patch(kinds.PERSISTENT_VOLUMES, obj["metadata"]["name"], phase, subresource="status")


async def remove(kube: KubeClient, obj: dict[str, Any]) -> None:
    """Delete it whatever protects it."""
    resource, name, space = STORAGE[obj["kind"]], obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    with contextlib.suppress(ApiError):
        await kube.patch(resource, name, {"metadata": {"finalizers": None}}, space)
        await kube.delete(resource, name, space, grace=0)
        await kube.patch(resource, name, {"metadata": {"finalizers": None}}, space)


async def ask(kube: KubeClient, extender: Extender, case: Case) -> list[str]:
    """The names of the nodes that pass for this case; the cluster is empty again afterwards."""
    try:
        await asyncio.gather(*(kube.create(kinds.NODES, node) for node in case.nodes))
        await asyncio.gather(*(put(kube, obj) for obj in case.storage))
        await asyncio.gather(*(kube.create(kinds.PODS, pod) for pod in case.bound))
        await asyncio.sleep(SETTLE_SECONDS)
        uid = (await kube.create(kinds.PODS, case.incoming))["metadata"]["uid"]
        for _ in range(400):
            if uid in extender.passed:
                return extender.passed.pop(uid)
            pod = await kube.get(kinds.PODS, "incoming", "default")
            if any(c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"].get("conditions", ())):
                return extender.passed.pop(uid, [])
            await asyncio.sleep(0.02)
        raise AssertionError(f"kube-scheduler said nothing about case {case.seed}")
    finally:
        for pod in [case.incoming, *case.bound]:
            with contextlib.suppress(ApiError):
                await kube.delete(kinds.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
        await asyncio.gather(*(kube.delete(kinds.NODES, node["metadata"]["name"]) for node in case.nodes))
        await asyncio.gather(*(remove(kube, obj) for obj in reversed(case.storage)))
        await asyncio.sleep(SETTLE_SECONDS)


async def record(seeds: Iterable[int]) -> list[dict[str, Any]]:
    extender = Extender()
    app = web.Application()
    app.router.add_post("/filter", extender.filter)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        async with control_plane(Path(folder), runner.addresses[0][1]) as kube:
            await kube.create(kinds.NAMESPACES, {"metadata": {"name": "other"}})
            for name, labels in NAMESPACES.items():
                await kube.patch(kinds.NAMESPACES, name, {"metadata": {"labels": labels}})
            for obj in CLASSES:
                await kube.create(STORAGE[obj["kind"]], obj)
            for seed in seeds:
                case = generate(seed)
                try:
                    first, second = await ask(kube, extender, case), await ask(kube, extender, case)
                except ApiError as error:
                    print(f"case {seed}: {error.message}, left out", flush=True)
                    continue
                if first == second:
                    recorded.append({"seed": seed, "passed": first})
                else:
                    print(f"case {seed}: {first} then {second}, left out", flush=True)
    await runner.cleanup()
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--output", type=Path, default=GOLDEN)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.cases)
    verdicts = asyncio.run(record(seeds))
    if options.output.exists():
        before = json.loads(gzip.decompress(options.output.read_bytes()))["cases"]
        verdicts = sorted(verdicts + [v for v in before if v["seed"] not in seeds], key=lambda verdict: verdict["seed"])
    passed = sum(len(v["passed"]) for v in verdicts)
    document = {"recorded_from": f"kube-scheduler of {os.environ['KUBEBUILDER_ASSETS'].rsplit('/', 1)[-1]}",
                "generator": "tests/golden/cluster_generator.py", "cases": verdicts}  # fmt: skip
    options.output.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    print(f"{len(verdicts)} cases recorded, {passed} nodes passed in all")


if __name__ == "__main__":
    main()
