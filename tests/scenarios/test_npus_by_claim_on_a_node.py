"""NPUs by claim on an emulated node, from outside: the example's slice, a whole chip, and annotated shares beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from kit.local_cluster import LocalCluster, local_cluster
from kit.npu_nodes import go_by, ran, script_pod, until_slices

from pumice.wire.kinds import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "claims"
KINDS = {"DeviceClass": DEVICE_CLASSES, "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES, "Pod": PODS}
NODE = "n310p"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def npus(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("npus")
    with local_cluster(folder / "d", "--config", str(ROOT / "examples/ascend-mindcluster-cluster.yaml")) as cluster:
        go_by(cluster, "ascend-mindcluster.yaml")
        create(cluster, *yaml.safe_load_all((EXAMPLES / "classes.yaml").read_text()))

        async def published(kube: Any) -> bool:
            slices = (await kube.list(RESOURCE_SLICES))["items"]
            return sum(len(one["spec"].get("devices") or ()) for one in slices) == 2 * 21

        cluster.wait(published)
        yield cluster


def create(cluster: LocalCluster, *objects: Json) -> None:
    async def made(kube: Any) -> bool:
        for one in objects:
            meta = one["metadata"]
            if one["kind"] != "DeviceClass":
                meta.setdefault("namespace", "default")
            await kube.create(KINDS[one["kind"]], one)
        return True

    cluster.wait(made)


def address_of(cluster: LocalCluster) -> str:
    found: list[str] = []

    async def there(kube: Any) -> bool:
        found.append((await kube.get(NODES, NODE))["status"]["addresses"][0]["address"])
        return True

    cluster.wait(there)
    return found[0]


def test_the_example_has_a_slice_of_a_chip_that_goes_with_it(npus: LocalCluster) -> None:
    template, pod = yaml.safe_load_all((EXAMPLES / "npu-pod.yaml").read_text())
    create(npus, template, pod)

    async def over(kube: Any) -> bool:
        return (await kube.get(PODS, "by-npu", "default"))["status"].get("phase") == "Succeeded"

    npus.wait(over)
    (log,) = (npus.data.root / "nodes").glob("*/logs/default_by-npu_*/*/*.log")
    assert "vNPU 100 VIRTUAL" in log.read_text()
    until_slices(npus, NODE, [])


def test_a_claim_and_an_annotated_share_have_different_chips(npus: LocalCluster) -> None:
    labels = {"ring-controller.atlas": "ascend-310P", "vnpu-dvpp": "null", "vnpu-level": "low"}
    create(npus, {"kind": "ResourceClaimTemplate", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": "whole"}, "spec": {
        "spec": {"devices": {"requests": [{"name": "npu", "exactly": {"deviceClassName": "npu.pumice.io"}}]}}}})  # fmt: skip
    whole = script_pod("whole", "echo chips $ASCEND_VISIBLE_DEVICES", {})
    whole["spec"]["resourceClaims"] = [{"name": "npu", "resourceClaimTemplateName": "whole"}]
    whole["spec"]["containers"][0]["resources"] = {"claims": [{"name": "npu"}]}
    text = ran(npus, whole)
    told = urlopen(f"http://{address_of(npus)}:9396/metrics", timeout=10).read().decode()
    assert "pumice_claims_refused_total" in told  # where the controller asks what NPUs by claim use
    shares = ran(npus, script_pod("shares", "echo vNPU $ASCEND_VISIBLE_DEVICES", {"huawei.com/npu-core": "2"}, labels=labels))
    chip, number = (int(found.split(word)[1].split()[0]) for found, word in ((text, "chips "), (shares, "vNPU ")))
    assert (number - 100) // 16 == 1 - chip
