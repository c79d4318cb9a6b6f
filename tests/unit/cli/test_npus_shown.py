"""The commands' output about Ascend NPUs: the cards and who is on them, and a dump that says why a pod is where it is."""

from __future__ import annotations

import asyncio

import pytest
from kit.engine_world import World
from kit.fake_cluster import FakeCluster
from kit.npu_core_world import chips, core_node_object, core_pod_object, device_info, gathered
from kit.npu_world import chip, npu_limits, npu_node_object
from kit.objects import node, pod
from kit.scheduler_confs import conf, sharing

from pumice.cli.cluster_snapshot import ClusterSnapshot, decisions_of, engine_of
from pumice.cli.snapshot_source import collect
from pumice.devices.device_type import CardTenant
from pumice.devices.registry import all_card_rows
from pumice.wire.device_reports import render_own_devices
from pumice.wire.objects import Node, Pod, convert

ON_DEMAND = conf("predicates", sharing("AscendMindClusterVNPU", "VGPU"))


def shown(world):
    return all_card_rows([convert(Node, obj) for obj in world.nodes.values()], [convert(Pod, obj) for obj in world.pods.values()])


def test_chips_that_are_cut_on_demand_stand_beside_gpus():
    world = World(ON_DEMAND)
    world.add(node("gpu", cards=1), core_node_object("npu", 2), gathered({"npu": 2}))
    world.add(core_pod_object("a", 4))
    world.settle()
    world.add(core_pod_object("b", 8), pod("c", mib=1000))
    world.settle()
    rows = [(row.node, row.index, row.type, row.cores, [str(holder) for holder in row.holders]) for row in shown(world)[1:]]
    assert rows == [
        ("npu", 0, "Ascend310P", 50, ["default/a (vir04_3c)"]), ("npu", 1, "Ascend310P", 100, ["default/b (whole)"]),
    ]  # fmt: skip
    assert shown(world)[0].holders[0].pod == "default/c"


def test_cards_in_hamis_mode_say_their_memory():
    world = World(ON_DEMAND.replace("AscendMindCluster", "AscendHAMi"))
    world.add(npu_node_object("npu", chip("310P3"), 1))
    world.add(pod("a", limits=npu_limits(chip("310P3"), 1, 4096)))
    world.settle()
    (row,) = shown(world)
    assert (row.memory, row.total, row.holders) == (6144, 21527, [CardTenant("default/a", 6144)])


def test_a_dump_holds_what_is_reported_of_nodes_and_its_replay_decides_the_same():
    case = ClusterSnapshot(1000.0, ON_DEMAND, objects={
        "nodes": [core_node_object("npu", 2)], "pods": [core_pod_object("a", 4)], "deviceReports": [gathered({"npu": 2})],
    })  # fmt: skip
    assert decisions_of(case) == [{"pod": "default/a", "node": "npu", "devices": "0-vir04_3c"}]
    case.objects["deviceReports"] = []
    (decided,) = decisions_of(case)
    assert "device info or clusterd info is not enable" in decided["waits"]


@pytest.mark.parametrize("source", ["true", "false"])
def test_a_dump_of_a_cluster_takes_the_config_maps_that_its_scheduler_follows(source):
    conf = ON_DEMAND + f'configurations: [{{name: init-params, arguments: {{useClusterInfoManager: "{source}"}}}}]\n'
    cluster = FakeCluster()
    settings = {"kind": "ConfigMap", "metadata": {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"},
                "data": {"volcano-scheduler.conf": conf}}  # fmt: skip
    cluster.put(settings, core_node_object("npu", 2), core_pod_object("a", 8), gathered({"npu": 2}),
                render_own_devices("npu", device_info(chips(1))))  # fmt: skip
    case = asyncio.run(collect(cluster, "volcano-system/volcano-scheduler-configmap"))
    taken = {report["metadata"]["name"] for report in case.objects["deviceReports"]}
    assert ("cluster-info-device-0" if source == "true" else "mindx-dl-deviceinfo-npu") in taken
    assert [row["devices"] for row in decisions_of(case)] == ["0"], "all chips but the sick ones are free, whichever tells"
    assert engine_of(case).state.problems == {}
