"""Probes end when their container does."""

from __future__ import annotations

import asyncio
from typing import Any

from pumice.ports.clock import SystemClock
from pumice_lab.kubelet.probes import make_probe, watch_probe


class Command:
    """A probe's command that ends when ``end`` is set."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def exec(self, *_: Any, **__: Any) -> Command:
        return self

    async def read(self) -> None:
        await self.end.wait()

    async def wait(self) -> int:
        return 0

    def kill(self) -> None:
        pass


def test_a_probe_that_is_stopped_in_the_moment_of_its_answer_is_stopped():
    """It went on for ever, and its failures restarted the container's successor."""

    async def story(turns: int) -> None:
        command, reported = Command(), []
        probe = {"exec": {"command": ["true"]}, "periodSeconds": 0.001}
        attempt = make_probe(probe, {}, "127.0.0.1", command, "container")  # type: ignore[arg-type]
        task = asyncio.create_task(watch_probe(probe, attempt, SystemClock(), lambda *result: reported.append(result)))
        await asyncio.sleep(0.01)
        command.end.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()

    for turns in range(6):
        asyncio.run(story(turns))
