"""Hollow nodes are what the plugin would have left."""

from kit.node_objects import facts

from pumice.devices.nvidia_vgpu.node.inventory import hollow_node
from pumice.wire import names
from pumice.wire.nvidia_vgpu import parse_register
from pumice_lab.machine import machine_of


def test_a_hollow_node_says_what_the_plugin_would_say():
    model = machine_of("8xTesla-V100-SXM2-16GB", name="n7")
    node = hollow_node("n7", facts(model.cards))
    register = parse_register(node["metadata"]["annotations"][names.NODE_VGPU_REGISTER])
    assert register.problems == ()
    assert [(c.uuid, c.total, c.shares, c.type) for c in register.cards] == [
        (card.uuid, 16384, 10, "NVIDIA-Tesla V100-SXM2-16GB") for card in model.cards
    ]
    counted = {key: node["status"]["allocatable"][key] for key in (names.VGPU_NUMBER, names.VGPU_MEMORY, names.VGPU_CORES)}
    assert counted == {names.VGPU_NUMBER: "80", names.VGPU_MEMORY: "131072", names.VGPU_CORES: "800"}


def test_a_node_without_cards_advertises_none():
    node = hollow_node("n0", ())
    assert node["metadata"]["annotations"] == {}
    assert names.VGPU_NUMBER not in node["status"]["allocatable"]
