"""Dynamic MIG: models, groups, slots and policies (Volcano pkg/scheduler/api/devices/nvidia/vgpu; docs/adr/0010)."""

from __future__ import annotations

import pytest
from kit.device_world import A100, TinyLedger, card, limits, pod_of, vgpu_node
from tests.unit.devices.nvidia_vgpu.mig_cards import node_of, placed

from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue, builtin_geometries
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest, Fit
from pumice.devices.settings import Settings
from pumice.model.cards import Allocation
from pumice.model.hardware.mig import mig_tables
from pumice.model.refusal import FitError
from pumice.scheduler.state.cards import DeviceTable
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.device_config_text import parse_device_config


def world(*cards: str, config: str = "", **settings: object) -> TinyLedger:
    return node_of(*(cards or (card("GPU-m1", 40960, 10, A100, mode="mig"),)), config=config, **settings)


@pytest.mark.parametrize(
    "product",
    ["NVIDIA A30", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe",
     "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA GH200 480GB", "NVIDIA H20", "NVIDIA H200",
     "NVIDIA H200 NVL", "NVIDIA B200", "NVIDIA RTX PRO 6000 Blackwell Server Edition"],
)  # fmt: skip
def test_every_mig_card_of_today_has_a_geometry_without_a_configmap(product: str) -> None:
    geometry = Catalogue(NvidiaConfig()).of(f"NVIDIA-{product}")
    assert geometry is not None
    assert {group.name for group in geometry.groups} >= {"group1", "group2", "group3"}
    for group in geometry.groups:
        assert list(group.memory) == sorted(group.memory, reverse=True)


@pytest.mark.parametrize("product", ["NVIDIA A10", "NVIDIA L40S", "NVIDIA RTX A3000", "Tesla V100-SXM2-16GB", ""])
def test_a_card_without_mig_has_none(product: str) -> None:
    assert Catalogue(NvidiaConfig()).of(f"NVIDIA-{product}") is None


def test_the_catalogue_lists_nothing_that_the_driver_does_not_offer() -> None:
    for table in mig_tables().values():
        entry = builtin_geometries(table.models[0])
        assert entry is not None
        for group in entry.groups:
            for instance in group.instances:
                assert instance.count <= table.profile(instance.name).count


def test_the_configmap_wins_over_the_catalogue_and_matches_words_in_any_order() -> None:
    config = parse_device_config(
        "nvidia: {knownMigGeometries: [{models: [A100-PCIE-80GB], allowedGeometries: "
        "[{group: only, geometries: [{name: 7g.80gb, memory: 70000, count: 1}]}]}]}"
    )
    geometry = Catalogue(config.nvidia).of("NVIDIA-NVIDIA A100 80GB PCIe")
    assert geometry is not None
    assert [group.name for group in geometry.groups] == ["only"]


def test_listed_wastes_a_large_slot_where_tightest_keeps_it() -> None:
    """The fuller card offers only its 2g slots to a small pod; the emptier one has 1g slots."""
    cards = [card(f"GPU-{c}", 40960, 10, A100, mode="mig") for c in "ab"]
    results = {}
    for policy in ("listed", "tightest", "expected"):
        ledger = world(*cards, mig_policy=policy)
        allocated = "GPU-a[group2-0],NVIDIA,9000,0:GPU-a[group2-3],NVIDIA,3000,0:GPU-b[group1-0],NVIDIA,3000,0:"
        ledger.replay(pod_of("old", annotations={names.VGPU_IDS: allocated}, node="n1"), "n1")
        results[policy] = placed(ledger, 3000)[0]
    assert results == {
        "listed": "GPU-a[group2-1]", "tightest": "GPU-b[group1-1]", "expected": "GPU-b[group1-1]"
    }  # fmt: skip


def test_the_node_score_of_tightest_prefers_the_node_that_wastes_less() -> None:
    ledger = world(mig_policy="tightest")
    ledger.add_node(vgpu_node("n2", card("GPU-m2", 40960, 10, A100, mode="mig")))
    ledger.replay(pod_of("old", annotations={names.VGPU_IDS: "GPU-m1[group2-0],NVIDIA,9000,0:"}, node="n1"), "n1")
    scores = {}
    for node in ("n1", "n2"):
        for memory in (3000, 9000, 20000):
            fit = ledger.try_pod(pod_of("p", limits(1, memory), annotations={names.VGPU_MODE: "mig"}), node)
            scores[node, memory] = fit.score if isinstance(fit, Fit) else -1.0
    assert scores["n1", 9000] > scores["n2", 9000]
    assert scores["n1", 3000] > scores["n2", 3000]
    assert scores["n2", 20000] > scores["n1", 20000] == -1.0


def test_several_slots_of_one_card_for_one_pod() -> None:
    ledger = world()
    pod = pod_of("p", limits(3, 3000))
    ledger.place(pod, "n1")
    assert ledger.ids(pod).count("GPU-m1[group1-") == 3
    four = world().try_pod(pod_of("q", limits(4, 8000)), "n1")
    assert isinstance(four, FitError)
    assert four.final


def test_a_group_with_room_for_all_slots_is_found_where_first_fit_would_get_stuck() -> None:
    config = (
        "nvidia: {knownMigGeometries: [{models: [A100], allowedGeometries: ["
        "{group: one, geometries: [{name: 7g.40gb, memory: 40960, count: 1}]}, "
        "{group: two, geometries: [{name: 3g.20gb, memory: 20480, count: 2}]}]}]}"
    )
    ledger = world(config=config)
    pod = pod_of("p", limits(2, 20000))
    assert isinstance(ledger.place(pod, "n1"), Fit)
    assert ledger.ids(pod) == "GPU-m1[two-0],NVIDIA,20000,0:GPU-m1[two-1],NVIDIA,20000,0:"


def test_a_pod_without_a_mode_takes_the_mode_that_fits() -> None:
    ledger = world(card("GPU-h", 16384, 10, A100), card("GPU-m", 40960, 10, A100, mode="mig"))
    assert placed(ledger, 20000) == ["GPU-m[group3-0]"]
    two = ledger.try_pod(pod_of("two", limits(2, 10000)), "n1")
    assert isinstance(two, FitError)
    assert two.text.endswith("no enough gpu cards of one mode, 2 wanted, 1 hami-core and 1 mig would do")


def test_a_geometry_edited_under_its_pods_quarantines_until_they_are_gone() -> None:
    """The slots of group1 shrank to 4000 while a pod that was promised 5000 runs in one."""
    config = (
        "nvidia: {knownMigGeometries: [{models: [A100], allowedGeometries: "
        "[{group: group1, geometries: [{name: 1g.5gb, memory: 4000, count: 7}]}]}]}"
    )
    ledger = world(config=config)
    old = pod_of("old", annotations={names.VGPU_IDS: "GPU-m1[group1-0],NVIDIA,5000,0:"}, node="n1")
    ledger.replay(old, "n1")
    fit_error = ledger.try_pod(pod_of("p", limits(1, 3000)), "n1")
    assert isinstance(fit_error, FitError)
    assert "more than the slot's 4000 today" in fit_error.cards[0].detail
    ledger.leave(old)
    ledger.doubts.clear()
    assert placed(ledger, 3000) == ["GPU-m1[group1-0]"]


def test_a_card_switched_from_mig_to_hami_core_under_its_pods_is_quarantined() -> None:
    ledger = world(card("GPU-m1", 40960, 10, A100))
    ledger.replay(pod_of("old", annotations={names.VGPU_IDS: "GPU-m1[group1-0],NVIDIA,5000,0:"}, node="n1"), "n1")
    fit_error = ledger.try_pod(pod_of("p", limits(1, 3000)), "n1")
    assert isinstance(fit_error, FitError)
    assert "has no MIG geometry" in fit_error.cards[0].detail
    assert ledger.used("n1") == [(1, 5000, 0)]


@pytest.mark.parametrize("claims", [("group1-0", "group1-0"), ("group1-0", "group2-1")])
def test_pods_that_claim_contradicting_slots_close_the_card_until_one_leaves(claims: tuple[str, str]) -> None:
    device_type = NvidiaVgpu(None, Settings(policy="binpack"))
    device_table = DeviceTable(device_type)
    inventory = device_type.inventory(vgpu_node("n1", card("GPU-m1", 40960, 10, A100, mode="mig")))
    assert inventory is not None
    device_table.put("n1", 0, inventory, 1)
    allocations = []
    for name, claim in zip("ab", claims, strict=True):
        pod = pod_of(name, annotations={names.VGPU_IDS: f"GPU-m1[{claim}],NVIDIA,3000,0:"}, node="n1")
        allocation = device_type.replay(pod, "n1", inventory)
        assert isinstance(allocation, Allocation)
        device_table.charge(name, allocation)
        allocations.append(allocation)
    device_request = device_type.device_request(pod_of("p", limits(1, 3000)))
    assert isinstance(device_request, DeviceRequest)
    fit_error = device_type.fit(device_request, device_table.view("n1"))
    assert isinstance(fit_error, FitError)
    assert fit_error.text.endswith("quarantined 1 of 1 cards")
    ranked = device_table.rank(device_request, None, 1)
    assert ranked is not None
    assert not ranked[0].any()
    device_table.discharge("b", allocations[1])
    fit = device_type.fit(device_request, device_table.view("n1"))
    assert isinstance(fit, Fit)
    assert device_type.annotations(fit.allocation, 0)[names.VGPU_IDS] == "GPU-m1[group1-1],NVIDIA,3000,0:"


def test_a_pod_without_a_mode_takes_a_share_before_a_slot_on_a_node_that_has_both() -> None:
    for policy in ("", "binpack", "spread"):
        ledger = TinyLedger(NvidiaVgpu(None, Settings(policy=policy)))
        ledger.add_node(vgpu_node("n1", card("GPU-m", 40960, 10, A100, mode="mig"), card("GPU-h", 40960, 10, A100)))
        assert placed(ledger, 3000) == ["GPU-h"]


@pytest.mark.parametrize(("kind", "total", "half"), [(A100, 40960, "3g.20gb"), ("NVIDIA-NVIDIA A100-SXM4-80GB", 81920, "3g.40gb"),
                                                     ("NVIDIA-NVIDIA A30", 24576, "2g.12gb")])  # fmt: skip
def test_a_percentage_in_mig_mode_is_one_of_the_largest_slot(kind: str, total: int, half: str) -> None:
    def profile(percent: int) -> str:
        ledger = world(card("GPU-m1", total, 10, kind, mode="mig"))
        fit = ledger.try_pod(pod_of("p", limits(1, percent=percent)), "n1")
        return (
            fit.allocation.container_devices[0].slot.profile
            if isinstance(fit, Fit) and fit.allocation.container_devices[0].slot
            else "-"
        )

    names_of = [profile(percent) for percent in range(1, 101)]
    whole = names_of[-1]
    assert whole[0] in "47"
    assert names_of[49] == half
    assert "-" not in names_of, "whatever a whole card can serve, a smaller part of it can be served"
    assert names_of[50:] == [whole] * 50
    assert profile(150) == "-"


def test_the_refusal_names_the_model_whose_geometry_nobody_knows() -> None:
    refused = world(card("GPU-m1", 49152, 10, "NVIDIA-NVIDIA L40S", mode="mig")).try_pod(pod_of("p", limits(1, 3000)), "n1")
    assert isinstance(refused, FitError)
    assert refused.text.endswith("quarantined 1 of 1 cards; no MIG geometry for model 'NVIDIA-NVIDIA L40S'")
