"""In HAMi's mode the driver creates every booked slice: every grant over an inventory that a plugin advertises is served
(Volcano pkg/scheduler/api/devices/ascend/hami, Volcano pkg/scheduler/api/devices/ascend/mindcluster, Huawei's table of 310P
templates)."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.device_world import TinyLedger
from kit.npu_nodes import npu_machine
from kit.npu_world import chip, npu_limits, npu_node, npu_pod
from kit.seeds import chosen_seed

from pumice.devices.ascend_hami.scheduling import AscendHami
from pumice.devices.protocol import Fit
from pumice.devices.settings import Settings
from pumice.model.hardware.npu import NpuChip
from pumice.model.refusal import FitError
from pumice.wire.npu_config import shipped

SEED = chosen_seed()
CHIPS, STEPS = 2, 400
SERVE = """
import json, sys
from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.ports.slices import NpuRefused
cards, driver = [card.uuid for card in DcmiCards().facts()], DcmiVnpus()
made, refused = {{}}, []
for pod, card, template in json.loads('''{steps}'''):
    if pod in made:
        driver.destroy(*made.pop(pod))
        continue
    try:
        made[pod] = cards[card], driver.make(cards[card], template)
    except NpuRefused as error:
        refused.append([pod, template, str(error), [s.template for s in driver.list(cards[card])]])
print(json.dumps(refused))
"""
"""A pod's second step ends it."""


def of_chip(kind: NpuChip, policy: str = "binpack") -> TinyLedger:
    books = TinyLedger(AscendHami(kind, Settings(policy=policy)))
    books.add_node(npu_node("n1", kind, CHIPS))
    return books


def life(kind: NpuChip, rng: random.Random) -> list[tuple[str, int, str]]:
    """Pods come and go by the device type's usage; each that holds a slice is a step when it comes, and one when it goes."""
    books, there, steps = of_chip(kind, rng.choice(("binpack", "spread", ""))), [], []
    for number in range(STEPS):
        if there and rng.random() < 0.45:
            pod = there.pop(rng.randrange(len(there)))
        else:
            pod = npu_pod(f"p{number}", npu_limits(kind, 1, rng.choice([t.memory for t in kind.templates])))
            if not isinstance(books.place(pod, "n1"), Fit):
                continue
            there.append(pod)
        (container_device,) = books.allocated[pod.metadata.uid][1].container_devices
        assert container_device.slot is not None
        steps.append((pod.metadata.name, container_device.card, container_device.slot.profile))
        if pod not in there:
            books.leave(pod)
    return steps


def refused(kind: NpuChip, steps: list[tuple[str, int, str]], folder: Path) -> Any:
    return npu_machine(folder, *[kind.name] * CHIPS).python(SERVE.format(steps=json.dumps(steps)))


FULL = replace(chip("310P3"), memory=24576)
"""All of the chip's memory is given to pods: four vir02 fit by it, and want eight AI CPUs of seven."""


@pytest.mark.parametrize("kind", [*shipped().chips, FULL], ids=lambda kind: f"{kind.word}-{kind.memory}")
def test_every_slice_that_was_booked_is_made(kind: NpuChip, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED}{kind.word}{kind.memory}")
    steps = life(kind, rng)
    assert len(steps) > STEPS / 4
    assert refused(kind, steps, tmp_path / "machine") == [], f"seed {SEED}"


@pytest.mark.parametrize(
    ("kind", "memories", "short"),
    [
        (FULL, (6144,) * 4, "wants 2 AI CPUs, 1 are free"),
        (chip("910B2"), (8192,) * 7, "wants 1 AI CPUs, 0 are free"),
        (chip("310P3"), (3072, 3072, 3072, 12288), "wants 2 vGroups, 1 are free"),
        (FULL, (12288, 6144, 6144), "wants 2 AI CPUs, 1 are free"),
    ],
)
def test_what_the_driver_would_refuse_is_not_booked(kind: NpuChip, memories: tuple[int, ...], short: str) -> None:
    books = of_chip(kind)
    card = {"hami.io/use-" + kind.word + "-uuid": "U1"}
    *fitting, last = [npu_pod(f"p{at}", npu_limits(kind, 1, memory), annotations=card) for at, memory in enumerate(memories)]
    assert all(isinstance(books.place(pod, "n1"), Fit) for pod in fitting)
    found = books.try_pod(last, "n1")
    assert isinstance(found, FitError)
    assert short in {card.text for card in found.cards}


def test_slices_that_were_cut_by_an_older_configuration_still_take_their_units():
    """Two vir04 by a configuration that no longer names them: their AI CPUs are gone all the same."""
    before, books = chip("310P3"), of_chip(replace(FULL, templates=FULL.templates[:1]))
    notes = {
        "hami.io/Ascend310P-devices-allocated": "U1,Ascend310P,12288,0:;", "hami.io/vgpu-node": "n1",
        "huawei.com/Ascend310P": '[{"UUID":"U1","temp":"vir04"}]',
    }  # fmt: skip
    running = npu_pod("old", npu_limits(before, 1, 12288), annotations=notes, node="n1", status={"phase": "Running"})
    allocation = books.replay(running, "n1")
    assert [container_device.slot.profile for container_device in allocation.container_devices] == ["vir04"]
    more = [npu_pod(f"p{at}", npu_limits(before, 1, 3072), annotations={"hami.io/use-Ascend310P-uuid": "U1"}) for at in range(4)]
    assert [isinstance(books.place(pod, "n1"), Fit) for pod in more] == [True, True, True, False]
