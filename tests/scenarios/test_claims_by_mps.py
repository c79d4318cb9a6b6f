"""A card by claim that two containers share by MPS under `pumice up`: the emulated daemon holds each to the parameters. No real
card has run this."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_cluster import LocalCluster, local_cluster, log_with

from pumice.wire.kinds import DEVICE_CLASSES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES

EXAMPLES = Path(__file__).parents[2] / "examples" / "claims"
KINDS = {"DeviceClass": DEVICE_CLASSES, "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES, "Pod": PODS}
BURN = f"{sys.executable} -m pumice.cli.burn -o json"
MIB = 1 << 20
Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("m")
    (folder / "cluster.yaml").write_text("nodes:\n- {name: n1, cards: 1, model: A100-SXM4-40GB}\n")
    with local_cluster(folder / "d", "--config", str(folder / "cluster.yaml")) as there:
        create(there, *yaml.safe_load_all((EXAMPLES / "classes.yaml").read_text()))

        async def published(kube: Any) -> bool:
            return any(one["spec"].get("devices") for one in (await kube.list(RESOURCE_SLICES))["items"])

        there.wait(published)
        yield there


def create(cluster: LocalCluster, *objects: Json) -> None:
    for one in objects:
        if one["kind"] != "DeviceClass":
            one["metadata"].setdefault("namespace", "default")
        cluster.ask(lambda kube, one=one: kube.create(KINDS[one["kind"]], one))


def example(script: str) -> list[Json]:
    template, pod = yaml.safe_load_all((EXAMPLES / "mps-pod.yaml").read_text())
    for container in pod["spec"]["containers"]:
        container["command"] = ["sh", "-c", f"({script}) 2>&1; echo; echo over; sleep 1000"]
    return [template, pod]


def test_two_containers_of_a_claim_share_its_card_by_mps_and_are_held_to_its_parameters(cluster: LocalCluster) -> None:
    create(cluster, *example(f"env | grep ^CUDA_; {BURN} --memory 9000; {BURN} --kernels 200 --kernel-ms 1"))
    for container in ("first", "second"):
        text = str(cluster.wait(lambda kube, container=container: log_with(kube, "by-mps", "over", container)))
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3000M" in text
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in text
        assert "CUDA_DEVICE_MEMORY" not in text
        assert "CUDA_ERROR_OUT_OF_MEMORY" in text
        assert int(text.partition('"granted_bytes": ')[2].partition(",")[0]) <= 3000 * MIB
        assert float(text.rpartition('"busy_share": ')[2].partition(",")[0]) < 0.56
    cluster.ask(lambda kube: kube.delete(PODS, "by-mps", "default"))

    async def no_daemon(kube: Any) -> bool:
        root = cluster.data.node("n1") / "vgpu" / "claims-mps"
        return not list(root.glob("*/card"))

    cluster.wait(no_daemon)
