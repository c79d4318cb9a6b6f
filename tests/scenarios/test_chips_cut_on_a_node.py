"""MindCluster's mode on an emulated node, from outside: the guide's Job, smaller pods, and what the cluster is told of the chips
(Volcano pkg/scheduler/api/devices/ascend/mindcluster, MindCluster ascend-device-plugin, docs/reference/ascend-mindcluster.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_cluster import LocalCluster, local_cluster
from kit.npu_nodes import go_by, said, script_pod, until_slices

from pumice.wire.device_reports import check_code
from pumice.wire.kinds import CONFIGMAPS, NODES, PODS
from pumice.wire.volcano import JOBS

ROOT = Path(__file__).parents[2]
REAL, CORE = "huawei.com/AscendReal", "huawei.com/npu-core"
NODE = "n310p"


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("chips")
    with local_cluster(folder / "d", "--config", str(ROOT / "examples/ascend-mindcluster-cluster.yaml")) as cluster:
        go_by(cluster, "ascend-mindcluster.yaml")

        async def served(kube: Any) -> bool:
            return (await kube.get(NODES, NODE))["status"]["allocatable"].get(CORE) == "16"

        cluster.wait(served)
        yield cluster


def core_pod(name: str, cores: int, script: str = "true") -> dict[str, Any]:
    labels = {"ring-controller.atlas": "ascend-310P", "vnpu-dvpp": "null", "vnpu-level": "low"}
    return script_pod(name, script, {CORE: str(cores)}, labels=labels)


def reported(cluster: LocalCluster, name: str) -> dict[str, str]:
    """The pod's annotations, once the plugin has said what it has."""

    async def notes(kube: Any) -> dict[str, str]:
        found = (await kube.get(PODS, name, "default"))["metadata"].get("annotations", {})
        return found if REAL in found else {}

    return cluster.wait(notes)


def until_free(cluster: LocalCluster, wanted: str) -> None:
    """Return ClusterD's report of the node's free chips."""

    async def there(kube: Any) -> bool:
        found = json.loads((await kube.get(CONFIGMAPS, "cluster-info-device-0", "mindx-dl"))["data"]["cluster-info-device-0"])
        free: str = found[f"mindx-dl-deviceinfo-{NODE}"]["DeviceList"]["huawei.com/Ascend310P"]
        return free == wanted

    cluster.wait(there)


def test_a_pod_of_two_cores_sees_its_slice_keeps_it_when_the_cluster_is_killed_and_gives_it_back(cut: LocalCluster) -> None:
    cut.ask(lambda kube: kube.create(PODS, core_pod("two", 2, "npu-smi info; npu-smi info -t info-vnpu; env | grep ASCEND")))
    text = said(cut, "two")
    assert "Total number of vnpu: 1" in text
    assert "vir02_1c" in text
    assert {"ASCEND_VISIBLE_DEVICES=100", "ASCEND_RUNTIME_OPTIONS=VIRTUAL"} <= set(text.split())
    notes = reported(cut, "two")
    assert (notes[CORE], notes[REAL]) == ("0-vir02_1c", "Ascend310P-2c.1cpu-100-0_0")
    assert notes["predicate-time"] == "18446744073709551615"
    assert len(notes["huawei.com/kltDev"].split(",")) == 2
    cut.kill()
    cut.up("--config", str(ROOT / "examples/ascend-mindcluster-cluster.yaml"))

    async def again(kube: Any) -> bool:
        status = (await kube.get(PODS, "two", "default"))["status"]
        return status["containerStatuses"][0]["restartCount"] == 1 and status["phase"] == "Running"

    cut.wait(again)
    assert "vir02_1c" in said(cut, "two")
    assert reported(cut, "two")[REAL] == notes[REAL]
    cut.delete_pod("two")
    until_slices(cut, NODE, [])


def test_the_guides_job_of_eight_cores_gets_the_chip_that_no_slice_lies_on(cut: LocalCluster) -> None:
    cut.ask(lambda kube: kube.create(PODS, core_pod("beside", 1)))
    reported(cut, "beside")
    job = yaml.safe_load((ROOT / "examples/jobs/mindcluster.yaml").read_text())
    job["metadata"]["namespace"] = "default"
    cut.ask(lambda kube: kube.create(JOBS, job))

    async def running(kube: Any) -> bool:
        return (await kube.get(JOBS, "mindx-dls", "default")).get("status", {}).get("state", {}).get("phase") == "Running"

    cut.wait(running)
    notes = reported(cut, "mindx-dls-default-test-0")
    assert (notes[CORE], notes[REAL]) == ("1", "Ascend310P-1")
    until_free(cut, "")
    cut.ask(lambda kube: kube.delete(JOBS, "mindx-dls", "default"))
    cut.delete_pod("beside")
    until_slices(cut, NODE, [])
    until_free(cut, "Ascend310P-0,Ascend310P-1")


def test_who_switches_the_way_of_sharing_finds_nothing_of_the_other_way_on_the_node(cut: LocalCluster) -> None:
    notes = cut.ask(lambda kube: kube.get(NODES, NODE))["metadata"]["annotations"]
    assert "baseDeviceInfos" in notes
    assert not [key for key in notes if key.startswith("hami.io/")]


def test_the_report_of_the_nodes_chips_has_the_check_code_of_what_it_says(cut: LocalCluster) -> None:
    found = cut.ask(lambda kube: kube.get(CONFIGMAPS, f"mindx-dl-deviceinfo-{NODE}", "kube-system"))
    reported = json.loads(found["data"]["DeviceInfoCfg"])
    assert found["metadata"]["labels"] == {"mx-consumer-cim": "true"}
    assert reported["CheckCode"] == check_code(reported["DeviceInfo"])
