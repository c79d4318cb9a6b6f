"""The usage of one card that has one partition at a time."""

from __future__ import annotations

from pumice.devices.protocol import Inventory
from pumice.model.cards import Allocation, Card, ContainerDevice, Slot
from pumice.scheduler.state.node_devices import NodeDevices


def held(group: str, number: int) -> Allocation:
    return Allocation("f", "n", ((ContainerDevice(0, "c", 1, 0, 1, Slot(group, number)),),))


def test_a_place_that_is_promised_in_another_cut_changes_no_cut_before_the_holder_is_gone() -> None:
    devices = NodeDevices.empty("n", Inventory((Card(0, "c", "kind", 7, 7),)))
    devices.charge("holder", held("halves", 1))
    devices.charge("claimant", held("sevenths", 0))
    assert devices.usages[0].group == "halves"
    devices.discharge("holder")
    assert (devices.usages[0].group, devices.usages[0].slots) == ("sevenths", frozenset({0}))
