"""MIG slices outside the geometry groups: only by option, only where the node's plugin says that it understands them (ADR 22)."""

from __future__ import annotations

import pytest
from kit.device_world import A100, TinyLedger, card, limits, pod_of
from tests.unit.devices.nvidia_vgpu.mig_cards import node_of, placed

from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.devices.protocol import Fit
from pumice.devices.registry import settings_from
from pumice.devices.settings import Settings
from pumice.model.cards import Allocation
from pumice.model.hardware.mig import mig_tables
from pumice.model.refusal import FitError
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import PodDevice, parse_pod_device, parse_register, render_register

OURS = card("GPU-m1", 40960, 10, A100, mode="mig", places=True)
UPSTREAMS = card("GPU-m1", 40960, 10, A100, mode="mig")


def world(*cards: str, config: str = "", on: bool = True, mig_policy: str = "listed") -> TinyLedger:
    return node_of(*(cards or (OURS,)), config=config, mig_off_group=on, mig_policy=mig_policy)


def claims(ledger: TinyLedger, *ids: str) -> list[str]:
    """Pods that are there already hold these; the doubts that come of it."""
    for number, devices in enumerate(ids):
        ledger.replay(pod_of(f"old{number}", annotations={names.VGPU_IDS: devices}, node="n1"), "n1")
    return list(ledger.doubts.get("n1", {}).values())


def test_as_long_as_one_group_has_room_its_slots_are_written_as_upstream_would() -> None:
    assert placed(world(), *[3000] * 7, 3000) == [*(f"GPU-m1[group1-{i}]" for i in range(7)), "-"]
    assert placed(world(), 9000, 9000, 3000) == ["GPU-m1[group2-0]", "GPU-m1[group2-1]", "GPU-m1[group2-3]"]


def test_a_card_of_one_group_takes_what_the_group_does_not_have() -> None:
    """5 + 10 + 20 GB on one card: no group of the A100 holds that, the driver does."""
    assert placed(world(), 5000, 10000, 20000) == ["GPU-m1[group1-0]", "GPU-m1[2g.10gb@2]", "GPU-m1[3g.20gb@4]"]


def test_four_slices_of_ten_gigabytes_where_the_groups_have_three() -> None:
    assert placed(world(), *[10000] * 5) == [
        "GPU-m1[group2-0]", "GPU-m1[group2-1]", "GPU-m1[group2-2]", "GPU-m1[1g.10gb@6]", "-"
    ]  # fmt: skip


@pytest.mark.parametrize(("cards", "on"), [((UPSTREAMS,), True), ((OURS,), False), ((UPSTREAMS,), False)])
def test_nothing_of_it_without_the_option_or_beside_a_plugin_that_does_not_announce_it(cards: tuple[str], on: bool) -> None:
    assert placed(world(*cards, on=on), 5000, 10000, 20000) == ["GPU-m1[group1-0]", "-", "-"]


def test_the_refusal_beside_upstreams_plugin_names_its_reason() -> None:
    ledger = world(UPSTREAMS)
    placed(ledger, 5000)
    refused = ledger.try_pod(pod_of("q", limits(1, 20000)), "n1")
    assert isinstance(refused, FitError)
    assert not refused.final
    assert refused.cards[0].text.endswith(
        "wants a slot of 20000 MiB, largest free one has 5120 MiB; a place outside the groups is free, but the node's "
        "plugin does not announce that it can cut there"
    )
    full = world(UPSTREAMS)
    placed(full, 40000)
    refused = full.try_pod(pod_of("q", limits(1, 20000)), "n1")
    assert isinstance(refused, FitError)
    assert "outside the groups" not in str(refused.cards)


def test_what_was_written_is_read_back_after_a_restart() -> None:
    ledger = world()
    pods = [pod_of(f"p{i}", limits(1, memory)) for i, memory in enumerate((5000, 10000, 20000))]
    for pod in pods:
        ledger.place(pod, "n1")
    fresh = world()
    for pod in pods:
        pod.metadata.annotations[names.VGPU_IDS] = ledger.ids(pod)
        pod.spec.node_name = "n1"
        assert fresh.replay(pod, "n1") == ledger.allocated[pod.metadata.uid][1]
    assert fresh.usages("n1") == ledger.usages("n1")
    assert placed(fresh, 5000, 5000) == ["GPU-m1[1g.5gb@1]", "-"]


def test_an_emptied_card_goes_back_to_the_groups() -> None:
    ledger = world()
    first, second = pod_of("a", limits(1, 5000)), pod_of("b", limits(1, 20000))
    ledger.place(first, "n1")
    ledger.place(second, "n1")
    ledger.leave(first)
    assert placed(ledger, 20000) == ["GPU-m1[3g.20gb@0]"]
    for uid in list(ledger.allocated):
        del ledger.allocated[uid]
    assert placed(ledger, 20000) == ["GPU-m1[group3-0]"]


@pytest.mark.parametrize(
    ("ids", "doubt"),
    [
        (("GPU-m1[2g.10gb@0],NVIDIA,9000,0:", "GPU-m1[group1-1],NVIDIA,3000,0:"), ""),  # one over the other
        (("GPU-m1[2g.10gb@3],NVIDIA,9000,0:",), "the card has no 2g.10gb that begins at memory slice 3"),
        (("GPU-m1[9g.90gb@0],NVIDIA,9000,0:",), "the card has no 9g.90gb that begins at memory slice 0"),
        (("GPU-m1[2g.10gb@],NVIDIA,9000,0:",), "is neither UUID[group-slot] nor UUID[profile@start]"),
        (("GPU-m1[two@0],NVIDIA,9000,0:",), "is neither UUID[group-slot] nor UUID[profile@start]"),
    ],
)
def test_a_card_whose_pods_claim_what_cannot_be_takes_no_new_ones(ids: tuple[str, ...], doubt: str) -> None:
    ledger = world()
    doubts = claims(ledger, *ids)
    assert all(doubt in text for text in doubts)
    assert bool(doubts) == bool(doubt)
    assert placed(ledger, 3000) == ["-"]


def test_a_slice_outside_the_groups_quarantines_the_card_once_the_option_is_off() -> None:
    ledger = world(OURS, card("GPU-m2", 40960, 10, A100, mode="mig"), on=False)
    assert "not offered here (pumice.MigOffGroup)" in claims(ledger, "GPU-m1[2g.10gb@4],NVIDIA,9000,0:")[0]
    assert placed(ledger, 3000) == ["GPU-m2[group1-0]"]
    assert ledger.used("n1")[0] == (1, 9000, 0)


def test_a_model_whose_listed_groups_nvidia_does_not_offer_stays_with_its_groups() -> None:
    text = ("nvidia: {knownMigGeometries: [{models: [A100-PCIE-40GB], allowedGeometries: "
            "[{group: g, geometries: [{name: 3g.20gb, memory: 20480, count: 3}]}]}]}")  # fmt: skip
    assert placed(world(config=text), 20000, 5000) == ["GPU-m1[g-0]", "GPU-m1[g-1]"]


def test_the_places_of_every_model_lie_within_the_card_and_the_groups_have_theirs() -> None:
    for table in mig_tables().values():
        geometry = Catalogue(NvidiaConfig(), anywhere=True).of(f"NVIDIA-NVIDIA {table.models[0]}")
        assert geometry is not None
        assert geometry.free is not None, table.models
        assert geometry.free.largest == geometry.largest
        for index, group in enumerate(geometry.groups):
            active, used = -1, 0
            for slot in range(len(group.memory)):
                before = used
                active, used = geometry.free.taken(active, used, index, slot)
                assert active == index
                assert used.bit_count() > before.bit_count()
                assert used < 1 << table.memory_slices
                assert geometry.free.slot(index, slot) == group.slot(slot)


def test_the_announcement_stands_in_the_cards_own_entry_and_means_mig_only() -> None:
    register = parse_register(OURS + card("GPU-b", places=True) + UPSTREAMS.replace("m1", "m2"))
    assert [c.places for c in register.cards] == [True, False, False]
    assert render_register(register.cards[:1]) == OURS
    assert parse_register("GPU-m1,10,40960,100,NVIDIA-A100,true,mig,places:").cards[0].places
    assert not parse_register("GPU-m1,10,40960,100,NVIDIA-A100,true,mig:").cards[0].places


def test_ids_of_both_grammars_are_told_apart() -> None:
    assert parse_pod_device("GPU-a[2g.10gb@4],NVIDIA,1,0") == PodDevice("GPU-a", 1, 0, "", 4, "2g.10gb")
    assert parse_pod_device("GPU-a[2g.10gb@4-1],NVIDIA,1,0") == PodDevice("GPU-a", 1, 0, "2g.10gb@4", 1)
    assert PodDevice("GPU-a", 1, 0, "", 4, "2g.10gb").id == "GPU-a[2g.10gb@4]"


def test_the_option_is_an_argument_of_deviceshare() -> None:
    read = settings_from({"deviceshare.VGPUEnable": True, "pumice.MigOffGroup": "true"})
    assert isinstance(read, Settings)
    assert read.of(VgpuArguments).mig_off_group
    assert read.warnings == ()


def test_several_slices_of_one_card_for_one_pod_may_lie_anywhere() -> None:
    ledger = world()
    pod = pod_of("p", limits(4, 8000))
    outcome = ledger.place(pod, "n1")
    assert isinstance(outcome, Fit)
    assert isinstance(outcome.allocation, Allocation)
    assert ledger.ids(pod).count("GPU-m1[") == 4
