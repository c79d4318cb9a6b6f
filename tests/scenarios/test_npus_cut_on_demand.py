"""Ascend chips that MindCluster's plugin cuts on demand, through the whole scheduler: labels, ConfigMaps and annotations in, a
Binding out."""

from __future__ import annotations

import pytest
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.npu_core_world import core_node_object, core_pod_object, gathered
from kit.objects import node, pod
from kit.scheduler_confs import conf, sharing

from pumice.devices.lint import lint_files
from pumice.metrics.devices import DeviceSeries
from pumice.model.errors import BadInput

CONF = conf("predicates", sharing("AscendMindClusterVNPU", "VGPU"), init={"presetVirtualDevice": '"false"'})


def world_of(*nodes, chips=None, conf=CONF):
    world = World(conf)
    world.add(*nodes)
    world.add(gathered({n["metadata"]["name"]: 2 for n in nodes if "accelerator" in n["metadata"]["labels"]}))
    return world


def notes_of(world, name):
    return world.pods[f"default/{name}"]["metadata"]["annotations"]


def made(world, name, real):
    """The node's plugin has made the slice."""
    obj = world.pods[f"default/{name}"]
    obj["metadata"]["annotations"]["huawei.com/AscendReal"] = real
    world.add(obj)


def test_a_pod_of_four_cores_gets_a_template_and_the_time_in_nanoseconds():
    world = world_of(core_node_object("n1", 2))
    world.add(core_pod_object("a", 4))
    world.settle()
    notes = notes_of(world, "a")
    assert notes["huawei.com/npu-core"] == "0-vir04_3c"
    assert int(notes["predicate-time"]) == 1_000_000_000_000_000
    assert world.bindings[0].lock == ""


def test_the_job_of_eight_cores_gets_the_whole_chip_that_no_slice_lies_on():
    world = world_of(core_node_object("n1", 2))
    world.add(core_pod_object("slice", 2))
    world.settle()
    world.add(core_pod_object("a", 8))
    world.settle()
    assert notes_of(world, "a")["huawei.com/npu-core"] == "1"


def test_a_chip_takes_the_next_slice_once_the_first_one_is_made():
    world = world_of(core_node_object("n1", 1))
    world.add(core_pod_object("a", 2))
    world.settle()
    world.add(core_pod_object("b", 4))
    world.settle()
    assert world.node_of("b") == ""
    assert "selectChipFromNodeSegment" in world.condition("b")["message"]
    made(world, "a", "Ascend310P-2c.1cpu-100-0_0")
    world.settle()
    assert notes_of(world, "b")["huawei.com/npu-core"] == "0-vir04_3c"


def test_vgpu_pods_and_pods_with_ai_cores_share_one_scheduler():
    world = world_of(core_node_object("npu", 1), node("gpu", cards=1))
    world.add(core_pod_object("a", 1), pod("c", limits={"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}))
    world.settle()
    assert [world.node_of(name) for name in "ac"] == ["npu", "gpu"]


def test_a_restarted_scheduler_books_what_the_pods_hold():
    world = world_of(core_node_object("n1", 2))
    for name, cores in (("a", 4), ("b", 8)):
        world.add(core_pod_object(name, cores))
        world.settle()
    made(world, "a", "Ascend310P-4c.3cpu-100-0_0")
    assert fingerprint(world.restarted().state.ledger) == fingerprint(world.engine.state.ledger)


def test_a_pod_that_goes_slowly_keeps_its_slice_and_what_it_has_in_the_making():
    world = world_of(core_node_object("n1", 2))
    world.add(core_pod_object("a", 2))
    world.settle()
    world.terminate("a")
    world.add(core_pod_object("b", 4))
    world.settle()
    assert world.node_of("b") == "", "another template, as long as the first one may still be made"
    world.delete_pod("a")
    world.settle()
    assert notes_of(world, "b")["huawei.com/npu-core"] == "0-vir04_3c"


def test_init_params_hold_in_every_cycle_and_nothing_is_counted_twice_from_one_to_the_next():
    world = world_of(core_node_object("n1", 2))
    for number in range(4):
        world.add(core_pod_object(f"p{number}", 2))
        world.settle()
        made(world, f"p{number}", f"Ascend310P-2c.1cpu-{100 + number}-0_{number}")
    assert [notes_of(world, f"p{number}")["huawei.com/npu-core"] for number in range(4)] == ["0-vir02_1c"] * 4
    world.settle(70.0)
    used = world.engine.state.ledger.device_tables["ascend310p-vNPU"].nodes["n1"].usages
    assert [(usage.memory, usage.cores, usage.shares) for usage in used] == [(8, 4, 4), (0, 0, 0)]
    preset = CONF.replace('presetVirtualDevice: "false"', 'presetVirtualDevice: "true"')
    refused = world_of(core_node_object("n1", 2), conf=preset)
    refused.add(core_pod_object("a", 2))
    for _ in range(3):
        refused.settle(70.0)
        assert refused.node_of("a") == ""


def test_chips_have_series_of_their_own_in_ai_cores_and_ai_cpus():
    world = world_of(core_node_object("n1", 1))
    world.add(core_pod_object("a", 4))
    world.settle()
    text = "".join(DeviceSeries(world.engine).section())
    assert 'pumice_npu_chip_ai_cores_limit{devID="Ascend310P-0",NodeName="n1"} 8' in text
    assert 'pumice_npu_chip_allocated_ai_cpus{devID="Ascend310P-0",NodeName="n1"} 3' in text
    assert 'pumice_npu_slices{devID="Ascend310P-0",NodeName="n1",template="vir04_3c"} 1' in text
    assert 'pumice_npu_pod_ai_cores{devID="Ascend310P-0",NodeName="n1",podNamespace="default",podName="a"} 4' in text


def test_both_ways_of_sharing_at_once_are_refused_in_words():
    with pytest.raises(BadInput, match="cannot both be true: they cut the same chips for two node plugins"):
        World(CONF + "      deviceshare.AscendHAMiVNPUEnable: true\n")


def test_the_words_of_a_pod_that_can_never_be_placed_are_linted():
    text = """\
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {%s}}
spec:
  schedulerName: volcano
  containers: [{name: c, image: busybox, resources: {limits: {huawei.com/npu-core: %d}}}]
"""
    for labels, cores, found in (
        ("ring-controller.atlas: ascend-310P", 3, "task req npu should be [1,2,4,8,10], or whole chips; 3 is none of them"),
        ("ring-controller.atlas: ascend-310P, vnpu-dvpp: maybe", 4, "err dvpp value:maybe"), ("app: x", 4, "it is missing"),
    ):  # fmt: skip
        assert any(found in finding.text for finding in lint_files({"pod.yaml": text % (labels, cores)}))


@pytest.mark.parametrize("on", [True, False])
def test_a_pod_that_its_node_refused_is_deleted_on_demand_where_a_controller_makes_another(on):
    world = world_of(core_node_object("n1", 2), conf=f"{CONF}      pumice.DeleteRefusedPods: {on}\n")
    world.add(core_pod_object("owned", 4, owner="job"), core_pod_object("bare", 4))
    world.settle()
    for name in ("owned", "bare"):
        world.pods[f"default/{name}"]["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
        world.add(world.pods[f"default/{name}"])
    world.settle()
    assert ("default/owned" in world.pods) is not on
    assert "default/bare" in world.pods, "nobody would make it anew"
    world.add(core_pod_object("other", 4, owner="job"))
    world.settle()
    world.set_phase("other", "Failed")
    world.settle()
    assert "default/other" in world.pods, "it failed for reasons of its own"
