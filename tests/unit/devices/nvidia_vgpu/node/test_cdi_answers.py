"""Cards named as CDI devices (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu, NVIDIA k8s-device-plugin internal/cdi)."""

from __future__ import annotations

import re

import pytest
from kit.node_objects import UID, A, B, allocator, gives, pod, units_of

from pumice.model.errors import BadInput
from pumice.node.protocol import Answer, Serve
from pumice.wire.cdi import strategies

NAMED = f"k8s.device-plugin.nvidia.com/gpu={A}"
PLAIN = ("envvar",)


def answer(*how: str, devices: str = "", **more: object) -> Answer:
    devices = devices or gives(A)
    ids = units_of(devices.count(":"))
    served = allocator(strategies=how, **more).allocate([pod("p1", devices, uid=UID)], ids)
    assert isinstance(served, Serve), served
    return served.answer


def test_cdi_cri_names_the_devices_in_the_answers_field_and_no_card_in_the_environment():
    got, plain = answer("cdi-cri"), answer(*PLAIN)
    assert got.cdi == (NAMED,)
    assert not got.annotations
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    rest = {key: value for key, value in got.env.items() if key != "NVIDIA_VISIBLE_DEVICES"}
    assert rest == {key: value for key, value in plain.env.items() if key != "NVIDIA_VISIBLE_DEVICES"}
    assert got.mounts == plain.mounts


def test_cdi_annotations_names_them_in_an_annotation_of_its_own():
    got = answer("cdi-annotations")
    ((key, value),) = got.annotations.items()
    assert re.fullmatch(r"cdi\.k8s\.io/nvidia-device-plugin_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", key)
    assert value == NAMED
    assert got.cdi == ()
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_an_annotations_prefix_is_the_administrators():
    (key,) = answer("cdi-annotations", annotation_prefix="nvidia.cdi.k8s.io/").annotations
    assert key.startswith("nvidia.cdi.k8s.io/nvidia-device-plugin_")


def test_beside_another_strategy_the_variable_names_the_cards_as_that_one_does():
    assert answer("envvar", "cdi-cri").env["NVIDIA_VISIBLE_DEVICES"] == A
    assert answer("volume-mounts", "cdi-cri").env["NVIDIA_VISIBLE_DEVICES"] == "/var/run/nvidia-container-devices"
    assert answer(*PLAIN).cdi == ()


def test_every_card_is_named_once_and_then_what_was_switched_on():
    got = answer("cdi-cri", devices=gives(B) + gives(A), extras=("gds", "mofed"))
    words = [name.partition("/")[2] for name in got.cdi]
    assert words == [f"gpu={A}", f"gpu={B}", "gds=all", "mofed=all"]


def test_a_strategy_that_nobody_knows_is_refused_with_those_there_are():
    assert strategies(["envvar, cdi-cri", "cdi-annotations"]) == ("envvar", "cdi-cri", "cdi-annotations")
    assert strategies([""]) == ("envvar",)
    with pytest.raises(BadInput, match="'cdi': use envvar, volume-mounts, cdi-annotations, cdi-cri"):
        strategies(["cdi"])
