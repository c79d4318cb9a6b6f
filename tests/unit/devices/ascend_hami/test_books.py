"""A restarted scheduler's reading of NPUs: nobody else's words are believed, and nothing is booked twice."""

from __future__ import annotations

import random

import msgspec
import pytest
from kit.npu_world import chip, npu_cards, npu_device_type, npu_limits, npu_node, npu_pod

from pumice.devices.protocol import DeviceRequest, NodeCards
from pumice.model.cards import Allocation, Usage
from pumice.wire.ascend_hami import (
    NpuDevice,
    parse_npu_devices,
    parse_npu_register,
    render_npu_devices,
    render_npu_register,
)

P310 = chip("310P3")
RUNNING = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
ALLOCATED = "hami.io/Ascend310P-devices-allocated"


def replayed(text, *containers, soft=False, init=(), status=RUNNING, cards=3, node="n1", handed=""):
    device_type = npu_device_type()
    notes = {} if text is None else {ALLOCATED: text, "hami.io/vgpu-node": node}
    pod = npu_pod("a", *containers, annotations=notes, soft=soft, init=init, node="n1", status=status)
    return device_type.replay(pod, "n1", device_type.inventory(npu_node("n1", P310, cards)), handed)


def allocated(allocation):
    return [
        (
            container_device.uuid,
            container_device.memory,
            container_device.cores,
            container_device.slot.profile if container_device.slot else "",
        )
        for container_device in allocation.container_devices
    ]


def test_what_was_written_is_what_is_read():
    device_type = npu_device_type()
    inventory = device_type.inventory(npu_node("n1", P310, 3))
    pod = npu_pod("a", npu_limits(P310, 1, 3000), {}, npu_limits(P310, 1, 5000))
    device_request = device_type.device_request(pod)
    assert isinstance(device_request, DeviceRequest)
    fit = device_type.fit(device_request, NodeCards("n1", inventory, [Usage() for _ in inventory.cards]))
    notes = device_type.annotations(fit.allocation, 0)
    bound = msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=notes),
        spec=msgspec.structs.replace(pod.spec, node_name="n1"),
    )
    assert device_type.replay(bound, "n1", inventory) == fit.allocation


def test_every_container_is_booked_also_in_the_form_that_upstream_cannot_read_itself():
    two = [npu_limits(P310, 1, 3072), npu_limits(P310, 1, 6144)]
    allocation = replayed("U1,Ascend310P,3072,0:;U2,Ascend310P,6144,0:;", *two)
    assert isinstance(allocation, Allocation)
    assert allocated(allocation) == [("U1", 3072, 0, "vir01"), ("U2", 6144, 0, "vir02")]
    assert allocation.doubts == ()


def test_the_short_form_of_volcano_is_read_too():
    allocation = replayed("U1,Ascend310P,3072,0", {}, npu_limits(P310, 1, 3072))
    assert allocated(allocation) == [("U1", 3072, 0, "vir01")]


@pytest.mark.parametrize(
    "text",
    [
        None, "", ";;", "U1,Ascend310P,1,0:;", "U9,Ascend310P,6144,0:;", "U1,Ascend310P,6144,0:U2,Ascend310P,6144,0:;",
        "U1,Ascend310P:;", "U1,Ascend310P,6144,0:;U2,Ascend310P,6144,0:;",
    ],
)  # fmt: skip
def test_a_running_pod_whose_owner_rewrote_its_cards_closes_the_nodes_cards(text):
    allocation = replayed(text, npu_limits(P310, 1, 6144))
    assert isinstance(allocation, Allocation)
    assert any(doubt.field == "" for doubt in allocation.doubts)


def test_what_the_nodes_plugin_says_counts_before_the_owners_words():
    allocation = replayed("", npu_limits(P310, 1, 6144), handed="U2,Ascend310P,6144,0:;")
    assert allocated(allocation) == [("U2", 6144, 0, "vir02")]
    assert allocation.doubts == ()


def test_a_set_written_for_another_node_is_nothing_here_while_the_pod_waits():
    assert replayed("U1,Ascend310P,3072,0:;", npu_limits(P310, 1, 3072), status={}, node="n2") is None


def test_a_soft_share_is_known_as_one():
    allocation = replayed("U1,Ascend310P,4096,90:;", npu_limits(P310, 1, 4096, 90), soft=True)
    assert allocated(allocation) == [("U1", 4096, 90, "hami-core")]


# -- the wire -------------------------------------------------------------------------------------------------------------


def test_a_register_annotation_is_written_as_the_plugin_writes_it():
    card = npu_cards(P310, 1)[0]
    text = render_npu_register([card])
    assert text == (
        '[{"id":"U1","count":7,"devmem":21527,"devcore":8,"type":"Ascend310P","health":true,"devicepairscore":{}}]'
    )
    assert parse_npu_register(text).cards == (card,)


def test_absent_fields_are_zero_and_rings_are_read():
    cards = npu_cards(chip("910B3"), 8, unhealthy=(2,))
    read = parse_npu_register(render_npu_register(cards))
    assert list(read.cards) == cards
    assert [card.ring for card in read.cards] == [0] * 4 + [1] * 4


def test_a_bad_entry_takes_nothing_else_with_it():
    text = '[{"id":"U1","count":7,"devmem":1,"health":true},{"id":""},7,{"id":"U1"},{"id":"a:b"},{"id":"U2","count":"x"}]'
    read = parse_npu_register(text)
    assert [(card.id, card.count) for card in read.cards] == [("U1", 7), ("U2", 0)]
    assert len(read.problems) == 4


@pytest.mark.parametrize("text", ["", "[", "{}", "null", "[[[[", '"x"', "1e999", "\ud800"])
def test_a_register_annotation_that_is_none_is_one_problem(text):
    assert parse_npu_register(text).cards == ()
    assert len(parse_npu_register(text).problems) == 1


def test_any_list_of_slots_survives_the_wire():
    rng = random.Random(5)
    for _ in range(300):
        slots = tuple(
            tuple(NpuDevice(f"U{rng.randint(0, 9)}", "Ascend310P", rng.randint(0, 99999), rng.randint(0, 100))
                  for _ in range(rng.randint(0, 3)))
            for _ in range(rng.randint(1, 5))
        )  # fmt: skip
        assert parse_npu_devices(render_npu_devices(slots)).slots == slots


def test_noise_in_an_assignment_raises_nothing():
    rng = random.Random(6)
    good = "U1,Ascend310P,3072,0:;U2,Ascend310P,6144,0:;"
    for _ in range(3000):
        text = list(good)
        for _ in range(rng.randint(1, 6)):
            text[rng.randint(0, len(text) - 1)] = rng.choice(",:;U1²\x00 9-")
        allocation = replayed("".join(text), npu_limits(P310, 1, 3072), npu_limits(P310, 1, 6144))
        assert isinstance(allocation, Allocation)
