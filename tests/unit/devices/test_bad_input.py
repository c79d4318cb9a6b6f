"""Mistakes of people and foreign programs: a clear answer each, and nothing booked wrongly."""

from __future__ import annotations

import pytest
from kit.device_world import A100, V100, TinyLedger, card, device_settings, limits, pod_of, vgpu_node
from kit.scheduler_confs import conf, sharing

from pumice.devices.nvidia_gpushare.scheduling import NvidiaGpushare
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import Fit
from pumice.model.refusal import FitError, Refusal
from pumice.scheduler.engine import Engine
from pumice.wire import names, volcano
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.nvidia_vgpu import parse_register
from pumice.wire.objects import Node, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue


def world(*cards: str, config: str = "", **settings: object) -> TinyLedger:
    chosen = device_settings(policy="binpack", **settings)  # type: ignore[arg-type]
    ledger = TinyLedger(NvidiaVgpu(parse_device_config(config), chosen))
    ledger.add_node(vgpu_node("n1", *(cards or (card("GPU-a"), card("GPU-b")))))
    return ledger


@pytest.mark.parametrize(
    ("wanted", "container_device"),
    [
        (limits(1, 2**31), "for 2147483648 bytes of memory write 2048"),
        (limits(1, "3G"), "for 3G of memory write 2861"),
        (limits(1, 100, -5), "-5 is not a whole number"),
        (limits(-1), "-1 is not a whole number"),
        (limits(2**40), "is not a whole number"),
        (limits(1, 100, "1e20"), "is not a whole number"),
    ],
)
def test_an_amount_that_cannot_be_meant_is_refused_with_what_would_be_right(
    wanted: dict[str, object], container_device: str
) -> None:
    refused = world().device_type.device_request(pod_of("p", wanted))
    assert isinstance(refused, Refusal)
    assert container_device in refused.text
    assert refused.field.startswith("container 'c0': volcano.sh/vgpu-")


@pytest.mark.parametrize(("written", "mib"), [("3 GB", 3072), ("3GiB", 3072), ("3000MB", 3000), ("1.5 gb", 1536)])
def test_memory_with_a_unit_as_people_write_it_is_refused_with_the_number_to_write(written: str, mib: int) -> None:
    refused = world().device_type.device_request(pod_of("p", limits(1, written)))
    assert isinstance(refused, Refusal)
    assert refused.text == f"{written!r} is no number; this counts MiB, without a unit: write {mib}"


def test_a_percentage_of_0_holds_no_memory_and_101_is_read_as_not_given() -> None:
    ledger = world()
    nothing, unset = pod_of("zero", limits(1, percent=0)), pod_of("unset", limits(1, percent=101))
    assert isinstance(ledger.place(nothing, "n1"), Fit)
    assert ledger.ids(nothing) == "GPU-a,NVIDIA,0,0:"
    assert isinstance(ledger.place(unset, "n1"), Fit)
    assert ledger.ids(unset) == "GPU-a,NVIDIA,16384,0:"


def test_a_broken_number_counts_as_0_as_upstream_reads_it() -> None:
    ledger = world()
    assert ledger.device_type.device_request(pod_of("p", limits("500m", 100))) is None
    pod = pod_of("q", limits(1, "500m"))
    ledger.place(pod, "n1")
    assert ledger.ids(pod) == "GPU-a,NVIDIA,16384,0:"


def test_all_cores_of_a_shared_card_are_refused_with_the_number_of_its_pods() -> None:
    ledger = world(card("GPU-a"))
    ledger.place(pod_of("first", limits(1, 100)), "n1")
    fit_error = ledger.try_pod(pod_of("p", limits(1, 100, 100)), "n1")
    assert isinstance(fit_error, FitError)
    assert fit_error.cards[0].text == "wants the card to itself, 1 share(s) are on it"


def test_no_cards_with_memory_is_no_request() -> None:
    assert world().device_type.device_request(pod_of("p", limits(0, 4000))) is None


def test_one_card_registered_twice_is_quarantined_and_named() -> None:
    register = parse_register(card("GPU-a") + card("GPU-b") + card("GPU-a", 9999))
    assert [(c.uuid, c.index, c.blocked) for c in register.cards] == [
        ("GPU-a", 0, "card GPU-a is registered twice"), ("GPU-b", 1, "")
    ]  # fmt: skip
    ledger = world(card("GPU-a"), card("GPU-b"), card("GPU-a", 9999))
    fit_error = ledger.try_pod(pod_of("p", limits(2, 100)), "n1")
    assert isinstance(fit_error, FitError)
    assert fit_error.cards[0].text == "card GPU-a is registered twice"


def test_an_entry_with_missing_fields_sets_only_that_card_aside() -> None:
    ledger = world("GPU-x,10,16384,NVIDIA-T4,true:", card("GPU-b"))
    assert "card GPU-x is registered with 5 fields instead of 6" in ledger.inventories["n1"].problems[0]
    fit = ledger.try_pod(pod_of("p", limits(1, 100)), "n1")
    assert isinstance(fit, Fit)
    assert fit.allocation.container_devices[0].uuid == "GPU-b"


def test_five_and_seven_fields_are_read_where_that_is_asked_for() -> None:
    five = parse_register("GPU-x,10,16384,NVIDIA-T4,true:", short_entries=True).cards[0]
    seven = parse_register("GPU-x,10,16384,150,NVIDIA-T4,true,mig:").cards[0]
    assert (five.blocked, five.mode.value, five.total) == ("", "hami-core", 16384)
    assert (seven.blocked, seven.mode.value, seven.type) == ("", "mig", "NVIDIA-T4")


def test_numbers_that_are_none_block_the_card() -> None:
    for entry in ("GPU-x,ten,16384,NVIDIA-T4,true,mig:", f"GPU-x,10,{'9' * 30},NVIDIA-T4,true,mig:", "GPU-x,-1,1,a,true,b:"):
        assert parse_register(entry).cards[0].blocked


def test_a_foreign_annotation_that_claims_the_same_memory_leaves_no_room_and_nothing_negative() -> None:
    ledger = world(card("GPU-a"))
    for name in ("mine", "theirs"):
        ledger.replay(pod_of(name, annotations={names.VGPU_IDS: "GPU-a,NVIDIA,16000,90:"}, node="n1"), "n1")
    assert ledger.used("n1") == [(2, 32000, 180)]
    fit_error = ledger.try_pod(pod_of("p", limits(1, 100)), "n1")
    assert isinstance(fit_error, FitError)
    assert (fit_error.cards[0].wanted, fit_error.cards[0].best) == (100, 0)


def test_a_card_that_disappears_while_booked_and_comes_back_is_charged_again() -> None:
    engine = Engine(parse_scheduler_conf(conf(sharing("VGPU"), actions="allocate")))
    engine.state.groups.put_queue(convert(Queue, volcano.default_queue("default", reclaimable=True)))
    both, one = vgpu_node("n1", card("GPU-a"), card("GPU-b")), vgpu_node("n1", card("GPU-b"))
    engine.state.bookings.put_node(both)
    pod = pod_of("p", limits(2, 1000), node="n1", annotations={names.VGPU_IDS: "GPU-a,NVIDIA,1000,0:GPU-b,NVIDIA,1000,0:"})
    pod.status.phase = "Running"
    engine.state.pods.put(pod)

    def used() -> list[int]:
        return [usage.memory for usage in engine.state.ledger.device_tables["nvidia-vgpu"].nodes["n1"].usages]

    assert used() == [1000, 1000]
    engine.state.bookings.put_node(one)
    assert used() == [1000]
    engine.state.bookings.put_node(both)
    assert used() == [1000, 1000]
    engine.state.pods.drop(pod)
    assert used() == [0, 0]


def test_a_device_of_the_annotation_that_cannot_be_read_quarantines_its_card_and_charges_the_others() -> None:
    ledger = world()
    ids = "GPU-a,NVIDIA,abc,30:GPU-b,NVIDIA,2048,10:"
    ledger.replay(pod_of("p", annotations={names.VGPU_IDS: ids}, node="n1"), "n1")
    assert ledger.used("n1")[1] == (1, 2048, 10)
    assert "no unsigned memory and cores" in ledger.doubts["n1"][0]


def test_a_node_that_offers_no_memory_says_which_resource_is_missing() -> None:
    device_type = NvidiaVgpu()
    node = vgpu_node("n1", card("GPU-a"), allocatable={names.VGPU_NUMBER: 10, names.VGPU_CORES: 100, names.VGPU_MEMORY: 0})
    inventory = device_type.inventory(node)
    assert inventory is not None
    assert (inventory.cards, inventory.problems) == ((), (f"node n1 offers no {names.VGPU_MEMORY} (status.allocatable)",))
    tolerant = NvidiaVgpu(None, device_settings(unadvertised_nodes=True)).inventory(node)
    assert tolerant is not None
    assert len(tolerant.cards) == 1


def test_modes_other_than_mig_mean_hami_core() -> None:
    assert [c.mode.value for c in parse_register("".join(card("GPU-" + m, mode=m) for m in ("mps", "", "MIG"))).cards] == [
        "hami-core"
    ] * 3


def test_types_and_uuids_with_odd_letters_do_not_confuse_the_lists() -> None:
    ledger = world(card("GPU-a", kind="NVIDIA-Ünlikely 🙂 " + V100), card("GPU-b", kind="AMD-MI300"), card("GPU-c", kind=A100))
    fit_error = ledger.try_pod(pod_of("p", limits(3, 100)), "n1")
    assert isinstance(fit_error, FitError)
    assert [c.uuid for c in fit_error.cards] == ["GPU-b"]


@pytest.mark.parametrize(("number", "memory"), [("1000000000", "32000"), ("1025", "32000"), ("2", "1e30"), ("2", "-5")])
def test_a_node_that_claims_more_shared_cards_or_memory_than_can_be_has_none_and_says_so(number: str, memory: str) -> None:
    capacity = {names.GPU_NUMBER: number, names.GPU_MEMORY: memory}
    node = convert(Node, {"metadata": {"name": "n1"}, "status": {"capacity": capacity}})
    found = NvidiaGpushare().inventory(node)
    assert found is not None
    assert found.cards == ()
    assert found.problems[0].startswith("node n1 claims ")
