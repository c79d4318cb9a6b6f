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
import yaml
from kit.control_plane import KINDS, Api, control_plane, write_kubeconfig
from kit.installing import CONF, DEVICES, IMAGES, ROOT, WORKLOAD, blocks, create, hamis, program, run, titles, volcanos

from pumice import __version__
from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json

VOLCANO, HAMI, BACK = "how-to/from-volcano.md", "how-to/from-hami.md", "how-to/rollback.md"

@dataclass(frozen=True)
class Place:
    """A cluster, and the folder of somebody who stands before it with a checkout and his manifests."""

    api: Api
    folder: Path

    def run(self, page: str, title: str = "") -> str:
        return "".join(run(block, self.folder, self.folder / "config", *self.programs) for block in blocks(page, title))

    @property
    def programs(self) -> list[Path]:
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        return [Path(assets)] if assets and Path(assets, "kubectl").exists() else []

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
    ours, theirs = f"pumice/pumice:{__version__}", list(IMAGES.values())
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


LISTED = ("api/v1/serviceaccounts", "api/v1/configmaps", "api/v1/services", "apis/apps/v1/deployments", "apis/apps/v1/daemonsets",
          *(f"apis/rbac.authorization.k8s.io/v1/{kind}" for kind in (
              "roles", "rolebindings", "clusterroles", "clusterrolebindings")),
          *(f"apis/admissionregistration.k8s.io/v1/{kind}" for kind in (
              "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies")))  # fmt: skip


def installed(place: Place) -> dict[str, Json]:
    """All that an installation consists of, but for kinds: by its place, what it says."""
    found = {}
    for kind in LISTED:
        for item in place.api.get(f"/{kind}")["items"]:
            meta = item["metadata"]
            found[f"{kind}/{meta.get('namespace', '')}/{meta['name']}"] = {
                key: said for key, said in item.items() if key not in ("metadata", "status")}  # fmt: skip
    return found


@pytest.mark.parametrize("devices", [True, False], ids=["with all its ConfigMaps", "without those of devices"])
def test_after_the_way_back_everything_is_as_volcano_left_it(place: Place, devices: bool) -> None:
    """An installation without the ConfigMap of devices is the one in which an empty text was written."""
    place.put(*volcanos(devices=devices))
    before = installed(place)
    for title in titles(VOLCANO):
        place.run(VOLCANO, title)
    written = place.data("volcano-vgpu-device-config", "kube-system")["device-config.yaml"]
    assert "resourceCountName: volcano.sh/vgpu-number" in written
    for title in ("The scheduler's half to Volcano", "The nodes' half to Volcano"):
        place.run(BACK, title)
    left = set(installed(place)) - set(before)
    assert left, "what the page tells of"
    place.run(BACK, "What stays of ours")
    after = installed(place)
    assert sorted(after) == sorted(before)
    assert [key for key in before if after[key] != before[key]] == []


def test_where_a_file_was_never_saved_volcanos_own_installation_makes_it_anew(place: Place) -> None:
    place.put(*volcanos())
    for title in titles(VOLCANO):
        place.run(VOLCANO, title)
    place.run(BACK, "A file that was never saved")
    (place.folder / "volcano-development.yaml").write_text(yaml.safe_dump_all(
        [obj for obj in volcanos() if obj["kind"] not in ("CustomResourceDefinition", "ConfigMap")]))  # fmt: skip
    run("kubectl apply -f volcano-development.yaml", place.folder, place.folder / "config", *place.programs)
    assert daemons(place) == list(IMAGES.values())
    assert place.data("volcano-scheduler-configmap", "volcano-system") == {"volcano-scheduler.conf": CONF}


def test_from_a_release_of_helms_back_to_volcanos_release(place: Place) -> None:
    program("helm")
    chart = place.folder / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: volcano\nversion: 1.12.0\n")
    objects = [obj for obj in volcanos() if obj["kind"] not in ("CustomResourceDefinition", "Namespace")]
    (chart / "templates" / "all.yaml").write_text(yaml.safe_dump_all(objects))
    kube = place.folder / "config", *place.programs
    run("kubectl create -f deploy/manifests/crds\n"
        "helm install volcano ./chart --namespace volcano-system --create-namespace", place.folder, *kube)  # fmt: skip
    before = installed(place)
    run("kubectl -n volcano-system delete deployment volcano-scheduler volcano-controllers\n"
        "kubectl -n kube-system delete daemonset volcano-device-plugin\n"
        "helm upgrade pumice deploy/chart --install --namespace volcano-system --take-ownership --force-conflicts",
        place.folder, *kube)  # fmt: skip
    assert set(daemons(place)) == {f"pumice/pumice:{__version__}"}
    own = {"volcano-scheduler.conf": "actions: allocate\n"}
    place.api.merge("/api/v1/namespaces/volcano-system/configmaps/volcano-scheduler-configmap", {"data": own})
    place.run(BACK, "By Helm to Volcano")
    assert daemons(place) == list(IMAGES.values())
    assert sorted(installed(place)) == sorted(before)
    assert place.data("volcano-scheduler-configmap", "volcano-system") == own


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
    assert titles(BACK) == ["The scheduler's half to Volcano", "The nodes' half to Volcano", "What stays of ours",
                            "By Helm to Volcano", "A file that was never saved", "To HAMi"]  # fmt: skip
    assert len(blocks(BACK)) == 1 + sum(len(blocks(BACK, title)) for title in titles(BACK))
