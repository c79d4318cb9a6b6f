"""Upstream's defects in reading cards and choosing among them, shown to be absent: one test per number of the specification.

The worked examples beside this file show most of them in numbers.
"""

from __future__ import annotations

from kit.device_world import A100, TinyLedger, card, limits, pod_of, vgpu_node
from tests.golden.defect_world import VGPU, binds, bound, conf, engine, ledger, mig_node, pending, two_cards

from pumice.devices.nvidia_gpushare.scheduling import NvidiaGpushare
from pumice.devices.protocol import Fit
from pumice.model.refusal import FitError
from pumice.wire import names
from pumice.wire.objects import Node, convert


def test_d09_stray_separators_leave_no_gap_in_the_card_numbers() -> None:
    node = vgpu_node("n1", card("GPU-a"), ":", card("GPU-b"))
    for policy in ("", "binpack", "spread"):
        made = ledger(node, policy)
        assert [c.index for c in made.inventories["n1"].cards] == [0, 1]
        assert isinstance(made.try_pod(pod_of("p", limits(2, 100)), "n1"), Fit)


def test_d10_a_node_without_cards_refuses_a_pod_that_wants_some() -> None:
    plain = convert(Node, {"metadata": {"name": "n0"}, "status": {"allocatable": {names.VGPU_NUMBER: 10}}})
    made = engine(plain)
    made.state.pods.put(pending("p", limits(1, 1000)))
    assert binds(made) == {}


def test_d11_each_card_has_its_own_mode() -> None:
    node = vgpu_node("n1", card("GPU-m", 40960, 10, A100, mode="mig"), card("GPU-h", 40960, 10, A100))
    made = ledger(node)
    for mode, expected in (("mig", "GPU-m[group1-0],NVIDIA,3000,0:"), ("hami-core", "GPU-h,NVIDIA,3000,0:")):
        pod = pod_of(mode, limits(1, 3000), annotations={names.VGPU_MODE: mode})
        made.place(pod, "n1")
        assert made.ids(pod) == expected


def test_d12_a_mig_card_of_an_unknown_model_is_unusable_and_says_which_model() -> None:
    node = vgpu_node("n1", card("GPU-x", 40960, 10, "NVIDIA-NVIDIA Z900", mode="mig"))
    made = ledger(node)
    assert "node n1: no MIG geometry for model 'NVIDIA-NVIDIA Z900'" in made.inventories["n1"].problems[0]
    assert isinstance(made.try_pod(pod_of("p", limits(1, 3000)), "n1"), FitError)


def test_d13_an_unhealthy_card_takes_no_new_pods_and_keeps_the_old_ones() -> None:
    made = ledger(vgpu_node("n1", card("GPU-a", healthy=False), card("GPU-b")))
    made.replay(bound("old", "GPU-a,NVIDIA,1000,0:"), "n1")
    fit = made.try_pod(pod_of("p", limits(1, 100)), "n1")
    assert isinstance(fit, Fit)
    assert fit.allocation.container_devices[0].uuid == "GPU-b"
    assert made.used("n1")[0] == (1, 1000, 0)


def test_d14_empty_items_of_type_lists_are_dropped() -> None:
    for notes in ({names.NOUSE_GPU_TYPE: "A100,"}, {names.NOUSE_GPU_TYPE: " , "}, {names.USE_GPU_TYPE: ""}):
        assert isinstance(ledger(two_cards()).try_pod(pod_of("p", limits(1, 100), annotations=notes), "n1"), Fit)


def test_d16_a_uuid_that_begins_another_is_not_taken_for_it() -> None:
    made = ledger(vgpu_node("n1", card("GPU-1"), card("GPU-10")))
    made.replay(bound("p", "GPU-10,NVIDIA,1000,0:"), "n1")
    assert made.used("n1") == [(0, 0, 0), (1, 1000, 0)]


def test_d20_two_pods_of_one_cycle_get_two_slots() -> None:
    made = engine(mig_node())
    for name in ("a", "b"):
        made.state.pods.put(pending(name, limits(1, 3000), limits(1, 3000)))
    slots = "".join(binds(made).values())
    assert sorted(part.split("]")[0] for part in slots.split("[")[1:]) == [f"group1-{i}" for i in range(4)]


def test_d22_an_emptied_card_is_free_for_another_group() -> None:
    made = engine(mig_node())
    old = bound("old", "GPU-m1[group1-2],NVIDIA,3000,0:")
    made.state.pods.put(old)
    made.state.pods.put(pending("p", limits(1, 20000)))
    assert binds(made) == {}
    made.state.pods.drop(old)
    assert binds(made, 20.0) == {"p": "GPU-m1[group3-0],NVIDIA,20000,0:"}


def test_d23_all_free_profiles_of_the_active_group_count() -> None:
    made = ledger(mig_node())
    made.replay(bound("old", "GPU-m1[group2-0],NVIDIA,8000,0:"), "n1")
    pod = pod_of("p", limits(1, 3000))
    made.place(pod, "n1")
    assert made.ids(pod) == "GPU-m1[group2-3],NVIDIA,3000,0:"


def test_d24_a_whole_card_in_mig_mode_is_its_largest_slot() -> None:
    made = ledger(vgpu_node("n1", card("GPU-m", 81920, 10, "NVIDIA-NVIDIA A100-SXM4-80GB", mode="mig")))
    pod = pod_of("p", limits(1))
    made.place(pod, "n1")
    assert made.ids(pod) == "GPU-m[group4-0],NVIDIA,80896,0:"


def test_d25_a_slot_that_the_geometry_lost_quarantines_one_card() -> None:
    node = vgpu_node("n1", *(card(f"GPU-m{i}", 40960, 10, A100, mode="mig") for i in range(2)))
    made = engine(node)
    old = bound("old", "GPU-m0[group4-3],NVIDIA,3000,0:")
    made.state.pods.put(old)
    made.state.pods.put(pending("p", limits(1, 3000)))
    assert binds(made) == {"p": "GPU-m1[group1-0],NVIDIA,3000,0:"}
    made.state.pods.drop(old)
    made.state.pods.put(pending("q", limits(1)))
    assert binds(made, 20.0) == {"q": "GPU-m0[group4-0],NVIDIA,40960,0:"}


def test_d26_spread_prefers_the_node_with_the_idle_card() -> None:
    made = engine(*(vgpu_node(n, card(f"GPU-{n}")) for n in ("n1", "n2")),
                  text=conf({**VGPU, "deviceshare.SchedulePolicy": "spread"}))  # fmt: skip
    for name in ("a", "b"):
        made.state.pods.put(pending(name, limits(1, 1000)))
    assert sorted(ids.split(",")[0] for ids in binds(made).values()) == ["GPU-n1", "GPU-n2"]


def test_d42_whole_cards_are_the_lowest_numbers() -> None:
    capacity = {names.GPU_MEMORY: 8000, names.GPU_NUMBER: 4}
    made = TinyLedger(NvidiaGpushare(number=True))
    made.add_node(convert(Node, {"metadata": {"name": "n1"}, "status": {"capacity": capacity}}))
    pods = [pod_of(name, {names.GPU_NUMBER: 2}) for name in "ab"]
    for pod in pods:
        made.place(pod, "n1")
    assert [made.ids(pod) for pod in pods] == ["0,1", "2,3"]
