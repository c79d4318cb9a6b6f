"""The NVML adapter on the emulated machine: each test runs a program, because a process meets one machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.machines import Programs
from kit.node_objects import facts

from pumice.ports.cards import LOST
from pumice_lab.machine import Machine, MachineError, create, library_dir, machine_of

PROGRAM = """
import json, sys
import msgspec
from pumice.adapters.nvml import NvmlCards
cards = NvmlCards()
facts = cards.facts()
troubles = cards.subscribe([card.uuid for card in facts])
def show(event=""):
    answers = {card.uuid: cards.answers(card.uuid) for card in facts}
    seen = {"facts": cards.facts(), "readings": cards.readings(), "events": cards.events(), "answers": answers,
            "troubles": troubles}
    print(json.dumps(seen, default=msgspec.to_builtins), flush=True)
show()
for line in sys.stdin:
    show()
cards.close()
"""


@pytest.fixture
def two_cards(tmp_path: Path) -> Iterator[Machine]:
    try:
        library_dir()
    except MachineError as error:
        pytest.skip(str(error))
    with create(machine_of("2xGeForce-GTX-1080-Ti", name="n1"), tmp_path / "machine") as machine:
        yield machine


class Watcher:
    """A program that meets the machine, and tells what it sees whenever it is asked."""

    def __init__(self, machine: Machine) -> None:
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=Programs(machine).environment, stdin=pipe, stdout=pipe, stderr=pipe,
            text=True,
        )  # fmt: skip

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.communicate()

    def first(self) -> Any:
        assert self._program.stdout is not None
        line = self._program.stdout.readline()
        assert line, self._program.communicate()[1]
        return json.loads(line)

    def look(self) -> Any:
        assert self._program.stdin is not None
        self._program.stdin.write("look\n")
        self._program.stdin.flush()
        return self.first()


def test_facts_and_readings_are_the_machines(two_cards):
    two_cards.set_stranger_memory(1, 1000)
    with Watcher(two_cards) as watcher:
        seen = watcher.first()
    assert [(c["index"], c["minor"], c["name"], c["memory"] >> 20, c["mig"]) for c in seen["facts"]] == [
        (0, 0, "NVIDIA GeForce GTX 1080 Ti", 11178, False),
        (1, 1, "NVIDIA GeForce GTX 1080 Ti", 11178, False),
    ]
    assert [r["memory_used"] >> 20 for r in seen["readings"]] == [0, 1000]
    assert list(seen["answers"].values()) == [True, True]


def test_a_lost_card_is_left_out_and_does_not_take_the_other_with_it(two_cards):
    two_cards.lose_card(0)
    with Watcher(two_cards) as watcher:
        seen = watcher.first()
    assert [c["index"] for c in seen["readings"]] == [1]
    assert all(seen["answers"].get(c["uuid"]) for c in seen["facts"] if c["index"] == 1)


def test_a_critical_error_names_its_card(two_cards):
    with Watcher(two_cards) as watcher:
        seen = watcher.first()
        two_cards.raise_xid(1, 79)
        later = watcher.look()
    assert later["events"] == [{"uuid": seen["facts"][1]["uuid"], "xid": 79, "text": ""}]


def test_a_card_that_is_lost_while_events_are_awaited_is_blamed_alone(two_cards):
    """The wait fails without naming a card; the other card's events still come afterwards."""
    with Watcher(two_cards) as watcher:
        first, second = (card["uuid"] for card in watcher.first()["facts"])
        two_cards.lose_card(0)
        later = watcher.look()
        assert later["events"] == [{"uuid": first, "xid": LOST, "text": ""}]
        assert later["answers"] == {first: False, second: True}
        assert watcher.look()["events"] == []
        two_cards.raise_xid(1, 48)
        assert watcher.look()["events"] == [{"uuid": second, "xid": 48, "text": ""}]


def test_an_error_of_a_card_that_tells_its_name_no_more_is_still_the_cards(two_cards):
    with Watcher(two_cards) as watcher:
        first, _ = (card["uuid"] for card in watcher.first()["facts"])
        two_cards.raise_xid(0, 79)
        two_cards.lose_card(0)
        assert {"uuid": first, "xid": 79, "text": ""} in (events := watcher.look()["events"])
        assert {event["uuid"] for event in events} == {first}


def test_places_and_links_are_the_models(tmp_path):
    try:
        library_dir()
    except MachineError as error:
        pytest.skip(str(error))
    base = machine_of("4xTesla-V100-SXM2-16GB", name="n1")
    wires = ((1, 1), (0, 0), (-1, -1), (-1, -1, -1))
    cards = tuple(replace(card, numa=i // 2, nvlinks=wires[i]) for i, card in enumerate(base.cards))
    with create(replace(base, cards=cards), tmp_path / "machine") as machine, Watcher(machine) as watcher:
        seen = watcher.first()["facts"]
    uuids = [card.uuid for card in cards]
    assert [c["numa"] for c in seen] == [0, 0, 1, 1]
    linked = [[(uuids.index(peer), width) for peer, width in c["links"]] for c in seen]
    assert linked == [[(1, 2)], [(0, 2)], [(3, 2)], [(2, 2)]]
    assert [(c.numa, c.links) for c in facts(cards)] == [
        (c["numa"], tuple((peer, width) for peer, width in c["links"])) for c in seen
    ], "hollow nodes say the same"


def test_without_a_driver_there_is_one_sentence(tmp_path):
    from pumice.adapters.nvml import NvmlCards
    from pumice.ports.cards import CardsUnavailable

    with pytest.raises(CardsUnavailable, match=r"cannot load .*/none\.so"):
        NvmlCards(tmp_path / "none.so")
