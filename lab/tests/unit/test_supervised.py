"""A daemon that fails comes up again, and one that is told to stop does not."""

from __future__ import annotations

import asyncio
import logging

from kit.virtual_time import VirtualClock, run_virtually

from pumice.model.errors import Unavailable
from pumice_lab.node_agent import RESTART_SECONDS, supervised

log = logging.getLogger("pumice.test")


def test_whatever_a_daemon_fails_of_is_said_and_it_is_started_again(caplog):
    async def act() -> list[float]:
        clock, began = VirtualClock(), []

        async def daemon() -> None:
            began.append(clock.monotonic())
            if len(began) == 1:
                raise Unavailable("no driver yet")
            if len(began) == 2:
                raise ValueError("a fault of ours")

        await supervised("plugin", daemon, stop=asyncio.Event(), clock=clock, log=log)
        return began

    assert run_virtually(act()) == [0.0, RESTART_SECONDS, 2 * RESTART_SECONDS]
    assert [record.message for record in caplog.records] == ["plugin: no driver yet", "plugin failed"]


def test_a_stop_ends_the_pause_before_the_next_start():
    async def act() -> int:
        stop, starts = asyncio.Event(), 0

        async def daemon() -> None:
            nonlocal starts
            starts += 1
            stop.set()
            raise Unavailable("on its way out")

        await supervised("plugin", daemon, stop=stop, clock=VirtualClock(), log=log)
        return starts

    assert run_virtually(act()) == 1
