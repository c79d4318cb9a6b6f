"""``pumice diff`` of two journals against a second computation: lists of who came, started and ended, kept by whoever told it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit.objects import node, pod, queue
from kit.scheduler_confs import conf, sharing
from tests.property.test_journals import head_of

from pumice.adapters.segments import SUFFIX
from pumice.cli.journal_plays import as_it_was, told_of
from pumice.effects.vocabulary import Bind
from pumice.journal.freezing import freeze
from pumice.journal.recorder import Doorway, Notes
from pumice.journal.records import BLOCK, SNAPSHOT, encode, frame
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import BeginFile, Bound, Configure, DropPod, Put, PutPod
from pumice.simulation.outcome import Outcome, difference
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.volcano import Queue

PODS = int(os.environ.get("PUMICE_DIFF_PODS", "400"))
"""Of each day."""
NODES = (3, 5) if PODS <= 1000 else (7, 9)  # with three a backlog of thousands would be all that is played
CONF = conf("priority", "gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"))
CARD, WALL = 8000, 1_800_000_000.0


@dataclass
class Told:
    """What happened to one pod. Times are seconds since the journal's first cycle."""

    mib: int
    queue: str
    came: float
    started: float | None = None
    ended: float | None = None


@dataclass
class Day:
    """A day of a scheduler that keeps a journal of several files. Pods of few sizes come by chance, run for a while, and go."""

    folder: Path
    nodes: int
    seed: int
    pods: int = PODS
    told: dict[str, Told] = field(default_factory=dict)

    def play(self) -> None:
        rng, enter, blocks = Random(self.seed), Doorway(Engine()), list[bytes]()
        self.enter, self.rng, self.now, files = enter, Random(1), 0.0, 0
        enter.notes = notes = Notes(blocks.append, pytest.fail)
        enter(Configure(CONF, "test", False, None))
        for name in ("default", "other"):
            enter(Put("Queue", convert(Queue, queue(name))))
        for number in range(self.nodes):
            enter(Put("Node", convert(Node, node(f"n{number}", cards=2, mib=CARD))))
        content, ends = head_of(0, True), list[tuple[float, str]]()
        self.there: dict[str, Any] = {}
        self.cycle()
        for number in range(self.pods):
            self.now = round(self.now + rng.expovariate(1.0), 3)
            for at, name in sorted(end for end in ends if end[0] <= self.now):
                ends.remove((at, name))
                self.ends(name)
            self.comes(f"p{number}", rng.choice((2000, 4000, 8000)), rng.choice(("default", "other")))
            for name in self.cycle():
                ends.append((round(self.now + Random(f"{name} {self.seed}").expovariate(1 / 20), 3), name))
            if number % max(150, self.pods // 8) == 149:
                notes.flush()
                content += b"".join(frame(BLOCK, block) for block in blocks)
                (self.folder / f"{files:06}{SUFFIX}").write_bytes(content)
                files += 1
                blocks.clear()
                notes.folder.turn()
                enter(BeginFile())
                content = head_of(files, False) + frame(SNAPSHOT, encode(notes.folder.snapshot(freeze(enter.engine))))
        notes.flush()
        (self.folder / f"{files:06}{SUFFIX}").write_bytes(content + b"".join(frame(BLOCK, block) for block in blocks))

    def comes(self, name: str, mib: int, queue_name: str) -> None:
        self.there[name] = pod(name, mib=mib, queue=queue_name)
        self.told[name] = Told(mib, queue_name, self.now)
        self.put(name)

    def put(self, name: str) -> None:
        self.enter(PutPod(convert(Pod, self.there[name]), self.now))

    def cycle(self) -> list[str]:
        """Returns who was placed."""
        plan, placed = self.enter.cycle(self.now, self.rng, wall=WALL + self.now), []
        for bind in plan.effects:
            if isinstance(bind, Bind):
                self.enter(Bound(bind.uid))
                self.there[bind.name]["spec"]["nodeName"] = bind.node
                self.there[bind.name]["metadata"]["annotations"] |= bind.annotations
                self.told[bind.name].started = self.now
                self.put(bind.name)
                placed.append(bind.name)
        return placed

    def ends(self, name: str) -> None:
        self.there[name]["status"] = {"phase": "Succeeded"}
        self.put(name)
        self.told[name].ended = self.now
        self.enter(DropPod(convert(Pod, self.there.pop(name))))

    def outcome(self) -> Outcome:
        return as_it_was(told_of(self.folder), self.folder.name)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Day, Day]:
    """Two days with pods of the same names, one with more nodes."""
    found = []
    for name, nodes, seed in (("monday", NODES[0], 1), ("tuesday", NODES[1], 2)):
        day = Day(tmp_path_factory.mktemp(name), nodes, seed)
        day.play()
        found.append(day)
    return found[0], found[1]


def quantile(waits: list[float], part: float) -> float:
    return sorted(waits)[max(0, ceil(part * len(waits)) - 1)]


def test_starts_waits_and_hours_of_a_journal_are_those_that_were_counted_beside_it(days: tuple[Day, Day]) -> None:
    for day in days:
        found, told = day.outcome(), day.told
        assert not found.violations
        assert found.whole.pods == len(told)
        assert set(found.starts) == {f"default/{name}" for name, one in told.items() if one.started is not None}
        for name, one in told.items():
            if one.started is not None:
                assert found.starts[f"default/{name}"][0] == pytest.approx(one.started - one.came, abs=0.002)
        assert set(found.waits) == {f"default/{name}" for name, one in told.items() if one.started is None}
        for name in ("default", "other"):
            ours = [one for one in told.values() if one.queue == name]
            waits = [(one.started if one.started is not None else day.now) - one.came for one in ours]
            hours = sum(((one.ended or day.now) - one.started) / 3600 * one.mib / CARD for one in ours if one.started is not None)
            part = found.queues[name]
            assert (part.pods, part.placed) == (len(ours), sum(one.started is not None for one in ours))
            assert part.wait_p50 == pytest.approx(quantile(waits, 0.5), abs=0.002)
            assert part.wait_p99 == pytest.approx(quantile(waits, 0.99), abs=0.002)
            assert part.card_hours == pytest.approx(hours, abs=0.002)
        held = sum(part.card_hours for part in found.queues.values())
        assert found.idle_card_hours == pytest.approx(day.nodes * 2 * day.now / 3600 - held, abs=0.01)


def test_who_starts_sooner_later_or_never_is_found_by_comparing_two_lists(days: tuple[Day, Day]) -> None:
    monday, tuesday = (day.told for day in days)
    begun = time.process_time()
    found = difference(days[0].outcome(), days[1].outcome())
    print(f"{len(monday) + len(tuesday):,} pods of two journals compared in {time.process_time() - begun:.1f} s of CPU")

    def names(*kinds: str) -> dict[str, set[str]]:
        sets: dict[str, set[str]] = {kind: set() for kind in kinds}
        for name in monday:
            here, there = monday[name], tuesday[name]
            if here.started is None or there.started is None:
                if here.started is not there.started:
                    sets[kinds[0] if here.started is None else kinds[1]].add(f"default/{name}")
                continue
            gain = (here.started - here.came) - (there.started - there.came)
            if abs(gain) > 1:
                sets[kinds[2] if gain > 0 else kinds[3]].add(f"default/{name}")
        return sets

    wanted = names("placed_only_there", "placed_only_in_base", "sooner", "later")
    assert {kind: set(getattr(found, kind)) for kind in wanted} == wanted
    assert wanted["sooner"]
