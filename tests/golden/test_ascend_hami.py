"""The worked examples of docs/reference/ascend.md, by their letters, and upstream's defects that a scheduler decides."""

from __future__ import annotations

import json

import pytest
from kit.device_world import TinyLedger
from kit.npu_world import chip, npu_device_type, npu_limits, npu_node, npu_pod

from pumice.devices.protocol import Fit
from pumice.model.refusal import FitError, Refusal, Short
from pumice.wire.node_lock import LockView, may_take, render_lock
from pumice.wire.npu_config import shipped

NOW = 1_700_000_000_000_000_000
P310, B3 = chip("310P3"), chip("910B3")


def ledger(name="310P3", count=1, policy="", *, soft=None, unhealthy=(), nodes=("n1",)):
    books = TinyLedger(npu_device_type(name, policy))
    for node in nodes:
        books.add_node(npu_node(node, chip(name), count, soft=soft, unhealthy=unhealthy))
    return books


def written(books, fit):
    notes = books.device_type.annotations(fit.allocation, NOW)
    word = books.device_type.chip.word
    assert notes[f"hami.io/{word}-devices-to-allocate"] == notes[f"hami.io/{word}-devices-allocated"]
    return notes[f"hami.io/{word}-devices-allocated"], json.loads(notes[f"huawei.com/{word}"])


def put(books, name, *containers, soft=False, node="n1"):
    return books.place(npu_pod(name, *containers, soft=soft), node)


def whole(count=1):
    return npu_limits(P310, count)


def part(memory, count=1):
    return npu_limits(P310, count, memory)


TRIMMED = [
    ("310P3", 1024, 3072, "vir01"), ("310P3", 3072, 3072, "vir01"), ("310P3", 3073, 6144, "vir02"),
    ("310P3", 4096, 6144, "vir02"), ("310P3", 6144, 6144, "vir02"), ("310P3", 6145, 12288, "vir04"),
    ("310P3", 12288, 12288, "vir04"), ("310P3", 12289, 21527, ""), ("310P3", 21527, 21527, ""), ("310P3", 24576, 21527, ""),
    ("910A", 2000, 2184, "vir02"), ("910A", 2185, 4369, "vir04"), ("910A", 8739, 17476, "vir16"), ("910A", 17477, 32768, ""),
    ("910B2", 8192, 8192, "vir03_1c_8g"), ("910B2", 8193, 16384, "vir06_1c_16g"), ("910B2", 16385, 32768, "vir12_3c_32g"),
    ("910B2", 32769, 65536, ""), ("910B3", 1024, 16384, "vir05_1c_16g"), ("910B3", 20480, 32768, "vir10_3c_32g"),
    ("910B3", 32769, 65536, ""), ("910B4", 8193, 16384, "vir10_3c_16g"), ("910B4", 16385, 32768, ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "requested", "memory", "template"), TRIMMED)
def test_memory_is_cut_to_the_smallest_template_that_holds_it(name, requested, memory, template):
    found = chip(name).cut(requested)
    assert (found.memory, found.name) == (memory, template)


def test_a_card_takes_as_many_pods_as_it_has_smallest_slices():
    counts = {found.word: found.shares for found in shipped().chips}
    assert counts == {"Ascend910A": 15, "Ascend910B2": 8, "Ascend910B3": 4, "Ascend910B4-1": 4, "Ascend910B4": 4,
                      "Ascend310P": 7, "Ascend910C": 4}  # fmt: skip


def test_a1_a_slice_is_trimmed_and_written():
    books = ledger()
    fit = put(books, "a", part(4096))
    assert written(books, fit) == ("U1,Ascend310P,6144,0:;", [{"UUID": "U1", "temp": "vir02"}])
    assert [(u.shares, u.memory) for u in books.usages("n1")] == [(1, 6144)]


def test_a1_all_keys_of_a_decision_are_written():
    books = ledger()
    notes = books.device_type.annotations(put(books, "a", part(4096)).allocation, NOW)
    assert notes.items() >= {
        "predicate-time": "1700000000", "hami.io/vgpu-node": "n1", "hami.io/vgpu-time": "1700000000",
        "hami.io/bind-phase": "allocating", "hami.io/bind-time": "1700000000",
    }.items()  # fmt: skip
    assert set(notes) == set(books.device_type.allocation_keys)


def test_a2_without_memory_a_pod_has_the_whole_card_and_nobody_joins_it():
    books = ledger()
    fit = put(books, "a", whole())
    assert written(books, fit) == ("U1,Ascend310P,21527,0:;", [{"UUID": "U1"}])
    refused = put(books, "b", part(1024))
    assert isinstance(refused, FitError)
    assert not refused.final
    assert refused.text.startswith("no ascend device available")
    assert (refused.short, refused.wanted, refused.best) == (Short.MEMORY, 3072, 0)


def test_a3_what_fits_beside_what():
    books = ledger()
    put(books, "a", part(3072))
    assert isinstance(books.try_pod(npu_pod("b", part(1024)), "n1"), Fit)
    assert isinstance(books.try_pod(npu_pod("b", whole()), "n1"), FitError)
    books = ledger()
    put(books, "a", part(12288))
    assert isinstance(books.try_pod(npu_pod("b", part(6144)), "n1"), Fit)
    assert isinstance(books.try_pod(npu_pod("c", npu_limits(P310, 1, 1024, 20), soft=True), "n1"), FitError)
    soft = ledger(soft=True)
    assert isinstance(soft.try_pod(npu_pod("c", npu_limits(P310, 1, 1024, 20), soft=True), "n1"), Fit)
    put(soft, "a", npu_limits(P310, 1, 1024, 90), soft=True)
    assert isinstance(soft.try_pod(npu_pod("c", npu_limits(P310, 1, 1024, 20), soft=True), "n1"), FitError)


def test_a4_count_and_memory_of_a_card_end_together():
    books = ledger()
    for number in range(7):
        assert isinstance(put(books, f"p{number}", part(3072)), Fit)
    assert isinstance(put(books, "p7", part(3072)), FitError)


@pytest.mark.parametrize(("policy", "card"), [("binpack", "U1"), ("spread", "U2"), ("", "U1")])
def test_a5_the_policy_chooses_the_card_whatever_the_weight(policy, card):
    books = ledger(count=2, policy=policy)
    put(books, "a", part(6144))
    fit = put(books, "b", part(3072))
    assert fit.allocation.container_devices[0].uuid == card


def test_a6_several_cards_are_whole_cards():
    books = ledger(count=2)
    refused = put(books, "a", part(4096, 2))
    assert isinstance(refused, Refusal)
    assert refused.text.startswith("vNPU does not support partial memory allocation when requesting multiple devices")
    fit = books.try_pod(npu_pod("b", whole(2)), "n1")
    assert written(books, fit)[0] == "U1,Ascend310P,21527,0:U2,Ascend310P,21527,0:;"
    assert isinstance(books.try_pod(npu_pod("c", part(20000, 2)), "n1"), Fit)


def ring_choice(busy, count):
    books = ledger("910B3", 8)
    for at in busy:
        pod = npu_pod(f"busy{at}", npu_limits(B3), annotations={"hami.io/use-Ascend910B3-uuid": f"U{at + 1}"})
        assert isinstance(books.place(pod, "n1"), Fit)
    fit = books.try_pod(npu_pod("a", npu_limits(B3, count)), "n1")
    return sorted(container_device.card for container_device in fit.allocation.container_devices)


def test_a7_cards_of_one_ring_are_taken_together():
    assert ring_choice((0, 1), 4) == [4, 5, 6, 7]
    assert ring_choice((), 6) == [0, 1, 2, 3, 4, 5]
    assert ring_choice((1, 5), 4) == [0, 2, 3, 4]


def test_a7_a_small_job_leaves_the_whole_ring_whole():
    assert ring_choice((0, 1), 2) == [2, 3]


def test_a8_a_card_serves_one_container_of_a_pod_and_all_containers_are_booked():
    assert isinstance(put(ledger(), "a", part(3072), part(6144)), FitError)
    books = ledger(count=2)
    fit = put(books, "a", part(3072), part(6144))
    assert written(books, fit)[0] == "U1,Ascend310P,3072,0:;U2,Ascend310P,6144,0:;"
    assert [(u.shares, u.memory) for u in books.usages("n1")] == [(1, 3072), (1, 6144)]


def test_a9_more_than_a_card_has_is_refused():
    refused = put(ledger(), "a", part(24577))
    assert isinstance(refused, Refusal)
    assert "huawei.com/Ascend310P-memory 24577 is invalid" in refused.text


def test_a10_bytes_where_mb_are_meant_are_refused_with_the_right_number():
    refused = put(ledger(), "a", part("16Gi"))
    assert isinstance(refused, Refusal)
    assert "16384" in refused.text


def test_a11_soft_shares_count_cores_in_per_cent():
    books = ledger(soft=True)
    fit = put(books, "a", npu_limits(P310, 1, 4096, 90), soft=True)
    assert written(books, fit) == ("U1,Ascend310P,4096,90:;", [{"UUID": "U1", "memory": 4096, "core": 90}])
    assert isinstance(put(books, "b", npu_limits(P310, 1, 4096, 20), soft=True), FitError)
    assert isinstance(put(books, "c", npu_limits(P310, 1, 4096, 10), soft=True), Fit)
    assert isinstance(put(books, "d", npu_limits(P310, 1, 4096), soft=True), FitError)


def test_a12_binpack_scores_the_card_that_is_used_already():
    books = ledger(policy="binpack", nodes=("a", "b"))
    put(books, "x", part(6144), node="a")
    scores = [books.try_pod(npu_pod("p", part(3072)), node).score for node in ("a", "b")]
    assert [int(score + 0.5) for score in scores] == [29, 0]


def test_a14_the_lock_names_its_owner_and_expires_after_five_minutes():
    value = render_lock(1000.0, "ml", "train-0")
    assert value == "1970-01-01T00:16:40Z,ml,train-0"
    assert not may_take(LockView(value, 1000.0), 1000.0 + 180, 1180.0, "ml", "other")
    assert may_take(LockView(value, 1000.0), 1000.0 + 360, 1360.0, "ml", "other")
    assert may_take(LockView(value, 1000.0), 1000.0 + 1, 1001.0, "ml", "train-0"), "held by oneself"


def test_a15_a_node_of_which_the_plugin_is_gone_offers_nothing_and_says_so():
    device_type = npu_device_type()
    found = device_type.inventory(npu_node("n1", P310, allocatable=0))
    assert found.cards == ()
    assert "n1 offers no huawei.com/Ascend310P" in found.problems[0]
    refused = device_type.no_devices("n1")
    assert (refused.final, refused.text) == (False, "no ascend device available: no Ascend310P on the node")


def test_a16_three_slices_fill_a_910b3_by_memory():
    books = ledger("910B3")
    fit = put(books, "a", npu_limits(B3, 1, 20480))
    assert written(books, fit) == ("U1,Ascend910B3,32768,0:;", [{"UUID": "U1", "temp": "vir10_3c_32g"}])
    assert isinstance(put(books, "b", npu_limits(B3, 1, 16384)), Fit)
    assert isinstance(put(books, "c", npu_limits(B3, 1, 16384)), Fit)
    assert isinstance(put(books, "d", npu_limits(B3, 1, 1024)), FitError)
    assert [(u.shares, u.memory) for u in books.usages("n1")] == [(3, 65536)]


# -- upstream's defects -----------------------------------------------------------------------------------------------


def test_defect_2_there_is_a_slot_for_every_container_init_containers_first():
    books = ledger()
    pod = npu_pod("a", {}, part(3072), init=({},))
    assert written(books, books.place(pod, "n1"))[0] == ";;U1,Ascend310P,3072,0:;"


def test_defect_4_no_quantity_wraps_around():
    for amount in ("-1", "3000000000", "0.5"):
        assert isinstance(put(ledger(), "a", part(amount)), Refusal)


def test_defect_6_equals_are_told_apart_by_their_place_in_the_register():
    for _ in range(5):
        assert put(ledger(count=3), "a", part(3072)).allocation.container_devices[0].uuid == "U1"
        assert ring_choice((), 4) == [0, 1, 2, 3], "of two rings the lower number"


def test_defect_7_a_card_that_is_not_healthy_is_passed_over_and_keeps_its_bookings():
    books = ledger(count=2, unhealthy=(0,))
    assert put(books, "a", part(3072)).allocation.container_devices[0].uuid == "U2"
    refused = ledger(unhealthy=(0,)).try_pod(npu_pod("b", part(3072)), "n1")
    assert (refused.short, refused.final) == (Short.HEALTH, True)


def test_defect_8_one_card_is_chosen_by_the_policy_whatever_ring_it_is_in():
    books = ledger("910B3", 8, policy="binpack")
    begun = npu_pod("a", npu_limits(B3, 1, 16384), annotations={"hami.io/use-Ascend910B3-uuid": "U6"})
    assert isinstance(books.place(begun, "n1"), Fit)
    assert put(books, "b", npu_limits(B3, 1, 16384)).allocation.container_devices[0].uuid == "U6", (
        "in the smaller ring, and begun"
    )


def test_defect_9_a_ring_scores_by_all_cards_of_a_container():
    books = ledger("910B3", 8)
    assert books.try_pod(npu_pod("a", npu_limits(B3, 4)), "n1").score == pytest.approx(10.0)
    assert books.try_pod(npu_pod("b", npu_limits(B3, 8)), "n1").score == pytest.approx(5.0)


def test_defect_12_memory_without_a_card_is_refused_with_what_to_add():
    refused = put(ledger(), "a", {P310.memory_resource: 4096})
    assert isinstance(refused, Refusal)
    assert "add huawei.com/Ascend310P: 1" in refused.text


def test_defect_15_a_type_that_a_node_no_longer_registers_is_gone():
    node = npu_node("n1", P310)
    device_type = npu_device_type()
    assert len(device_type.inventory(node).cards) == 1
    node.metadata.annotations.pop("hami.io/node-register-Ascend310P")
    assert device_type.inventory(node) is None


def test_defect_20_no_template_is_cut_where_cards_are_shared_softly():
    refused = put(ledger(soft=True), "a", part(3072))
    assert (refused.short, refused.final) == (Short.MODE, True)
    assert isinstance(put(ledger(soft=True), "b", whole()), Fit)


def test_cores_belong_to_soft_shares_alone():
    refused = put(ledger(), "a", npu_limits(P310, 1, 3072, 50))
    assert "only supported in hami-core (soft split) mode" in refused.text


def test_a_pod_may_name_the_cards_that_it_wants_and_those_that_it_does_not():
    books = ledger(count=3)
    use = npu_pod("a", part(3072), annotations={"hami.io/use-Ascend310P-uuid": " U2 , U3"})
    assert books.place(use, "n1").allocation.container_devices[0].uuid == "U2"
    shun = npu_pod("b", part(3072), annotations={"hami.io/no-use-Ascend310P-uuid": "U1,U2"})
    assert books.place(shun, "n1").allocation.container_devices[0].uuid == "U3"
