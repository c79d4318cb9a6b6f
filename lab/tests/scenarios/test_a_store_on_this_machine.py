"""A StatefulSet with claims of its own on `pumice up`: what its pods keep outlives them, and goes with the claims."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kit.local_cluster import LocalCluster, local_cluster

from pumice.ports.cluster import Json
from pumice.wire.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STATEFUL_SETS

WRITES = "echo started >> /data/starts; sleep 1000"


def _store(replicas: int) -> Json:
    container = {
        "name": "c",
        "image": "any",
        "command": ["bash", "-c", WRITES],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "store", "namespace": "default"},
            "spec": {"serviceName": "store", "replicas": replicas, "selector": {"matchLabels": {"app": "store"}},
                     "volumeClaimTemplates": [claim],
                     "template": {"metadata": {"labels": {"app": "store"}},
                                  "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}}}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if os.geteuid() != 0:
        pytest.skip("mounts of a container's own need root")
    with local_cluster(tmp_path_factory.mktemp("store") / "d", "--nodes", "2", "--cards", "0") as built:
        yield built


def _starts(cluster: LocalCluster) -> list[int]:
    """How often each pod has started on what it keeps."""
    files = cluster.data.root.glob("nodes/*/root/tmp/pumice-volumes/pvc-*/starts")
    return sorted(len(file.read_text().splitlines()) for file in files)


def test_what_a_pod_keeps_is_there_when_it_comes_back_and_gone_when_its_claim_is(cluster: LocalCluster) -> None:
    cluster.ask(lambda kube: kube.create(STATEFUL_SETS, _store(2)))

    async def first(_: Any) -> bool:
        return _starts(cluster) == [1, 1]

    cluster.wait(first)
    cluster.ask(lambda kube: kube.delete(PODS, "store-1", "default", grace=0))

    async def again(_: Any) -> bool:
        return _starts(cluster) == [1, 2]

    cluster.wait(again)
    cluster.ask(lambda kube: kube.delete(STATEFUL_SETS, "store", "default"))
    for name in ("data-store-0", "data-store-1"):
        cluster.ask(lambda kube, name=name: kube.delete(PERSISTENT_VOLUME_CLAIMS, name, "default"))

    async def gone(kube: Any) -> bool:
        return not (await kube.list(PERSISTENT_VOLUMES))["items"] and _starts(cluster) == []

    cluster.wait(gone)
