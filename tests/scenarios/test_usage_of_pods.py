"""Usage of pods and nodes for `kubectl top`: with real processes, through the API server and the kubelet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.real_node import Cases, Cluster

from pumice.ports.cluster import ApiError
from pumice.wire.kinds import NODES
from pumice.wire.quantity import parse_quantity

METRICS = "/apis/metrics.k8s.io/v1beta1"


async def ask(cluster: Cluster, path: str, **params: str) -> Any:
    return json.loads(await cluster.kube.request("GET", f"{METRICS}/{path}", params=params))


def test_pods_and_nodes_use_what_their_processes_use(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.kube.create(NODES, {"metadata": {"name": "away"}})  # nobody runs a kubelet there
        await cluster.pod("p", "while :; do :; done & sleep 60")
        await cluster.pod("q", "exec sleep 60")
        await cluster.until("p", "Running")
        await cluster.until("q", "Running")
        busy = idle = 0
        for _ in range(100):  # until the program has begun
            found = {pod["metadata"]["name"]: pod for pod in (await ask(cluster, "namespaces/default/pods"))["items"]}
            busy, idle = (parse_quantity(found[name]["containers"][0]["usage"]["cpu"]) for name in ("p", "q"))
            if busy > idle:
                break
        assert busy > idle >= 0
        one = await ask(cluster, "namespaces/default/pods/q")
        assert (one["kind"], one["containers"][0]["name"]) == ("PodMetrics", "c")
        assert parse_quantity(one["containers"][0]["usage"]["memory"]) > 100 << 10
        nodes = (await ask(cluster, "nodes"))["items"]
        assert [node["metadata"]["name"] for node in nodes] == ["n1"]
        assert parse_quantity(nodes[0]["usage"]["memory"]) > parse_quantity(one["containers"][0]["usage"]["memory"])
        assert (await ask(cluster, "nodes/n1"))["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
        assert (await ask(cluster, "pods", labelSelector="app=none"))["items"] == []
        assert (await ask(cluster, "namespaces/kube-system/pods"))["items"] == []

    on_cluster(work)


@pytest.mark.parametrize(("verb", "path", "code"), [
    ("GET", "nodes/none", 404), ("GET", "namespaces/default/pods/none", 404), ("POST", "nodes", 405),
    ("GET", "nodes?watch=true", 405),
])  # fmt: skip
def test_what_nobody_could_tell_is_refused(on_cluster: Cases, verb: str, path: str, code: int) -> None:
    async def work(cluster: Cluster) -> None:
        path_, _, query = path.partition("?")
        with pytest.raises(ApiError) as refused:
            await cluster.kube.request(verb, f"{METRICS}/{path_}", params=dict([query.split("=")]) if query else None,
                                       body=b"{}" if verb == "POST" else None)
        assert refused.value.code == code

    on_cluster(work)
