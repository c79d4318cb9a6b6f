"""The commands of docs/how-to/kubernetes.md that install by manifests, typed on a bare cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit import installing
from kit.control_plane import KINDS, control_plane, write_kubeconfig
from kit.installing import program
from kit.manifests import manifest, resource_of

from pumice.apps.doctor.cluster import shipped

ROOT = Path(__file__).parents[2]
INSTEAD = """\
kubectl delete -f deploy/manifests/volcano-vgpu-device-plugin.yml
kubectl create -f deploy/manifests/volcano-device-plugin.yml
kubectl create -f deploy/manifests/ascend-device-configmap.yml
kubectl create -f deploy/manifests/ascend-device-plugin.yml
kubectl create namespace mindx-dl
kubectl create -f deploy/manifests/volcano-mindcluster.yml
kubectl create -f deploy/manifests/ascend-mindcluster-plugin.yml
"""
"""The page's lines about other devices below its block."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_of_the_page_is_taken_in_its_order_and_makes_what_its_file_holds(kind: str, tmp_path: Path) -> None:
    (block,) = installing.blocks("how-to/kubernetes.md", "Install")
    files = [line.split()[3].removeprefix("deploy/manifests/") for line in block.splitlines()]
    assert len(files) == 12
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").symlink_to(program("kubectl"))
    os.symlink(ROOT / "deploy", tmp_path / "deploy")
    with control_plane(kind, tmp_path / "plane") as api:
        installing.run(block, tmp_path, write_kubeconfig(tmp_path / "kubeconfig", api), tmp_path / "bin")
        for name in files[1:]:
            for obj in manifest(name):
                meta = obj["metadata"]
                assert api.get(resource_of(obj).path(meta.get("namespace", ""), meta["name"]))["metadata"]["name"] == meta["name"]
        installing.run(INSTEAD, tmp_path, tmp_path / "kubeconfig", tmp_path / "bin")
        there = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        assert set(shipped.kinds()) <= {item["metadata"]["name"] for item in there}
