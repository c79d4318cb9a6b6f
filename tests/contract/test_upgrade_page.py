"""The commands of docs/how-to/upgrade.md, and those of security.md, typed on a cluster that runs the last release's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit import installing
from kit.control_plane import KINDS, Api, control_plane, write_kubeconfig
from kit.installing import ROOT, program
from kit.release import LAST

from pumice import __version__

SCHEDULER, PLUGIN = "volcano.yml", "volcano-vgpu-device-plugin.yml"
INSTALLED = """\
kubectl create -f deploy/manifests/crds
kubectl create -f old/volcano.yml -f old/volcano-vgpu-device-plugin.yml
kubectl create -f deploy/manifests/reserved-annotations.yml -f deploy/manifests/own-node.yml -f deploy/manifests/tenant-limits.yml
"""
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def images(api: Api) -> list[str]:
    """Of the scheduler and of the node's plugin, the versions."""
    found = (api.get("/apis/apps/v1/namespaces/volcano-system/deployments/volcano-scheduler"),
             api.get("/apis/apps/v1/namespaces/kube-system/daemonsets/volcano-device-plugin"))  # fmt: skip
    return [one["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2] for one in found]


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_bring_the_new_version_and_the_old_one_back(kind: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").symlink_to(program("kubectl"))
    os.symlink(ROOT / "deploy", tmp_path / "deploy")
    (tmp_path / "old").mkdir()
    for name in (SCHEDULER, PLUGIN):
        text = (ROOT / "deploy/manifests" / name).read_text("utf-8")
        (tmp_path / "old" / name).write_text(text.replace(f"pumice:{__version__}", f"pumice:{LAST.version}"), "utf-8")
    with control_plane(kind, tmp_path / "plane") as api:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api)

        def typed(block: str) -> None:
            installing.run(block, tmp_path, kubeconfig, tmp_path / "bin")

        typed(INSTALLED)
        assert images(api) == [LAST.version] * 2
        (forth,) = installing.blocks("how-to/upgrade.md", "By manifests")
        typed(forth)
        assert images(api) == [__version__] * 2
        back, _ = installing.blocks("how-to/upgrade.md", "The way back")
        typed(back)
        assert images(api) == [LAST.version] * 2
        assert api.get(POLICIES)["items"] != []
        (without,) = installing.blocks("how-to/security.md")
        typed(without)
        assert api.get(POLICIES)["items"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_helm_brings_it_and_puts_it_back(kind: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("kubectl", "helm"):
        (tmp_path / "bin" / name).symlink_to(program(name))
    os.symlink(ROOT / "deploy", tmp_path / "deploy")
    with control_plane(kind, tmp_path / "plane") as api:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api)
        old = f"helm install pumice deploy/chart --namespace volcano-system --create-namespace --set image.tag={LAST.version}"
        (forth,), (_, back) = (installing.blocks("how-to/upgrade.md", title) for title in ("By Helm", "The way back"))
        for block, version in ((old, LAST.version), (f"{forth.rstrip()} --set image.tag={__version__}", __version__),
                               (back, LAST.version)):  # fmt: skip
            installing.run(block, tmp_path, kubeconfig, tmp_path / "bin")
            assert images(api) == [version] * 2
