"""HAMi-core: which card of a node a pod gets (Volcano pkg/scheduler/api/devices/nvidia/vgpu)."""

from __future__ import annotations

import pytest
from kit.device_world import TinyLedger, card, device_settings, limits, pod_of, vgpu_node

from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import Fit
from pumice.devices.registry import device_types_from, settings_from
from pumice.devices.settings import Settings
from pumice.model.refusal import FitError, Refusal, Short
from pumice.wire import names


def world(policy: str = "binpack", *cards: str, **settings: object) -> TinyLedger:
    ledger = TinyLedger(NvidiaVgpu(None, device_settings(policy=policy, **settings)))  # type: ignore[arg-type]
    ledger.add_node(vgpu_node("n1", *(cards or (card("GPU-aaa"), card("GPU-bbb")))))
    return ledger


def test_binpack_fills_the_fuller_card_and_spread_the_emptier_one() -> None:
    for policy, expected in (("binpack", ["GPU-aaa", "GPU-aaa"]), ("spread", ["GPU-aaa", "GPU-bbb"])):
        ledger = world(policy)
        pods = [pod_of(name, limits(1, 4096, 25)) for name in "ab"]
        for pod in pods:
            assert isinstance(ledger.place(pod, "n1"), Fit)
        assert [ledger.ids(pod).split(",")[0] for pod in pods] == expected


def test_a_pod_overrides_the_cluster_policy_for_cards_and_for_nodes() -> None:
    ledger = world("binpack")
    ledger.place(pod_of("first", limits(1, 4096)), "n1")
    apart = pod_of("apart", limits(1, 4096), annotations={names.CARD_POLICY: "spread"})
    fit = ledger.place(apart, "n1")
    assert isinstance(fit, Fit)
    assert ledger.ids(apart) == "GPU-bbb,NVIDIA,4096,0:"
    assert 25 <= fit.score < 25.01  # still scored as binpack
    fit = ledger.try_pod(pod_of("x", limits(1, 100), annotations={names.NODE_POLICY: "spread"}), "n1")
    assert isinstance(fit, Fit)
    assert fit.allocation.container_devices[0].uuid == "GPU-aaa"
    assert fit.score < 1  # a shared card: no points for spreading


def test_a_refusal_counts_cards_by_reason() -> None:
    cards = [card(f"GPU-{i}", 8000, 1 if i == 6 else 10, "NVIDIA-T4" if i == 7 else "NVIDIA-V100") for i in range(8)]
    ledger = world("binpack", *cards)
    ledger.place(pod_of("a", limits(1, 0, 0, 0), annotations={names.USE_GPU_UUID: "GPU-6"}), "n1")
    pod = pod_of("big", limits(1, 9000), annotations={names.USE_GPU_TYPE: "V100"})
    fit_error = ledger.try_pod(pod, "n1")
    assert isinstance(fit_error, FitError)
    assert fit_error.text == "hami-vgpuDeviceSharing: memory 7, shares 1 of 8 cards"
    assert (fit_error.short, fit_error.wanted, fit_error.best, fit_error.final) == (Short.MEMORY, 9000, 8000, True)


def test_a_shortage_that_eviction_can_end_is_not_final() -> None:
    ledger = world("binpack", card("GPU-a"))
    ledger.place(pod_of("a", limits(1, 10000)), "n1")
    fit_error = ledger.try_pod(pod_of("b", limits(1, 10000)), "n1")
    assert isinstance(fit_error, FitError)
    assert (fit_error.final, fit_error.best) == (False, 6384)


def test_final_refusals_are_those_that_no_eviction_ends() -> None:
    for pod in (
        pod_of("mode", limits(1, 100), annotations={names.VGPU_MODE: "mig"}),
        pod_of("type", limits(1, 100), annotations={names.USE_GPU_TYPE: "A100"}),
        pod_of("uuid", limits(1, 100), annotations={names.USE_GPU_UUID: "GPU-x"}),
        pod_of("count", limits(3, 100)),
        pod_of("together", limits(1), limits(1), limits(1)),
        pod_of("cores", limits(1, 100, 101)),
    ):
        fit_error = world().try_pod(pod, "n1")
        assert isinstance(fit_error, FitError)
        assert fit_error.final, pod.metadata.name


def test_two_containers_of_a_pod_may_share_a_card_and_both_are_charged() -> None:
    ledger = world("binpack")
    pod = pod_of("p", limits(1, 4096, 25), limits(1, 2048, 10))
    assert isinstance(ledger.place(pod, "n1"), Fit)
    assert ledger.ids(pod) == "GPU-aaa,NVIDIA,4096,25:;GPU-aaa,NVIDIA,2048,10:"
    assert ledger.used("n1")[0] == (2, 6144, 35)


def test_a_sidecar_holds_its_own_share_before_the_regular_containers() -> None:
    ledger = world("binpack")
    sidecar = {"restartPolicy": "Always", "resources": {"limits": limits(1, 1000)}}
    pod = pod_of("p", limits(1, 4096), init=[sidecar])
    ledger.place(pod, "n1")
    assert ledger.ids(pod) == "GPU-aaa,NVIDIA,1000,0:;GPU-aaa,NVIDIA,4096,0:"


def test_an_init_container_borrows_the_cards_of_a_container_that_asks_for_as_much() -> None:
    ledger = world("binpack")
    ledger.place(pod_of("p", limits(1, 4096), init=[limits(1, 4000)]), "n1")
    assert ledger.used("n1")[0] == (1, 4096, 0)
    refused = ledger.try_pod(pod_of("q", limits(1, 4096), init=[limits(1, 5000)]), "n1")
    assert isinstance(refused, Refusal)
    assert refused.field == "init container 'i0'"
    assert "5000" in refused.text


def test_close_cards_are_preferred_among_equal_ones_when_the_node_says_how_they_are_connected() -> None:
    cards = [card(f"GPU-{c}") for c in "abcd"]
    topology = "GPU-a,0,GPU-c=4:GPU-b,0:GPU-c,1,GPU-a=4:GPU-d,1:"
    for notes, expected in (({}, "GPU-a GPU-b"), ({names.CARD_TOPOLOGY: topology}, "GPU-a GPU-c")):
        ledger = TinyLedger(NvidiaVgpu(None, Settings(policy="binpack")))
        ledger.add_node(vgpu_node("n1", *cards, annotations=notes))
        fit = ledger.try_pod(pod_of("p", limits(2, 1000)), "n1")
        assert isinstance(fit, Fit)
        assert " ".join(container_device.uuid for container_device in fit.allocation.container_devices) == expected


def test_a_cordoned_card_takes_no_new_pods() -> None:
    ledger = TinyLedger(NvidiaVgpu(None, Settings(policy="binpack")))
    node = vgpu_node("n1", card("GPU-a"), card("GPU-b"), annotations={names.CORDONED_CARDS: "GPU-a"})
    ledger.add_node(node)
    fit = ledger.try_pod(pod_of("p", limits(1, 1000)), "n1")
    assert isinstance(fit, Fit)
    assert fit.allocation.container_devices[0].uuid == "GPU-b"
    fit_error = ledger.try_pod(pod_of("p", limits(2, 1000)), "n1")
    assert isinstance(fit_error, FitError)
    assert fit_error.text == "hami-vgpuDeviceSharing: cordoned 1 of 2 cards; 2 wanted, 1 fit"


RULES = {"deviceshare.VGPUEnable": True, "deviceshare.SchedulePolicy": "binpack"} | {
    "deviceshare.GPUExclusiveRules": [{"app": "training", "team": "ml"}, {"workload": "inference"}]
}


@pytest.mark.parametrize(
    ("labels", "free"),
    [
        ({"app": "training", "team": "ml"}, [1, 2, 3]),
        ({"workload": "inference"}, [0, 2, 3]),
        ({"app": "training", "team": "ml", "workload": "inference"}, [2, 3]),
        ({"app": "training"}, [0, 1, 2, 3]),
        ({}, [0, 1, 2, 3]),
    ],
)
def test_pods_of_one_exclusivity_rule_do_not_share_a_card(labels: dict[str, str], free: list[int]) -> None:
    settings = settings_from(RULES)
    assert not isinstance(settings, Refusal)
    ledger = TinyLedger(device_types_from(settings)[0])
    ledger.add_node(vgpu_node("n1", *(card(f"GPU-{i}") for i in range(4))))
    for i, known in enumerate(({"app": "training", "team": "ml"}, {"workload": "inference"})):
        seated = pod_of(f"s{i}", limits(1, 1000), labels=known, annotations={names.USE_GPU_UUID: f"GPU-{i}"})
        assert isinstance(ledger.place(seated, "n1"), Fit)
    fitting = []
    for i in range(4):
        pod = pod_of("p", limits(1, 1000), labels=labels, annotations={names.USE_GPU_UUID: f"GPU-{i}"})
        if isinstance(ledger.try_pod(pod, "n1"), Fit):
            fitting.append(i)
    assert fitting == free
