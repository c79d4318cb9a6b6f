"""Our own manifests on a bare cluster: the daemons come up as pods, and the guide's pod gets its share from them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from tests.kit.local_cluster import PODS, house, vgpu_pod

from pumice.ports.cluster import Json, Resource

MANIFESTS = Path(__file__).parents[2] / "deploy" / "manifests"
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PriorityClass"}


def objects(*files: str) -> list[Json]:
    return [obj for file in files for obj in yaml.safe_load_all((MANIFESTS / file).read_text()) if obj]


def resource_of(obj: Json) -> Resource:
    group, _, version = obj["apiVersion"].rpartition("/")
    plural = re.sub("ss$", "sse", obj["kind"].lower()) + "s"
    return Resource(group, version, plural, obj["kind"] not in CLUSTER_WIDE)


def test_the_manifests_bring_up_scheduler_controller_and_node_daemons_that_serve_a_pod(tmp_path: Path) -> None:
    with house(tmp_path / "d", "--bare") as cluster:

        async def deploy(kube):
            for obj in objects("volcano.yml", "volcano-vgpu-device-plugin.yml"):
                await kube.create(resource_of(obj), obj)
            await kube.create(PODS, vgpu_pod("guest", 3000, 50))

        async def all_running(kube):
            pods = (await kube.list(PODS))["items"]
            return len(pods) == 4 and all(p["status"].get("phase") == "Running" for p in pods) and pods

        cluster.ask(deploy)
        pods = {p["metadata"]["name"]: p for p in cluster.wait(all_running, 60)}
        assert pods["guest"]["metadata"]["annotations"]["volcano.sh/bind-phase"] == "success"
        ours = sorted(name.rsplit("-", 2)[0] for name in pods if name != "guest")
        assert ours == ["volcano-controllers", "volcano-device", "volcano-scheduler"]
