"""While many Bindings are on their way, events and status leave the API server to them, and are written all the same."""

from __future__ import annotations

import asyncio
import random

from tests.kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.status_writer import GIVE_WAY, GIVE_WAY_AT_MOST, StatusWriter
from pumice.engine.effects import Event
from pumice.ports.cluster import Json, Resource


class Recorder:
    """Remembers when each object was created."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    async def create(self, resource: Resource, obj: Json, namespace: str = "") -> Json:
        self.moments.append(VirtualClock().monotonic())
        return obj


def write_an_event(busy_until: float) -> float:
    """When it is written, in seconds after it was put."""
    cluster = Recorder()

    async def story() -> None:
        clock = VirtualClock()
        writer = StatusWriter(cluster, clock, random.Random(1), busy=lambda: clock.monotonic() < busy_until)  # type: ignore[arg-type]
        running = asyncio.create_task(writer.run())
        writer.put(Event("Pod", "v1", "default", "p", "u", "Normal", "Scheduled", "assigned"))
        await writer.drain(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(story())
    return cluster.moments[0]


def test_an_event_waits_until_the_bindings_are_out() -> None:
    assert 0.5 <= write_an_event(busy_until=0.5) <= 0.5 + 2 * GIVE_WAY


def test_under_lasting_load_it_is_written_all_the_same() -> None:
    assert GIVE_WAY_AT_MOST <= write_an_event(busy_until=30.0) <= GIVE_WAY_AT_MOST + 2 * GIVE_WAY


def test_without_bindings_it_is_written_at_once() -> None:
    assert write_an_event(busy_until=0.0) == 0.0
