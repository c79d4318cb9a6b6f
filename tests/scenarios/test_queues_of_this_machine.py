"""`examples/quota` on a cluster of this machine: one team borrows, the other claims back, and `pumice top` shows both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from kit.local_cluster import LocalCluster, local_cluster, pumice

from pumice.adapters.kube import KubeClient
from pumice.wire import kinds, volcano
from pumice.wire.kinds import PODS

EXAMPLE = Path(__file__).parents[2] / "examples/quota"
KINDS = {"ConfigMap": kinds.CONFIGMAPS, "Queue": volcano.QUEUES, "ReplicaSet": kinds.REPLICA_SETS}
MEMORY = "volcano.sh/vgpu-memory"


def apply(cluster: LocalCluster, name: str) -> None:
    async def each(kube: KubeClient) -> None:
        for obj in yaml.safe_load_all((EXAMPLE / name).read_text()):
            resource = KINDS[obj["kind"]]
            namespace = obj["metadata"].get("namespace", "default") if resource.namespaced else ""
            if obj["kind"] == "ConfigMap":
                await kube.patch(resource, obj["metadata"]["name"], {"data": obj["data"]}, namespace)
            else:
                await kube.create(resource, obj, namespace)

    cluster.ask(each)


def running(team: str, count: int) -> Any:
    async def are(kube: KubeClient) -> bool:
        pods = (await kube.list(PODS))["items"]
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith(team) and pod["status"].get("phase") == "Running"]
        return len(mine) == count

    return are


def shown(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    done = pumice("top", "--tab", "queues", "-o", "json", "--data-dir", str(cluster.data.root))
    assert done.returncode == 0, done.stderr
    return {queue["name"]: queue for queue in json.loads(done.stdout)["queues"]}


def test_a_team_borrows_what_is_idle_and_gives_it_back_to_the_gang_that_deserves_it(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "d", "--cards", "4") as cluster:
        apply(cluster, "scheduler-config.yaml")
        apply(cluster, "queues.yaml")
        apply(cluster, "vision.yaml")
        cluster.wait(running("vision", 8))
        assert shown(cluster)["vision"]["borrowed"][MEMORY] == "20000"
        apply(cluster, "language.yaml")
        cluster.wait(running("language", 4))
        found = shown(cluster)
        assert {name: found[name]["used"][MEMORY] for name in ("vision", "language", "research")} == {
            "vision": "20000", "language": "20000", "research": "40000"}  # fmt: skip
        assert (found["vision"]["borrowed"], found["vision"]["pending"]) == ({}, 4)
