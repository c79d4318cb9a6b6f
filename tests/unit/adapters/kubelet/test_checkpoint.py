"""The kubelet's record of devices, as the real one writes it (ADR 120, Restarts)."""

import json
import os

import pytest

from pumice.adapters.kubelet.checkpoint import NAME, allocated_devices, card_holders

RECORD = {
    "Data": {
        "PodDeviceEntries": [
            {"PodUID": "u1", "ContainerName": "a", "ResourceName": "volcano.sh/vgpu-number",
             "DeviceIDs": {"-1": ["GPU-a-0"]}, "AllocResp": "Q0g="},
            {"PodUID": "u2", "ContainerName": "b", "ResourceName": "example.com/other",
             "DeviceIDs": {"0": ["x"]}, "AllocResp": ""},
        ],
        "RegisteredDevices": {"volcano.sh/vgpu-number": ["GPU-a-0", "GPU-a-1"]},
    },
    "Checksum": 3215236234,
}  # fmt: skip
DEEP = '{"x":' + "[" * 100_000


def test_the_holders_of_one_resource_are_told(tmp_path):
    (tmp_path / NAME).write_text(json.dumps(RECORD))
    assert allocated_devices(tmp_path, "volcano.sh/vgpu-number") == {("u1", "a"): {"GPU-a-0"}}
    assert allocated_devices(tmp_path, "volcano.sh/gpu-memory") == {}


def test_whoever_holds_cards_is_told_by_whatever_name_they_are_handed_out(tmp_path):
    entries = RECORD["Data"]["PodDeviceEntries"] + [
        {"PodUID": "u3", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": ["GPU-b"], "1": None}},
        {"PodUID": "u4", "ResourceName": "volcano.sh/gpu-memory", "DeviceIDs": {"-1": ["0-7"]}},
        {"PodUID": "u5", "ResourceName": "example.com/other", "DeviceIDs": None},
    ]
    (tmp_path / NAME).write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))
    assert card_holders(tmp_path) == {"u1", "u3", "u4"}


@pytest.mark.parametrize("text", ["", "{", "[]", DEEP, '{"Data":3}', '{"Data":{"PodDeviceEntries":[{"PodUID":7}]}}'])
def test_a_broken_record_tells_nothing(tmp_path, text):
    assert allocated_devices(tmp_path, "volcano.sh/vgpu-number") is None
    (tmp_path / NAME).write_text(text)
    assert allocated_devices(tmp_path, "volcano.sh/vgpu-number") is None
    assert card_holders(tmp_path) == frozenset()


def test_nobody_waits_at_a_pipe_in_the_place_of_the_record(tmp_path):
    os.mkfifo(tmp_path / NAME)
    assert allocated_devices(tmp_path, "volcano.sh/vgpu-number") is None
