"""Daemons that are started again: one fault of theirs must not take the cluster or the node down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pumice.effects.tasks import first
from pumice.model.errors import PumiceError
from pumice.ports.clock import Clock

RESTART_SECONDS = 1.0


async def supervised(
    name: str, start: Callable[[], Awaitable[None]], *, stop: asyncio.Event, clock: Clock, log: logging.Logger
) -> None:
    """Run a daemon until it returns or ``stop``; one that fails is started again a little later, and ``log`` says why."""
    while not stop.is_set():
        try:
            await start()
            return
        except PumiceError as error:
            log.error("%s: %s", name, error)
        except Exception:
            log.exception("%s failed", name)
        await first(stop.wait(), clock.sleep(RESTART_SECONDS))
