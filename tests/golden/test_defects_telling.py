"""Upstream's defects in what users, queues and metrics are told, shown to be absent: one test per number.

The worked examples beside this file show most of them in numbers.
"""

from __future__ import annotations

from kit.device_world import limits, pod_of
from tests.golden.defect_world import bound, engine, ledger, pending, two_cards

from pumice.devices.protocol import DeviceRequest
from pumice.effects.vocabulary import PodCondition
from pumice.metrics.scheduler import SchedulerMetrics
from pumice.model.refusal import FitError
from pumice.wire import names


def test_d34_what_eviction_cannot_help_is_final() -> None:
    fit_error = ledger(two_cards()).try_pod(pod_of("p", limits(1, 100), annotations={names.VGPU_MODE: "mig"}), "n1")
    assert isinstance(fit_error, FitError)
    assert fit_error.final


def test_d39_the_quota_counts_every_card() -> None:
    device_type = ledger(two_cards()).device_type
    device_request = device_type.device_request(pod_of("p", limits(2, 3000, 50)))
    assert isinstance(device_request, DeviceRequest)
    assert device_type.quota(device_request) == {names.VGPU_NUMBER: 2, names.VGPU_MEMORY: 6000, names.VGPU_CORES: 100}


def test_d43_pods_of_one_name_in_two_namespaces_share_upstreams_series_and_have_their_own_in_ours() -> None:
    made = engine(two_cards())
    for namespace, memory in (("x", 1000), ("y", 2000)):
        pod = bound("p", f"GPU-aaa,NVIDIA,{memory},10:", namespace=namespace)
        pod.metadata.uid = f"uid-{namespace}"
        made.state.pods.put(pod)
    page = SchedulerMetrics(made).page().decode()
    name = "volcano_vgpu_device_memory_allocation_for_a_certain_pod"
    assert f'{name}{{devID="GPU-aaa",NodeName="n1",podName="p"}} 3000' in page
    assert 'pumice_vgpu_device_pod_memory{devID="GPU-aaa",NodeName="n1",podNamespace="y",podName="p"} 2000' in page
    series = [line.rsplit(" ", 1)[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_d44_a_scrape_shows_the_ledger_and_nothing_of_what_is_gone() -> None:
    made = engine(two_cards())
    metrics = SchedulerMetrics(made)
    pod = bound("p", "GPU-aaa,NVIDIA,1000,10:")
    made.state.pods.put(pod)
    assert 'volcano_vgpu_device_allocated_memory{devID="GPU-aaa",NodeName="n1"} 1000' in metrics.page().decode()
    made.cycle(10.0)
    assert 'volcano_vgpu_device_allocated_memory{devID="GPU-aaa",NodeName="n1"} 1000' in metrics.page().decode()
    made.state.pods.drop(pod)
    page = metrics.page().decode()
    assert 'volcano_vgpu_device_allocated_memory{devID="GPU-aaa",NodeName="n1"} 0' in page
    assert 'podName="p"' not in page
    made.state.bookings.drop_node("n1")
    assert "GPU-aaa" not in metrics.page().decode()


def test_d45_the_reason_carries_the_cause_and_keeps_its_first_word() -> None:
    made = engine(two_cards())
    made.state.pods.put(pending("p", limits(1, 20000)))
    message = next(e.message for e in made.cycle(10.0).effects if isinstance(e, PodCondition))
    assert "1 hami-vgpuDeviceSharing: memory 2 of 2 cards" in message
