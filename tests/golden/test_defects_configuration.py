"""Upstream's defects in reading configurations and requests, shown to be absent: one test per number of the specification.

The worked examples beside this file show most of them in numbers.
"""

from __future__ import annotations

import pytest
from kit.device_world import card, limits, pod_of, vgpu_node
from tests.golden.defect_world import VGPU, binds, conf, engine, ledger, pending, two_cards

from pumice.devices.nvidia_gpushare.scheduling import NvidiaGpushare
from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.protocol import DeviceRequest, Fit
from pumice.devices.registry import settings_from
from pumice.devices.settings import Settings
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.scheduler_conf import parse_scheduler_conf


def test_d01_deviceshare_alone_allocates_without_the_predicates_plugin() -> None:
    made = engine(two_cards(), text=conf(plugins=()))
    made.state.pods.put(pending("p", limits(1, 1000)))
    assert binds(made) == {"p": "GPU-aaa,NVIDIA,1000,0:"}


def test_d02_a_changed_configuration_takes_effect_and_a_removed_flag_is_off() -> None:
    made = engine(two_cards())
    made.configure(parse_scheduler_conf(conf({"deviceshare.SchedulePolicy": "spread"})))
    assert made.device_types == []
    made.configure(parse_scheduler_conf(conf({**VGPU, "deviceshare.SchedulePolicy": "spread"})))
    for name in ("a", "b"):
        made.state.pods.put(pending(name, limits(1, 1000)))
    assert binds(made) == {"a": "GPU-aaa,NVIDIA,1000,0:", "b": "GPU-bbb,NVIDIA,1000,0:"}


def test_d03_an_unreadable_configuration_is_an_error_with_line_and_key() -> None:
    with pytest.raises(BadInput, match=r"line 2: nvidia.defaultMemory: expected a whole number"):
        parse_device_config("nvidia:\n  defaultMemory: much\n")


def test_d04_a_partial_configmap_keeps_the_defaults() -> None:
    assert parse_device_config("vnpus: []\n").nvidia.resource_count_name == names.VGPU_NUMBER
    partial = parse_device_config("nvidia:\n  deviceSplitCount: 4\n").nvidia
    assert (partial.device_split_count, partial.resource_memory_name) == (4, names.VGPU_MEMORY)


def test_d05_defaults_for_what_the_pod_leaves_out_are_honoured() -> None:
    made = ledger(two_cards(), config="nvidia: {defaultMemory: 2000, defaultCores: 30, defaultGPUNum: 2}")
    pod, by_memory = pod_of("p", limits(1)), pod_of("q", limits(None, 500, 10))
    made.place(pod, "n1")
    assert made.ids(pod) == "GPU-aaa,NVIDIA,2000,30:"
    made.place(by_memory, "n1")
    assert made.ids(by_memory) == "GPU-aaa,NVIDIA,500,10:GPU-bbb,NVIDIA,500,10:"


def test_d06_a_node_counts_by_the_configured_resource_names() -> None:
    config = "nvidia: {resourceCountName: my.io/n, resourceMemoryName: my.io/m, resourceCoreName: my.io/c}"
    node = vgpu_node("n1", card("GPU-a"), allocatable={"my.io/n": 1, "my.io/m": 1, "my.io/c": 1})
    made = ledger(node, config=config)
    assert isinstance(made.try_pod(pod_of("p", {"my.io/n": 1, "my.io/m": 100}), "n1"), Fit)


def test_d07_group_names_that_give_ambiguous_ids_are_refused_and_decoded_at_the_last_hyphen() -> None:
    text = "nvidia: {knownMigGeometries: [{models: [A100], allowedGeometries: [{group: group-1, geometries: []}]}]}"
    with pytest.raises(BadInput, match="group-1"):
        parse_device_config(text)


def test_d08_numbers_written_as_text_are_numbers() -> None:
    settings = settings_from({"deviceshare.ScheduleWeight": "10"})
    assert isinstance(settings, Settings)
    assert (settings.weight, settings.warnings) == (10, ())


def test_d17_cores_alone_count_only_by_option() -> None:
    pod = pod_of("p", limits(cores=30))
    assert ledger(two_cards()).device_type.device_request(pod) is None
    assert isinstance(ledger(two_cards(), partial_requests=True).device_type.device_request(pod), DeviceRequest)


@pytest.mark.parametrize("memory", ["3Gi", "4Gi", 2**31, 2**63, -1])
def test_d18_amounts_beyond_31_bits_are_refused_with_the_reason(memory: str | int) -> None:
    refused = ledger(two_cards()).device_type.device_request(pod_of("p", limits(1, memory)))
    assert isinstance(refused, Refusal)
    assert str(memory) in refused.text


def test_d19_a_count_of_zero_is_no_request() -> None:
    assert ledger(two_cards()).device_type.device_request(pod_of("p", limits(0, 4096, 50))) is None


def test_d37_values_of_exclusivity_rules_are_compared_as_text() -> None:
    found = settings_from({**VGPU, "deviceshare.GPUExclusiveRules": [{"app": "x", "solo": True, "tier": 1}]})
    assert isinstance(found, Settings)
    assert found.of(VgpuArguments).rules == ((("app", "x"), ("solo", "true"), ("tier", "1")),)


def test_d40_a_percentage_is_a_parameter_and_not_a_resource_of_the_node() -> None:
    made = engine(two_cards())
    made.state.pods.put(pending("p", limits(1, percent=25)))
    assert binds(made) == {"p": "GPU-aaa,NVIDIA,4096,0:"}


def test_d41_sidecars_count_beside_the_containers() -> None:
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {names.GPU_MEMORY: 2}}}
    device_request = NvidiaGpushare().device_request(pod_of("p", {names.GPU_MEMORY: 3}, init=[sidecar, {names.GPU_MEMORY: 1}]))
    assert isinstance(device_request, DeviceRequest)
    assert device_request.detail.amount == 5
