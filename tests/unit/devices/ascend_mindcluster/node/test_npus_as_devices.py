"""NPUs as devices of claims: what the counters let through the chip's driver makes, in whatever order, and little is left out."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from random import Random
from typing import Any

import pytest

from pumice.claims.objects import slice_of
from pumice.claims.slices import Node, Slices
from pumice.devices.ascend_hami.inventory import units_of
from pumice.devices.ascend_mindcluster.node.claims import counters, parts, slice_specs
from pumice.model.hardware.npu import driver_chips
from pumice.node.claims import owner_of, slice_object
from pumice.ports.cards import CardFacts
from pumice.wire.npu_config import shipped

CHIPS = [chip for chip in shipped().chips if chip.name in driver_chips()]


def card(name: str, at: int = 0) -> CardFacts:
    return CardFacts(at, f"U-{at}", name, driver_chips()[name].size.memory << 20, minor=at, bus_id="0000:C1:00.0")


def fits(name: str, templates: tuple[str, ...]) -> bool:
    """By the counters, and by the devices that there are: the first of each template."""
    drawn: Counter[str] = Counter()
    for template, many in Counter(templates).items():
        devices = [part.drawn for part in parts(card(name)) if part.template == template]
        if len(devices) < many:
            return False
        for device in devices[:many]:
            drawn.update(device)
    return all(drawn[counter] <= most for counter, most in counters(driver_chips()[name]).items())


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_what_the_counters_allow_the_driver_makes_in_any_order(chip: Any) -> None:
    units, rng = units_of(chip), Random(5)
    templates = [name for name, _ in driver_chips()[chip.name].templates]
    tried = lost = 0
    for many in range(1, 9):
        for these in combinations_with_replacement(templates, many):
            order = rng.sample(these, many)
            made = all(units.missing(template, order[:at]) is None for at, template in enumerate(order))
            tried += fits(chip.name, these)
            assert made or not fits(chip.name, these), order
            lost += made and not fits(chip.name, these)
    assert tried >= len(templates)
    if chip.name != "310P3":  # whose driver may make five slices, some of several AI cores, in one order and not in another
        assert lost == 0


def test_a_310p_gives_seven_slices_of_one_core_or_four_of_which_some_have_several() -> None:
    assert fits("310P3", ("vir01",) * 7)
    assert not fits("310P3", ("vir01",) * 8)
    assert fits("310P3", ("vir01",) * 3 + ("vir02",))
    assert not fits("310P3", ("vir01",) * 4 + ("vir02_1c",))


def test_whichever_devices_of_a_310p_are_free_what_their_counters_allow_is_made_in_any_order() -> None:
    """A history of claims leaves any of the devices of a template, not the first ones."""
    name, rng = "310P3", Random(7)
    units, most = units_of(next(chip for chip in CHIPS if chip.name == name)), counters(driver_chips()[name])
    longest = 0
    for _ in range(3000):
        drawn: Counter[str] = Counter()
        taken: list[str] = []
        devices = parts(card(name))[1:]
        rng.shuffle(devices)
        if rng.random() < 0.5:
            devices.sort(key=lambda one: one.template != "vir01")
        for device in devices:
            if all(drawn[counter] + device.drawn.get(counter, 0) <= there for counter, there in most.items()):
                drawn.update(device.drawn)
                taken.append(device.template)
        rng.shuffle(taken)
        assert all(units.missing(template, taken[:at]) is None for at, template in enumerate(taken)), taken
        longest = max(longest, len(taken))
    assert longest == 7


def test_a_node_of_eight_chips_is_a_pool_that_the_api_server_takes_and_a_scheduler_reads() -> None:
    specs = slice_specs("n1", [card("310P3", at) for at in range(8)], {"U-3": ["npu.pumice.io/unhealthy"]}, 7)
    objects = [slice_object(spec, at, owner_of("n1", "u"), 7) for at, spec in enumerate(specs)]
    parts = [*(one["spec"].keys() & {"devices", "sharedCounters"} for one in objects)]
    assert parts == [{"sharedCounters"}, {"devices"}, {"devices"}, {"devices"}]
    assert all(len(one["spec"].get("devices", ())) <= 64 and len(one["spec"].get("sharedCounters", ())) <= 8 for one in objects)
    (pool,) = Slices(map(slice_of, objects)).pools_of(Node("n1", {}))
    assert pool.problem == ""
    devices = [device for one in objects for device in one["spec"].get("devices", ())]
    assert len(devices) == 8 * 21
    tainted = {device["name"].split("-")[1] for device in devices if "taints" in device}
    assert tainted == {"3"}
    whole, slice_ = devices[0], devices[8]
    assert whole["attributes"] == {
        "type": {"string": "npu"}, "uuid": {"string": "U-0"}, "productName": {"string": "310P3"}, "physicalID": {"int": 0},
        "chipName": {"string": "Ascend310P-0"}, "resource.kubernetes.io/pciBusID": {"string": "0000:c1:00.0"}}  # fmt: skip
    assert whole["capacity"] == {"memory": {"value": str(24 << 30)}, "aiCores": {"value": "8"}, "aiCPUs": {"value": "7"}}
    assert slice_["name"] == "npu-0-vir02-0"
    assert slice_["attributes"]["template"] == {"string": "vir02"}
    assert slice_["consumesCounters"] == [{"counterSet": "npu-0-counter-set", "counters": {
        name: {"value": str(amount)} for name, amount in
        {"memory": 6 << 30, "ai-cores": 2, "ai-cpus": 2, "jpegd": 4, "jpege": 2, "vpc": 3, "vdec": 3, "venc": 1,
         "vgroups": 1, "beside-vir02-0": 3}.items()
    }}]  # fmt: skip


def test_a_chip_that_is_not_known_is_not_published() -> None:
    assert slice_specs("n1", [CardFacts(0, "U", "950", 1 << 30, minor=0)], {}, 1)[0]["devices"] == []
