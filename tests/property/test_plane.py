"""The whole plane in one process, whatever befalls it: no container has what was not granted to it, nothing is booked twice, and
once the faults end everything that can run runs and all that ended is swept. ``make plane`` plays more of it.

``PUMICE_FAULTS`` sets how many faults are played. ``python -m tests.property.plane`` plays more, replays a seed, plants defects.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from kit import objects
from tests.property.history.registry import Op
from tests.property.history.runner import History, draw, replay, shrunk
from tests.property.plane.__main__ import CONFIGURATIONS, kept, planted
from tests.property.plane.defects import Defect, defects
from tests.property.plane.door import PlaneDoor
from tests.property.plane.loop import virtually
from tests.property.plane.processes import Process
from tests.property.plane.seen import STORM
from tests.property.plane.world import CONFS, conf_of
from tests.property.test_histories import first_seed, quiet

from pumice.ports.cluster import ApiError

__all__ = ["quiet"]
STEPS = 80


def played(faults: int, seed: int) -> Iterator[PlaneDoor]:
    """Play histories until so many faults met something; the first that breaks a promise fails the test."""
    doors: list[PlaneDoor] = []

    def door(conf: str, rng: object) -> PlaneDoor:
        doors.append(PlaneDoor(conf, rng))  # type: ignore[arg-type]
        return doors[-1]

    done = 0
    while done < faults:
        found = draw(seed, door, steps=STEPS, drive=virtually, conf=conf_of(seed))
        if found.complaints:
            pytest.fail(shrunk(found, door, drive=virtually).text(), pytrace=False)
        done += doors[-1].struck.faults
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


def test_whoever_writes_without_end_is_complained_of() -> None:
    """Each of the writes of one second counts, whoever else writes between."""
    door = PlaneDoor(conf_of(0), Random(1))
    writer, other = (SimpleNamespace(name=name) for name in ("plugin n0", "plugin n1"))
    with patch.object(door.clock, "monotonic", lambda: 1.0):
        for _ in range(STORM):
            door._written(other, "PATCH leases")
            door._written(writer, "PATCH nodes")
        with pytest.raises(ApiError):
            door._written(writer, "PATCH nodes")
    assert [complaint.promise for complaint in door.checker.complaints] == ["storm"]


def test_a_crash_that_is_made_smaller_stays_that_crash() -> None:
    """What is left out here makes another crash: a history that ends by that one is no shorter story of the first."""

    class Raises(PlaneDoor):
        ran: tuple[Op, ...] = ()

        async def begin(self) -> None:
            pass

        async def look(self) -> None:
            pass

        async def end(self) -> None:
            shutil.rmtree(self.root)

        async def perform(self, op: Op) -> None:
            self.ran += (op,)
            if op["do"] == "first" and len(self.ran) == 2:
                raise KeyError("the one")
            if op["do"] == "first":
                raise ValueError("another")

    story = History(1, conf_of(0), (("the beginning", []), ("before", [{"do": "before"}]), ("after", [{"do": "first"}])))
    found = replay(story, Raises)
    assert found.complaints[0].text.startswith("KeyError at test_plane.py:")
    assert [name for name, ops in shrunk(found, Raises).steps if ops] == ["before", "after"]


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


@pytest.mark.usefixtures("quiet")
def test_a_server_of_mps_lets_a_container_begin_whose_annotations_took_long_to_be_written() -> None:
    pods = [objects.pod(f"p{at}", mib=16000) for at in range(4)]  # one for each card that is shared
    for pod in pods:
        pod["metadata"] = {key: pod["metadata"][key] for key in ("name", "namespace", "annotations", "labels")}
        del pod["status"]
    steps: list[tuple[str, list[Op]]] = [("the beginning", []), ("pods come", [
        {"do": "fault", "process": "kubelet n1", "only": "PATCH pods status", "code": 500, "count": 1, "done": True},
        {"do": "fault", "process": "plugin n1", "only": "PATCH pods status", "code": 0, "count": 5, "done": True},
        *({"do": "create", "resource": "pods", "object": pod} for pod in pods), {"do": "wait", "seconds": 60.0}])]  # fmt: skip
    doors: list[PlaneDoor] = []

    def door(conf: str, rng: Random) -> PlaneDoor:
        doors.append(PlaneDoor(conf, rng))
        return doors[-1]

    found = replay(History(7, "cards shared by MPS", tuple(steps)), door, drive=virtually)
    assert doors[-1].struck["0 done", "PATCH pods status"] >= 2
    assert not found.complaints, found.text()


@pytest.mark.parametrize("defect", defects(), ids=lambda defect: defect.name)
def test_a_planted_defect_still_has_its_line_and_can_be_loaded(defect: Defect) -> None:
    spec = importlib.util.find_spec(defect.module)
    assert spec is not None
    assert spec.origin is not None
    assert compile(defect.broken(Path(spec.origin).read_text("utf-8")), spec.origin, "exec")


def test_there_are_four_planted_defects_of_each_part() -> None:
    parts = Counter(defect.part for defect in defects())
    assert {part for part, number in parts.items() if number >= 4} >= {
        "ledger", "lease", "plugin", "slices", "limits page", "queue", "gangs", "releases"}  # fmt: skip
    assert parts.total() >= 30


def test_what_is_kept_of_planted_defects_is_of_these() -> None:
    assert kept().keys() <= {defect.name for defect in defects()}
    assert sum(bool(result["judge"]) for result in kept().values()) >= 15


def test_a_sample_of_planted_defects_is_found_by_the_seeds_that_are_kept() -> None:
    """From its seed on, under its configuration: a later kind of step may have changed that one history."""
    assert len(CONFS) == CONFIGURATIONS
    rows = {name: row for name, row in sorted(kept().items()) if "every" in row}
    seed = first_seed()
    for name in Random(seed).sample(sorted(rows), min(2, len(rows))):
        found, said = planted(name, rows[name]["seed"], 400, rows[name]["every"])
        assert found, f"sample of seed {seed}: {name} is not found from seed {rows[name]['seed']} on: {said}"
