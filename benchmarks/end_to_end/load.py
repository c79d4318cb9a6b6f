"""The cluster that the schedulers meet and the pods that they get; and the check of what they made of it.

Nodes are objects only: 8 cards of 81,920 MiB and 10 shares each, 96 CPUs, 768 GiB. Pods ask for one card in 20 shapes, 2 to
20 GiB and 10 to 30 cores.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from kit.objects import group, node, pod

from benchmarks.rescan import shapes
from pumice.adapters.kube import KubeClient
from pumice.audit.auditor import audit
from pumice.ports.cluster import ApiError, Json, Resource
from pumice.wire import kinds, volcano

DEFINITIONS = Path(__file__).parents[2] / "deploy" / "manifests" / "crds"
PODS = "/api/v1/namespaces/default/pods"
SHAPES = shapes(20)
WITHOUT_CARDS = "without a decision about its cards"


async def bounded(calls: Iterable[Awaitable[Any]], width: int = 32) -> list[Any]:
    """All of them, at most ``width`` at once."""
    room = asyncio.Semaphore(width)

    async def run(call: Awaitable[Any]) -> Any:
        async with room:
            return await call

    return await asyncio.gather(*(run(call) for call in calls))


async def prepare(kube: KubeClient, nodes: int) -> None:
    """Volcano's kinds, its namespace and the nodes."""
    for path in sorted(DEFINITIONS.glob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if obj:
                await kube.create(kinds.CRDS, obj)
    for name in ("volcano-system", "default"):
        try:
            await kube.create(kinds.NAMESPACES, {"metadata": {"name": name}})
        except ApiError as error:
            if error.code != 409:
                raise

    async def one(index: int) -> None:
        obj = node(f"n{index:05d}", cards=8, mib=81920, cpu="96", memory="768Gi")
        obj["metadata"].pop("uid")
        made = await kube.create(kinds.NODES, obj)
        if not made.get("status", {}).get("allocatable"):
            await kube.patch(kinds.NODES, obj["metadata"]["name"], {"status": obj["status"]}, subresource="status")

    await bounded(one(index) for index in range(nodes))
    await _until_served(kube, volcano.POD_GROUPS, volcano.QUEUES)


async def _until_served(kube: KubeClient, *resources: Resource) -> None:
    """A fresh CRD is served a moment after it was created."""
    async with asyncio.timeout(30):
        for kind in resources:
            while True:
                try:
                    await kube.list(kind)
                    break
                except ApiError:
                    await asyncio.sleep(0.1)


def make_pod(name: str, index: int, *, scheduler: str = "volcano", gang: str | None = None, mib: int = 0) -> Json:
    """One of ``SHAPES`` by its index; ``mib`` asks for another amount."""
    size, cores = SHAPES[index % len(SHAPES)]
    obj = pod(name, mib=mib or size, cores=cores, cards=1, group=gang, scheduler=scheduler)
    obj["metadata"] = {k: v for k, v in obj["metadata"].items() if k not in ("uid", "creationTimestamp")}
    obj.pop("status")
    return obj


async def create_pods(kube: KubeClient, pods: Sequence[Json]) -> set[str]:
    """All at once, 32 requests at a time; the bodies are made before the first is sent. Their names."""
    bodies = [json.dumps(obj).encode() for obj in pods]
    await bounded(kube.request("POST", PODS, body=body) for body in bodies)
    return {obj["metadata"]["name"] for obj in pods}


async def create_groups(kube: KubeClient, names: Sequence[str], size: int) -> None:
    async def one(name: str) -> None:
        body = group(name, minimum=size)
        body["metadata"] = {"name": name, "namespace": "default"}
        await kube.create(volcano.POD_GROUPS, body, "default")

    await bounded(one(name) for name in names)


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
        await kube.request("POST", PODS, body=json.dumps(obj).encode())

    await bounded(one(index) for index in range(count))


async def clean(kube: KubeClient) -> None:
    """Delete all pods and groups."""
    options = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}).encode()
    for resource in (kinds.PODS, volcano.POD_GROUPS):
        path = resource.path("default")
        while json.loads(await kube.request("GET", path, params={"limit": "1"}))["items"]:
            try:
                await kube.request("DELETE", path, body=options)
            except ApiError as error:
                if error.code not in (0, 504):  # a large collection may take longer than one request may last
                    raise


async def check(kube: KubeClient, names: set[str], *, cards: bool = True) -> None:
    """From the server's store alone: every pod is there and bound, no card or node over, no partial gang.

    ``cards`` False: the scheduler chose none, so only nodes are looked at. Raises AssertionError.
    """
    pods = (await kube.list(kinds.PODS, "default"))["items"]
    groups = (await kube.list(volcano.POD_GROUPS, "default"))["items"]
    found = audit((await kube.list(kinds.NODES))["items"], pods, groups)
    if not cards:
        found = [text for text in found if WITHOUT_CARDS not in text]
    assert not found, found[:3]
    lost = names - {p["metadata"]["name"] for p in pods if p["spec"].get("nodeName")}
    assert not lost, f"{len(lost)} of {len(names)} pods are lost or without a node: {sorted(lost)[:3]}"
