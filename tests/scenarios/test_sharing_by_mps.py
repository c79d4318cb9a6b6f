"""Cards shared by MPS under `pumice up`: the emulated driver and daemon hold a pod to its share. No real card has run this."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from kit.local_cluster import PODS, LocalCluster, local_cluster, log_with, vgpu_pod

BURN = f"{sys.executable} -m pumice.cli.burn"
MIB = 1 << 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("mps")
    (folder / "cluster.yaml").write_text("nodes:\n- {name: n1, cards: 2, model: A100-SXM4-40GB, sharing: mps}\n")
    with local_cluster(folder / "d", "--config", str(folder / "cluster.yaml")) as cluster:
        yield cluster


def burner(name: str, memory: int, cores: int, script: str, **env: str) -> dict[str, Any]:
    pod = vgpu_pod(name, memory, cores)
    container = pod["spec"]["containers"][0]
    container["command"] = ["sh", "-c", f"({script}) 2>&1; echo; echo over; sleep 1000"]
    container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return pod


def said(cluster: LocalCluster, pod: dict[str, Any]) -> str:
    cluster.ask(lambda kube: kube.create(PODS, pod))
    return str(cluster.wait(lambda kube: log_with(kube, pod["metadata"]["name"], "over")))


def test_a_pod_gets_its_memory_and_no_more_and_its_portion_of_the_card(shared: LocalCluster) -> None:
    script = f"env | grep ^CUDA_; {BURN} --memory 9000 -o json; {BURN} --kernels 400 --kernel-ms 1 -o json"
    text = said(shared, burner("bound", 3000, 50, script))
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3000M" in text
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in text
    assert "CUDA_DEVICE_MEMORY" not in text
    decoder, found, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = text.find("{", end)
    memory, busy = found
    assert memory["error"]["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert 2000 * MIB < memory["granted_bytes"] <= 3000 * MIB
    assert abs(busy["busy_share"] - 0.5) < 0.06
