"""Our own manifests on a bare cluster: the daemons come up as pods, and the guide's pod gets its share from them."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from kit.local_cluster import LocalCluster, local_cluster, pumice, vgpu_pod
from kit.manifests import manifest, resource_of

from pumice.wire.kinds import PODS


def test_the_manifests_bring_up_daemons_that_serve_a_pod_by_the_rights_of_their_accounts(tmp_path: Path) -> None:
    """Although somebody on this machine has their usual ports: each listens on its pod's own address, where its probes ask."""
    with contextlib.ExitStack() as neighbours:
        for port in (8080, 8081, 9394, 9395):
            with contextlib.suppress(OSError):  # somebody has it indeed
                neighbours.enter_context(socket.create_server(("127.0.0.1", port)))
        bring_up(tmp_path)


def bring_up(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "d", "--bare") as cluster:

        async def deploy(kube):
            for obj in [*manifest("volcano.yml"), *manifest("volcano-vgpu-device-plugin.yml")]:
                await kube.create(resource_of(obj), obj)
            await kube.create(PODS, vgpu_pod("guest", 3000, 50))

        async def all_running(kube):
            pods = (await kube.list(PODS))["items"]
            ready = [c["status"] for p in pods for c in p["status"].get("conditions", ()) if c["type"] == "Ready"]
            return ready == ["True"] * 5 and pods

        cluster.ask(deploy)
        pods = {p["metadata"]["name"]: p for p in cluster.wait(all_running, 60)}
        assert pods["guest"]["metadata"]["annotations"]["volcano.sh/bind-phase"] == "success"
        ours = sorted(name.rsplit("-", 2)[0] for name in pods if name != "guest")
        assert ours == ["volcano-controllers", "volcano-device", "volcano-scheduler", "volcano-vgpu"]

        async def refusals(kube):
            found = [(p["metadata"], c["name"]) for name, p in pods.items() if name != "guest" for c in p["spec"]["containers"]]
            ways = [f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log" for meta, _ in found]
            texts = [await kube.request("GET", way, params={"container": c}) for way, (_, c) in zip(ways, found, strict=True)]
            assert all(texts)
            return [line for text in texts for line in text.decode().splitlines() if "forbidden" in line.lower()]

        assert cluster.ask(refusals) == []
        explain_takes_no_pod_of_another_scheduler_for_ours(cluster)


def explain_takes_no_pod_of_another_scheduler_for_ours(cluster: LocalCluster) -> None:
    """The one that was deployed places Volcano's pods alone, unlike the one that `pumice up` brings along elsewhere."""
    spec = {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "9999"}}}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain", "namespace": "default"}, "spec": spec}
    cluster.ask(lambda kube: kube.create(PODS, body))
    reported = pumice("explain", "--kubeconfig", str(cluster.data.kubeconfig), "pod", "plain").stdout
    assert "its schedulerName is 'default-scheduler'; this scheduler places pods of volcano" in reported
