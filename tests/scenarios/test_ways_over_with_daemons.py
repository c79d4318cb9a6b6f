"""The pages that lead here, gone on a cluster whose daemons and pods run: at their end the reader's pods hold their shares."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kit.installing import ROOT, WORKLOAD, blocks, create, hamis, run
from kit.local_cluster import local_cluster, pumice

from pumice.adapters.kube import KubeClient
from pumice.wire import names
from pumice.wire.kinds import PODS

PAGE = "how-to/from-hami.md"


def test_a_workload_of_hamis_holds_its_share_after_the_page(tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on the PATH")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "train.yaml").write_text(WORKLOAD)
    with local_cluster(tmp_path / "d", "--bare") as cluster:
        cluster.ask(lambda kube: create(kube, *hamis()))
        run("kubectl create -f workloads", tmp_path, cluster.data.kubeconfig)
        for block in blocks(PAGE):
            run(block, tmp_path, cluster.data.kubeconfig)

        async def holds_its_share(kube: KubeClient) -> bool:
            pods = [pod for pod in (await kube.list(PODS, "default"))["items"] if pod["metadata"]["name"].startswith("train-")]
            return any(pod["status"].get("phase") == "Running" and names.VGPU_IDS in pod["metadata"].get("annotations", {})
                       for pod in pods)  # fmt: skip

        async def is_well(kube: KubeClient) -> bool:
            done = pumice("doctor", "cluster", "--kubeconfig", str(cluster.data.kubeconfig), "-o", "json")
            return bool(json.loads(done.stdout)["bad"] == 0)

        cluster.wait(holds_its_share)
        cluster.wait(is_well)
