"""While many Bindings are on their way, events and status leave the API server to them, and are written all the same."""

from __future__ import annotations

import asyncio
import random

from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.status_writer import GIVE_WAY, GIVE_WAY_AT_MOST, StatusWriter
from pumice.engine.effects import Event
from pumice.ports.cluster import Json, Resource


class Recorder:
    """Remembers when each object was created."""

    def __init__(self) -> None:
        self.moments: list[float] = []

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
