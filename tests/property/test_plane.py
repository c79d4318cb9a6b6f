"""The whole plane in one process, whatever befalls it: no container has what was not granted to it, nothing is booked twice, and
once the faults end everything that can run runs and all that ended is swept. ``make plane`` plays more of it.

``PUMICE_FAULTS`` sets how many faults are played. ``python -m tests.property.plane`` plays more, replays a seed, plants defects.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.property.history.runner import draw, shrunk
from tests.property.plane.__main__ import FOUND
from tests.property.plane.defects import Defect, defects
from tests.property.plane.door import PlaneDoor
from tests.property.plane.loop import virtually
from tests.property.plane.processes import Process
from tests.property.plane.world import conf_of
from tests.property.test_histories import first_seed, quiet

__all__ = ["quiet"]
STEPS = 40


def played(faults: int, seed: int) -> Iterator[PlaneDoor]:
    """Play histories until so many faults struck or could have; the first that breaks a promise fails the test."""
    doors: list[PlaneDoor] = []

    def door(conf: str, rng: object) -> PlaneDoor:
        doors.append(PlaneDoor(conf, rng))  # type: ignore[arg-type]
        return doors[-1]

    done = 0
    while done < faults:
        found = draw(seed, door, steps=STEPS, drive=virtually, conf=conf_of(seed))
        if found.complaints:
            pytest.fail(shrunk(found, door, drive=virtually).text(), pytrace=False)
        done += doors[-1].faults
        yield doors[-1]
        doors.clear()
        seed += 1


@pytest.mark.usefixtures("quiet")
def test_no_history_of_the_whole_plane_breaks_a_promise() -> None:
    doors = list(played(int(os.environ.get("PUMICE_FAULTS", "60")), first_seed()))
    assert sum(len(door.given) for door in doors) > 10, "hardly a pod got a node: nothing was tried"
    assert sum(door.struck.total() for door in doors) > 2, "hardly a fault met an effect"


@pytest.mark.soak
@pytest.mark.usefixtures("quiet")
def test_ten_thousand_faults_on_the_whole_plane_break_no_promise() -> None:
    struck = [door.struck for door in played(10_000, first_seed())]
    assert sum(one.total() for one in struck) > 500


@pytest.mark.usefixtures("quiet")
def test_a_seed_plays_the_same_story_each_time() -> None:
    seen = []

    class Watched(PlaneDoor):
        async def end(self) -> None:
            events = self.api.storage._history  # every change with its revision
            seen.append([(event.revision, event.change, event.stored.resource, event.stored.name) for event in events])
            await super().end()

    for _ in range(2):
        draw(11, Watched, steps=12, drive=virtually, conf=conf_of(11))
    assert len(seen[0]) > 50
    assert seen[0] == seen[1]


def test_a_process_that_is_supervised_while_it_ends_has_ended() -> None:
    async def run(connection: object, clock: object, rng: object, stop: asyncio.Event) -> None:
        await stop.wait()

    async def story() -> None:
        process = Process("one", None, run, Random(1), Counter(), lambda connection, effect: None)
        process.start()
        await asyncio.sleep(0)
        ending = asyncio.create_task(process.end())
        while process.task is not None:
            await asyncio.sleep(0)
            process.supervise(0.0)
        await ending
        assert not process.alive

    asyncio.run(story())


@pytest.mark.parametrize("defect", defects(), ids=lambda defect: defect.name)
def test_a_planted_defect_still_has_its_line(defect: Defect) -> None:
    spec = importlib.util.find_spec(defect.module)
    assert spec is not None
    assert spec.origin is not None
    assert defect.broken(Path(spec.origin).read_text("utf-8"))


def test_there_are_four_planted_defects_of_each_part() -> None:
    parts = Counter(defect.part for defect in defects())
    assert {part for part, number in parts.items() if number >= 4} >= {
        "ledger", "lease", "plugin", "slices", "limits page", "queue", "gangs", "releases"}  # fmt: skip
    assert parts.total() >= 30


def test_what_is_kept_of_planted_defects_is_of_these() -> None:
    kept = json.loads(FOUND.read_text("utf-8"))
    assert kept.keys() <= {defect.name for defect in defects()}
    assert sum(bool(result["judge"]) for result in kept.values()) >= 15
