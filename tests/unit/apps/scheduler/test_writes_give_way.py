"""While many Bindings are on their way, events and status leave the API server to them, and are written all the same."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.status_writer import GIVE_WAY, GIVE_WAY_AT_MOST, LAST_WORD, STANDS, StatusWriter
from pumice.effects.vocabulary import Event, GroupStatus
from pumice.ports.cluster import Json, Resource


class Recorder:
    """Remembers when each object was created."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        self.phases: list[str] = []

    async def patch(self, resource: Resource, name: str, body: Json, namespace: str = "", **how: Any) -> Json:
        self.moments.append(VirtualClock().monotonic())
        self.phases.append(body["status"]["phase"])
        await VirtualClock().sleep(0.01)
        return {}

    async def create(self, resource: Resource, obj: Json, namespace: str = "") -> Json:
        self.moments.append(VirtualClock().monotonic())
        return obj


def write(events: int, busy_until: float) -> list[float]:
    """When each is written, in seconds after all were put."""
    cluster = Recorder()

    async def story() -> None:
        clock = VirtualClock()
        writer = StatusWriter(cluster, clock, random.Random(1), busy=lambda: clock.monotonic() < busy_until)  # type: ignore[arg-type]
        running = asyncio.create_task(writer.run())
        for i in range(events):
            writer.put(Event("Pod", "v1", "default", f"p{i}", f"u{i}", "Normal", "Scheduled", "assigned"))
        await writer.drain(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(story())
    assert len(cluster.moments) == events
    return cluster.moments


def test_few_events_pass_while_many_bindings_are_on_their_way() -> None:
    moments = write(1000, busy_until=2.0)
    during = sum(at < 2.0 for at in moments)
    assert 0.4 * 2.0 / GIVE_WAY <= during <= 2.0 / GIVE_WAY
    assert moments[-1] <= 2.0 + 2 * GIVE_WAY


def test_under_lasting_load_all_are_written() -> None:
    moments = write(2000, busy_until=60.0)
    assert GIVE_WAY_AT_MOST <= moments[-1] <= GIVE_WAY_AT_MOST + 1.0


def test_without_bindings_they_are_written_at_once() -> None:
    assert write(10, busy_until=0.0) == [0.0] * 10


def statuses(*phases: str, groups: int = 1) -> Recorder:
    """Each group's phases, put one after the other while Bindings are on their way all the time."""
    cluster = Recorder()

    async def story() -> None:
        writer = StatusWriter(cluster, VirtualClock(), random.Random(1), busy=lambda: True)  # type: ignore[arg-type]
        running = asyncio.create_task(writer.run())
        for phase in phases:
            for i in range(groups):
                writer.put(GroupStatus("default", f"g{i}", phase, (), 0, 0, 0))
            await VirtualClock().sleep(0.005)
        await writer.drain(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(story())
    return cluster


def test_a_group_whose_pods_may_be_made_is_told_so_whatever_is_on_its_way() -> None:
    assert max(statuses("Inqueue", groups=320).moments) < 0.2, "its Bindings come only after that"
    assert max(statuses("Running", groups=320).moments) > 1.0


def test_no_older_phase_of_a_group_overtakes_a_newer_one() -> None:
    assert statuses("Inqueue", "Running").phases == ["Inqueue", "Running"]
    assert statuses("Running", "Inqueue", "Running").phases[-1] == "Running"


def last_words(*then: str, goes_after: float = 60.0) -> Recorder:
    """A group that has ended, what is said of it a second later, and when it goes."""
    cluster = Recorder()

    async def story() -> None:
        clock = VirtualClock()
        writer = StatusWriter(cluster, clock, random.Random(1))  # type: ignore[arg-type]
        running = asyncio.create_task(writer.run())
        writer.put(GroupStatus("default", "g", "Completed", (), 0, 1, 0))
        await clock.sleep(1.0)
        for phase in then:
            writer.put(GroupStatus("default", "g", phase, (), 0, 2, 0))
        await clock.sleep(goes_after - 1.0)
        writer.forget_group("default", "g")
        await clock.sleep(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await writer.flush(1.0)

    run_virtually(story())
    return cluster


def test_the_status_of_a_group_that_has_ended_is_not_written_where_the_group_goes() -> None:
    assert last_words(goes_after=3.0).phases == []


def test_the_status_of_a_group_that_has_ended_and_stays_is_written_once() -> None:
    cluster = last_words("Completed")
    assert (cluster.phases, cluster.moments) == (["Completed"], [LAST_WORD])


def test_a_group_that_lives_again_is_said_to_at_once() -> None:
    cluster = last_words("Unknown")
    assert (cluster.phases, cluster.moments) == (["Unknown"], [1.0])


def test_one_write_tells_that_a_group_stands_and_that_its_pods_run() -> None:
    cluster = Recorder()

    async def story() -> None:
        clock = VirtualClock()
        writer = StatusWriter(cluster, clock, random.Random(1))  # type: ignore[arg-type]
        running = asyncio.create_task(writer.run())
        for pods in (0, 1):
            writer.put(GroupStatus("default", "g", "Running", (), pods, 0, 0))
            await clock.sleep(0.5)
        await clock.sleep(5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(story())
    assert (cluster.phases, cluster.moments) == (["Running"], [STANDS])


def test_events_give_way_to_many_groups_that_are_let_in() -> None:
    cluster = Recorder()

    async def story() -> None:
        clock = VirtualClock()
        writer = StatusWriter(cluster, clock, random.Random(1))  # type: ignore[arg-type]
        running = asyncio.create_task(writer.run())
        for number in range(100):
            writer.put(GroupStatus("default", f"g{number}", "Inqueue", (), 0, 0, 0))
            for word in "abcd":
                writer.put(Event("Pod", "v1", "default", f"p{number}", f"u{number}", "Normal", "Scheduled", word))
            await clock.sleep(0.02)
        assert len(cluster.phases) == 100
        events = len(cluster.moments) - 100
        assert events <= 2.0 / GIVE_WAY + 4 * 8, "all of the first eight"
        await writer.drain(60)
        assert len(cluster.moments) == 500
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(story())


def test_a_writer_that_ends_writes_the_last_words_at_once() -> None:
    cluster = Recorder()

    async def story() -> None:
        writer = StatusWriter(cluster, VirtualClock(), random.Random(1))  # type: ignore[arg-type]
        writer.put(GroupStatus("default", "g", "Completed", (), 0, 1, 0))
        await writer.flush(1.0)

    run_virtually(story())
    assert cluster.moments == [0.0]
