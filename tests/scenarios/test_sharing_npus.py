"""NPUs beside NVIDIA cards in one cluster, under one scheduler and one configuration."""

from __future__ import annotations

import pytest
from kit.engine_world import World
from kit.npu_world import chip, npu_limits, npu_node_object
from kit.objects import group, node, pod
from kit.scheduler_confs import conf, sharing

from pumice.metrics.devices import DeviceSeries

CONF = conf("predicates", sharing("AscendHAMiVNPU", "VGPU", SchedulePolicy="binpack"))
P310, B3 = chip("310P3"), chip("910B3")


def npu_pod(name, limits, **more):
    return pod(name, limits=limits, **more)


def cards_of(world, name, word="Ascend310P"):
    text = world.pods[f"default/{name}"]["metadata"]["annotations"].get(f"hami.io/{word}-devices-allocated", "")
    return [container_device.split(",")[0] for container_device in text.replace(";", "").split(":") if container_device]


def world_of(*nodes, conf=CONF):
    world = World(conf)
    world.add(*nodes)
    return world


def test_a_310p_pod_of_4096_mb_gets_a_slice_of_6144():
    world = world_of(npu_node_object("n1", P310, 2))
    world.add(npu_pod("a", npu_limits(P310, 1, 4096)))
    world.settle()
    notes = world.pods["default/a"]["metadata"]["annotations"]
    assert notes["hami.io/Ascend310P-devices-allocated"] == "n1-1,Ascend310P,6144,0:;"
    assert notes["huawei.com/Ascend310P"] == '[{"UUID":"n1-1","temp":"vir02"}]'


def test_the_lock_of_the_binding_is_hamis():
    world = world_of(npu_node_object("n1", P310))
    world.add(npu_pod("a", npu_limits(P310, 1, 4096)))
    world.settle()
    assert world.bindings[0].lock == "hami.io/mutex.lock"


def test_a_pod_with_two_types_of_npu_is_bound_under_one_lock_and_one_that_fits_nowhere_takes_none():
    both = npu_node_object("n1", P310)
    other = npu_node_object("n1", B3)
    both["metadata"]["annotations"] |= other["metadata"]["annotations"]
    both["status"]["allocatable"] |= other["status"]["allocatable"]
    world = world_of(both)
    two = pod("a", limits=npu_limits(P310, 1, 3072) | npu_limits(B3, 1, 16384))
    world.add(two, npu_pod("late", npu_limits(P310, 1, 20000)))
    world.settle()
    assert (cards_of(world, "a"), cards_of(world, "a", "Ascend910B3")) == (["n1-1"], ["n1-1"])
    assert [(bound.name, bound.lock) for bound in world.bindings] == [("a", "hami.io/mutex.lock")]


def test_what_is_bound_is_held_before_the_watch_tells_of_it():
    world = world_of(npu_node_object("n1", P310))
    world.deliver = False
    world.add(npu_pod("a", npu_limits(P310)))
    world.settle()
    world.add(npu_pod("b", npu_limits(P310, 1, 3072)))
    world.settle()
    assert (len(world.bindings), world.node_of("b")) == (1, "")


def test_several_types_share_series_and_each_is_told_of_once():
    world = world_of(npu_node_object("ascend", P310), npu_node_object("train", B3, 8))
    world.add(npu_pod("a", npu_limits(P310, 1, 3072)), npu_pod("b", npu_limits(B3, 4)))
    world.settle()
    text = "".join(DeviceSeries(world.engine).section())
    assert text.count("# TYPE pumice_vnpu_card_memory_limit ") == 1
    assert 'pumice_vnpu_slices{devID="ascend-1",NodeName="ascend",template="vir01"} 1' in text
    assert 'pumice_vnpu_card_allocated_memory{devID="train-1",NodeName="train"} 65536' in text


def test_vgpu_pods_and_npu_pods_go_each_to_their_own_nodes():
    world = world_of(npu_node_object("ascend", P310), npu_node_object("train", B3, 8), node("gpu", cards=1))
    world.add(
        npu_pod("a", npu_limits(P310, 1, 3072)), npu_pod("b", npu_limits(B3, 4)),
        pod("c", limits={"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1000"}),
    )  # fmt: skip
    world.settle()
    assert [world.node_of(name) for name in "abc"] == ["ascend", "train", "gpu"]
    assert cards_of(world, "b", "Ascend910B3") == ["train-1", "train-2", "train-3", "train-4"]


def test_binpack_fills_one_card_before_it_opens_the_next_and_one_node_before_the_next():
    world = world_of(npu_node_object("n1", P310, 2), npu_node_object("n2", P310, 2))
    for number in range(7):
        world.add(npu_pod(f"p{number}", npu_limits(P310, 1, 3072)))
        world.settle()
    assert {cards_of(world, f"p{number}")[0] for number in range(7)} == {"n1-1"}
    world.add(npu_pod("next", npu_limits(P310, 1, 3072)))
    world.settle()
    assert cards_of(world, "next") == ["n1-2"]


def test_a_pod_that_ends_gives_its_slice_back_and_one_that_ends_slowly_keeps_it():
    world = world_of(npu_node_object("n1", P310))
    world.add(npu_pod("a", npu_limits(P310)))
    world.settle()
    world.add(npu_pod("b", npu_limits(P310, 1, 3072)))
    world.terminate("a")
    world.settle()
    assert world.node_of("b") == ""
    world.delete_pod("a")
    world.settle()
    assert cards_of(world, "b") == ["n1-1"]


def test_the_reason_says_which_rule_refused_which_cards():
    world = world_of(npu_node_object("n1", P310, 2, unhealthy=(0,)), npu_node_object("n2", P310, 1, soft=True))
    world.add(npu_pod("full", npu_limits(P310)))
    world.settle()
    assert cards_of(world, "full") == ["n1-2"] or cards_of(world, "full") == ["n2-1"]
    world.add(npu_pod("a", npu_limits(P310, 1, 24577)))
    world.settle()
    assert "huawei.com/Ascend310P-memory 24577 is invalid" in world.condition("a")["message"]


def test_a_node_without_the_type_is_no_place_for_a_pod_that_asks_for_it():
    silent = npu_node_object("silent", P310)  # it offers the resource, and registers no card
    silent["metadata"]["annotations"].clear()
    world = world_of(node("plain"), npu_node_object("n2", B3), silent)
    world.add(npu_pod("a", npu_limits(P310, 1, 3072)))
    world.settle()
    assert world.node_of("a") == ""
    assert "no Ascend310P on the node" in world.condition("a")["message"]


@pytest.mark.parametrize("switch", ["true", "false"])
def test_a_part_of_an_npu_is_refused_where_nobody_shares_them(switch):
    conf = CONF.replace("AscendHAMiVNPUEnable: true", f"AscendHAMiVNPUEnable: {switch}")
    world = world_of(npu_node_object("n1", P310), conf=conf)
    world.add(npu_pod("a", npu_limits(P310, 1, 3072)))
    world.settle()
    assert (world.node_of("a") == "n1") == (switch == "true")
    if switch == "false":
        assert "deviceshare.AscendHAMiVNPUEnable: true would" in world.condition("a")["message"]


def test_a_restarted_scheduler_books_what_the_pods_hold():
    world = world_of(npu_node_object("n1", P310, 2))
    for number in range(5):
        world.add(npu_pod(f"p{number}", npu_limits(P310, 1, 4096)))
    world.settle()
    live, again = (
        world.engine.state.ledger.device_tables["Ascend310P"],
        world.restarted().state.ledger.device_tables["Ascend310P"],
    )
    for name, book in live.nodes.items():
        assert [(u.memory, u.shares, set(u.holders)) for u in book.usages] == [
            (u.memory, u.shares, set(u.holders)) for u in again.nodes[name].usages
        ]


def test_of_a_gang_on_spread_npus_the_large_ones_choose_first():
    """Spread over two chips, the small ones would leave no chip whole."""
    conf = CONF.replace("binpack", "spread").replace("  - name: predicates", "  - name: gang\n  - name: predicates")
    world = world_of(npu_node_object("n1", P310, 2), conf=conf)
    asks = (3072, 3072, None)
    world.add(group("g", minimum=3), *(npu_pod(f"g-{at}", npu_limits(P310, 1, *([mb] if mb else [])), group="g")
                                       for at, mb in enumerate(asks)))  # fmt: skip
    world.settle()
    assert all(world.node_of(f"g-{at}") for at in range(3))
    assert cards_of(world, "g-0") == cards_of(world, "g-1") != cards_of(world, "g-2")
