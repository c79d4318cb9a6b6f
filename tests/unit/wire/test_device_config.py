"""``device-config.yaml``: merged over defaults, every form of geometry that is in use, errors with line and key."""

from __future__ import annotations

import pytest
import yaml
from kit.objects import render_geometries

from pumice.devices.nvidia_vgpu.mig_catalogue import PUBLISHED
from pumice.model.errors import BadInput
from pumice.wire.device_config import DeviceConfig, NvidiaConfig
from pumice.wire.device_config_text import parse_device_config

SEVEN = "geometries: [{name: 1g.5gb, memory: 5120, count: 7}]"


def geometry(body: str) -> str:
    return f"nvidia:\n  knownMigGeometries:\n  - models: [A100]\n    allowedGeometries:\n    - {body}\n"


def test_an_empty_document_is_the_defaults_and_each_key_is_merged_alone() -> None:
    assert parse_device_config("") == DeviceConfig()
    assert parse_device_config("nvidia:\n") == DeviceConfig()
    merged = parse_device_config("nvidia: {gpuMemoryFactor: 0, defaultCores: '30', deviceMemoryScaling: 1.8}").nvidia
    assert merged == NvidiaConfig(default_cores=30, device_memory_scaling=1.8)


def test_the_percentage_can_be_switched_off_and_the_other_names_cannot() -> None:
    off = parse_device_config("nvidia: {resourceMemoryPercentageName: ''}").nvidia
    assert off.resource_memory_percentage_name == ""
    with pytest.raises(BadInput, match=r"line 1: nvidia.resourceCountName: may not be empty"):
        parse_device_config("nvidia: {resourceCountName: ''}")


@pytest.mark.parametrize(
    ("body", "group"),
    [
        (f"{{group: one, {SEVEN}}}", "one"),
        (f"{{group: one, {SEVEN.replace('geometries', 'instances')}}}", "one"),
        (f"{{{SEVEN}}}", "group1"),
        ("[{name: 1g.5gb, memory: 5120, count: 7}]", "group1"),
    ],
)
def test_every_form_of_a_group_is_read(body: str, group: str) -> None:
    (model,) = parse_device_config(geometry(body)).nvidia.known_mig_geometries
    assert [(g.name, g.instances[0].name, g.instances[0].count) for g in model.groups] == [(group, "1g.5gb", 7)]


def test_the_published_geometries_survive_a_round_trip() -> None:
    text = yaml.safe_dump({"nvidia": {"knownMigGeometries": render_geometries(PUBLISHED)}})
    assert parse_device_config(text).nvidia.known_mig_geometries == PUBLISHED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nvidia: 3", "line 1: nvidia: expected a mapping"),
        ("- 1", "line 1: expected a mapping"),
        ("nvidia:\n  overwriteEnv: maybe", "line 2: nvidia.overwriteEnv: expected true or false"),
        ("nvidia:\n  deviceSplitCount: -1", "line 2: nvidia.deviceSplitCount: expected a whole number"),
        ("nvidia:\n  deviceMemoryScaling: 0", "line 2: nvidia.deviceMemoryScaling: expected a number above 0"),
        (geometry(f"{{group: a-b, {SEVEN}}}"), "line 5: .*group 'a-b' must be a text without any of"),
        (geometry("{group: a, geometries: []}"), "line 5: .*at least one instance"),
        (geometry("{group: a, geometry: [1]}"), "line 5: .*unknown key 'geometry'; did you mean 'geometries'"),
        (geometry("{group: a, geometries: [{name: x, memory: 5, count: 70}]}"), "at most 16 instances"),
        (geometry(f"{{group: a, {SEVEN}}}\n    - {{group: a, {SEVEN}}}"), "line 6: .*group 'a' is there twice"),
        ("nvidia:\n  knownMigGeometries:\n  - allowedGeometries: []\n", "line 3: .*models: expected a list of model names"),
        ("nvidia: {a: [}", "line 1: "),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_line_and_key(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_device_config(text)


def test_unknown_keys_are_warnings_with_the_nearest_right_word() -> None:
    config = parse_device_config("nvida: {}\nnvidia:\n  defaultMem: 1\n  defaultMem: 2\n")
    assert sorted(warning.split(": ", 1)[0] for warning in config.warnings) == ["line 1", "line 4", "line 4"]
    joined = " ".join(config.warnings)
    assert "did you mean 'nvidia'?" in joined
    assert "did you mean 'defaultMemory'?" in joined
    assert "'defaultMem' is given twice" in joined
