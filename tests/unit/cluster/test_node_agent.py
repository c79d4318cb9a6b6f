"""A node's agent ends when a part of it ends that nobody else would start again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pumice.apps.monitor import daemon as monitor
from pumice.apps.node import vgpu_plugin
from pumice.cluster import node_agent
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, WatchEvent


class Watched:
    """Gives these events, then waits for ever or is refused."""

    def __init__(self, *events: WatchEvent, refused: bool = False) -> None:
        self._events, self._refused = events, refused

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
        for event in self._events:
            yield event
        if self._refused:
            raise ApiError(403, "Forbidden", "configmaps is forbidden")
        await asyncio.Event().wait()


def run(cluster: Watched, tmp_path: Path, stop: asyncio.Event) -> asyncio.Task[None]:
    settings = node_agent.AgentSettings("n1", "127.0.0.1", str(tmp_path), "", str(tmp_path))
    return asyncio.create_task(node_agent.run(settings, cluster=cluster, clock=SystemClock(),  # type: ignore[arg-type]
                                              dice=random.Random(1), stop=stop))  # fmt: skip


@pytest.fixture(autouse=True)
def _idle_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    async def idle(*_: Any, stop: asyncio.Event, **__: Any) -> None:
        await stop.wait()

    monkeypatch.setattr(monitor, "run", idle)
    monkeypatch.setattr(vgpu_plugin, "run", idle)


def test_an_agent_that_may_not_follow_the_configuration_says_so_instead_of_waiting_for_ever(tmp_path):
    async def story() -> None:
        with pytest.raises(ApiError, match="configmaps is forbidden"):
            await asyncio.wait_for(run(Watched(refused=True), tmp_path, asyncio.Event()), 30)

    asyncio.run(story())


def test_an_agent_that_is_stopped_ends(tmp_path):
    async def story(turns: int) -> None:
        stop = asyncio.Event()
        running = run(Watched(WatchEvent("SYNCED", b"")), tmp_path, stop)
        for _ in range(turns):
            await asyncio.sleep(0)
        stop.set()
        await asyncio.wait_for(running, 30)

    for turns in range(10):
        asyncio.run(story(turns))
