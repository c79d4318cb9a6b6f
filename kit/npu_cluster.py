"""Emulated NPUs in a cluster of this machine: a scheduler as an example has it, and pods that run a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kit.local_cluster import LocalCluster, phase
from kit.npu_machine import NpuMachine
from pumice.ports.cluster import Json
from pumice.wire.kinds import CONFIGMAPS, PODS

EXAMPLES = Path(__file__).parents[1] / "examples"


def go_by(cluster: LocalCluster, example: str) -> None:
    """Give the scheduler the configuration that stands in this example."""
    found = yaml.safe_load_all((EXAMPLES / example).read_text())
    data = next(obj["data"] for obj in found if obj["kind"] == "ConfigMap")
    cluster.ask(lambda kube: kube.patch(CONFIGMAPS, "volcano-scheduler-configmap", {"data": data}, "volcano-system"))


def script_pod(name: str, script: str, limits: dict[str, str], **metadata: Any) -> Json:
    """A pod that runs the script once, and then stays."""
    container = {"name": "c", "image": "x", "command": ["sh", "-c", f"({script}) 2>&1; echo over; sleep 1000"],
                 "resources": {"limits": limits}}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container]}}  # fmt: skip


def machine(cluster: LocalCluster, node: str) -> NpuMachine:
    return NpuMachine(cluster.data.node(node) / "machine")


def said(cluster: LocalCluster, name: str) -> str:
    """What the script of the newest container printed, once it is over."""

    async def log(kube: Any) -> str:
        if await phase(kube, name) != "Running":
            return ""
        found = sorted((cluster.data.root / "nodes").glob(f"*/logs/default_{name}_*/c/*.log"))
        return text if found and "over" in (text := found[-1].read_text()) else ""

    return str(cluster.wait(log))


def until_slices(cluster: LocalCluster, node: str, wanted: list[tuple[int, str]]) -> None:
    """On the node's two chips, once the plugin or the runtime has done its work."""
    found = machine(cluster, node)

    async def there(kube: Any) -> bool:
        return [*found.slices(0), *found.slices(1)] == wanted

    cluster.wait(there)


def ran(cluster: LocalCluster, pod: Json) -> str:
    """What the script of a new pod printed."""
    cluster.ask(lambda kube: kube.create(PODS, pod))
    return said(cluster, pod["metadata"]["name"])
