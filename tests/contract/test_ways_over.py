"""Every command of the pages that lead here from Volcano and HAMi, and back, is run: on both API servers, by kubectl.

No controllers and no kubelets run there: what is shown is that the commands follow on each other and leave what they should.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.control_plane import KINDS, Api, control_plane
from kit.installed_cluster import create
from kit.kubeconfig import write_kubeconfig
from kit.page_commands import ROOT, blocks, run, titles
from kit.upstream_installations import CONF, DEVICES, IMAGES, WORKLOAD, hamis, volcanos

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json

VOLCANO, HAMI, BACK = "how-to/from-volcano.md", "how-to/from-hami.md", "how-to/rollback.md"

@dataclass(frozen=True)
class Place:
    """A cluster, and the folder of somebody who stands before it with a checkout and his manifests."""

    api: Api
    folder: Path

    def run(self, page: str, title: str = "") -> str:
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        found = [Path(assets)] if assets and Path(assets, "kubectl").exists() else []
        return "".join(run(block, self.folder, self.folder / "config", *found) for block in blocks(page, title))

    def put(self, *objects: Json) -> None:
        async def make() -> None:
            async with KubeClient.from_kubeconfig(self.folder / "config") as kube:
                await create(kube, *objects)

        asyncio.run(make())

    def image(self, kind: str, name: str, namespace: str) -> str:
        found = self.api.get(f"/apis/apps/v1/namespaces/{namespace}/{kind}/{name}")
        return str(found["spec"]["template"]["spec"]["containers"][0]["image"])

    def data(self, name: str, namespace: str) -> dict[str, str]:
        return dict(self.api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}").get("data") or {})

    def there(self, path: str) -> bool:
        return self.api.call("GET", path).code == 200


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if not (shutil.which("kubectl") or Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere"), "kubectl").exists()):
        pytest.skip("kubectl is neither in KUBEBUILDER_ASSETS nor on the PATH")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "train.yaml").write_text(WORKLOAD)
    with control_plane(request.param, tmp_path) as api:
        write_kubeconfig(tmp_path / "config", api)
        yield Place(api, tmp_path)


def daemons(place: Place) -> list[str]:
    return [place.image("deployments", "volcano-scheduler", "volcano-system"),
            place.image("deployments", "volcano-controllers", "volcano-system"),
            place.image("daemonsets", "volcano-device-plugin", "kube-system")]  # fmt: skip


def test_from_volcano_and_back_half_by_half(place: Place) -> None:
    place.put(*volcanos())
    ours, theirs = "pumice/pumice:0.1.0", list(IMAGES.values())
    assert daemons(place) == theirs
    for title in titles(VOLCANO):
        place.run(VOLCANO, title)
        if title == "The scheduler's half":
            assert daemons(place) == [ours, ours, theirs[2]]
    assert daemons(place) == [ours] * 3
    kept = place.data("volcano-scheduler-configmap", "volcano-system")
    assert kept == {"volcano-scheduler.conf": CONF}, "the reader's own stays"
    assert place.there("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/volcano-own-node")
    place.run(BACK, "The scheduler's half to Volcano")
    assert daemons(place) == [*theirs[:2], ours]
    place.run(BACK, "The nodes' half to Volcano")
    assert daemons(place) == theirs
    assert not place.there("/apis/apps/v1/namespaces/kube-system/daemonsets/volcano-vgpu-monitor")
    assert not place.there("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/volcano-own-node")


def test_from_hami_and_back(place: Place) -> None:
    place.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}}, *hamis())
    deployment = "/apis/apps/v1/namespaces/default/deployments/train"
    run("kubectl create -f workloads", place.folder, place.folder / "config")
    for title in titles(HAMI):
        place.run(HAMI, title)
    spec = place.api.get(deployment)["spec"]["template"]["spec"]
    assert spec["schedulerName"] == "volcano"
    assert spec["containers"][0]["resources"]["limits"] == {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3k"}
    assert "# HAMi's" in (place.folder / "workloads" / "train.yaml").read_text()
    assert "deviceSplitCount: 7" in place.data("volcano-vgpu-device-config", "kube-system")["device-config.yaml"]
    assert not place.there("/apis/apps/v1/namespaces/kube-system/deployments/hami-scheduler")
    first, *_ = blocks(BACK)
    assert "volcano" in first
    run(first, place.folder, place.folder / "config")
    place.run(BACK, "To HAMi")
    spec = place.api.get(deployment)["spec"]["template"]["spec"]
    assert spec["schedulerName"] == "hami-scheduler"
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}
    assert place.image("deployments", "hami-scheduler", "kube-system").startswith("docker.io/projecthami/hami")
    assert place.data("hami-scheduler-device", "kube-system") == {"device-config.yaml": DEVICES}


def test_every_block_of_the_pages_is_run() -> None:
    """Those of the way back stand below the titles that the tests above name, and one before the first title."""
    for page in (VOLCANO, HAMI):
        assert sum(len(blocks(page, title)) for title in titles(page)) == len(blocks(page)) > 2
    assert titles(BACK) == ["The scheduler's half to Volcano", "The nodes' half to Volcano", "To HAMi"]
    assert len(blocks(BACK)) == 1 + sum(len(blocks(BACK, title)) for title in titles(BACK))
