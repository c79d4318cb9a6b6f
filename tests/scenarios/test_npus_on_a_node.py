"""The guide's Ascend pod on emulated nodes, from outside (Volcano pkg/scheduler/api/devices/ascend/hami, HAMi
ascend-device-plugin)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_cluster import PUMICE, LocalCluster, local_cluster, phase, vgpu_pod
from kit.npu_nodes import machine, ran, script_pod, until_slices

from pumice.wire.kinds import CONFIGMAPS, PODS
from pumice_lab.spec import load

ROOT = Path(__file__).parents[2]
NODES = "nodes:\n- {name: n310p, npus: 2, npu: 310P3, cpu: 16}\n- {name: n910b4, npus: 2, npu: 910B4}\n- {name: gpu, cards: 1}\n"


GUIDE = """
apiVersion: v1
kind: Pod
metadata:
  name: ascend-pod
spec:
  schedulerName: volcano
  containers:
    - name: ubuntu-container
      image: swr.cn-south-1.myhuaweicloud.com/ascendhub/ascend-pytorch:24.0.RC1-A2-1.11.0-ubuntu20.04
      command: ["sleep"]
      args: ["100000"]
      resources:
        limits:
          huawei.com/Ascend310P: "1"
          huawei.com/Ascend310P-memory: "4096"
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("npus")
    (folder / "cluster.yaml").write_text(NODES)
    with local_cluster(folder / "d", "--config", str(folder / "cluster.yaml")) as cluster:
        yield cluster  # by the configuration of a new cluster: one that emulates NPUs shares them


def npu_pod(name: str, word: str, memory: int | None, script: str) -> dict[str, Any]:
    limits = {f"huawei.com/{word}": "1"} | ({f"huawei.com/{word}-memory": str(memory)} if memory else {})
    return script_pod(name, script, limits)


def test_a_pod_of_4096_mb_gets_vir02_and_sees_it_and_gives_it_back(shared: LocalCluster) -> None:
    text = ran(shared, npu_pod("ascend-pod", "Ascend310P", 4096, "npu-smi info; npu-smi info -t info-vnpu; env | grep ASCEND"))
    assert "/ 6144 " in text
    assert "Total number of vnpu: 1" in text
    assert "vir02" in text
    assert "ASCEND_RUNTIME_OPTIONS=VIRTUAL" in text
    assert [template for chip in (0, 1) for _, template in machine(shared, "n310p").slices(chip)] == ["vir02"]
    shared.delete_pod("ascend-pod")
    until_slices(shared, "n310p", [])


def test_the_guides_pod_runs_unchanged(shared: LocalCluster) -> None:
    """Seen on the node: the slice, and the container that has it."""
    pod = yaml.safe_load(GUIDE)
    shared.ask(lambda kube: kube.create(PODS, {**pod, "metadata": {"name": "ascend-pod", "namespace": "default"}}))

    async def running(kube: Any) -> dict[str, Any] | None:
        found = await kube.get(PODS, "ascend-pod", "default")
        return found if found["status"].get("phase") == "Running" else None

    started = shared.wait(running)
    ident = started["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2][:12]
    shown = machine(shared, "n310p").smi("info", "-t", "info-vnpu").stdout
    assert [line.split("|")[5].strip() for line in shown.splitlines() if ident in line] == ["vir02"]
    shared.delete_pod("ascend-pod")
    until_slices(shared, "n310p", [])


def test_a_pod_without_memory_gets_the_whole_card(shared: LocalCluster) -> None:
    text = ran(shared, npu_pod("whole", "Ascend910B4", None, "npu-smi info; env | grep ASCEND"))
    assert "/ 32768" in text
    assert "VIRTUAL" not in text
    shared.delete_pod("whole")


def test_a_slice_that_somebody_made_by_hand_outlives_every_pod(shared: LocalCluster) -> None:
    here = machine(shared, "n910b4")
    made = here.make("vir05_1c_8g")
    ran(shared, npu_pod("beside", "Ascend910B4", 8192, "npu-smi info"))
    shared.delete_pod("beside")
    until_slices(shared, "n910b4", [(made, "vir05_1c_8g")])
    here.smi("set", "-t", "destroy-vnpu", "-i", "0", "-c", "0", "-v", str(made))


def test_pods_with_npus_and_with_graphics_cards_share_one_scheduler(shared: LocalCluster) -> None:
    shared.ask(lambda kube: kube.create(PODS, vgpu_pod("graphics", 1000)))
    ran(shared, npu_pod("beside-graphics", "Ascend310P", 12288, "true"))

    async def running(kube: Any) -> bool:
        return await phase(kube, "graphics") == "Running"

    shared.wait(running)
    shared.delete_pod("beside-graphics")


def test_a_cluster_shares_what_it_emulates_until_somebody_says_otherwise(tmp_path: Path) -> None:
    """A later start with NPUs brings its own text up to date, and leaves everybody else's alone."""
    where, hami = tmp_path / "c.yaml", "deviceshare.AscendHAMiVNPUEnable"
    name, key = "volcano-scheduler-configmap", "volcano-scheduler.conf"
    cluster = LocalCluster(tmp_path / "d")

    def up_with(nodes: str, *, edited: bool = False) -> str:
        where.write_text(f"nodes:\n- {{{nodes}}}\n")
        cluster.up("--config", str(where))
        try:
            found = cluster.ask(lambda kube: kube.get(CONFIGMAPS, name, "volcano-system"))["data"][key]
            if edited:
                changed = {"data": {key: found.replace("lookahead", "spread")}}
                cluster.ask(lambda kube: kube.patch(CONFIGMAPS, name, changed, "volcano-system"))
            return str(found)
        finally:
            cluster.down()

    assert hami not in up_with("name: a, cards: 1")
    assert f"{hami}: true" in up_with("name: a, npus: 1, npu: 310P3")
    assert hami not in up_with("name: a, cards: 1", edited=True)
    kept = up_with("name: a, npus: 1, npu: 310P3")
    assert hami not in kept
    assert "SchedulePolicy: spread" in kept


def test_the_example_cluster_can_be_read() -> None:
    nodes = load(ROOT / "examples/ascend.yaml").nodes
    assert {node.npu for node in nodes if node.npus} == {"310P3", "910A", "910B2", "910B3", "910B4", "910B4-1"}
    assert [node.name for node in nodes if node.has_cards] == ["gpu"]


def test_a_model_that_is_not_known_is_told(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("nodes:\n- {npus: 2, npu: 910B5}\n")
    done = subprocess.run([*PUMICE, "up", "--config", str(tmp_path / "c.yaml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert """nodes[0].npu: '910B5' is not known; did you mean""" in done.stderr
