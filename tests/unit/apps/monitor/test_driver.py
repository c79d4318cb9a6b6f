"""The monitor's calls of the driver, while page and feedback read at once."""

from __future__ import annotations

import asyncio
from typing import Any

from pumice.apps.monitor.reader import DriverWatch, Look
from pumice.ports.cards import CardsUnavailable
from pumice.ports.clock import SystemClock


def no_cards() -> Any:
    raise CardsUnavailable("there are none")


def test_who_looks_beside_another_is_answered_though_that_one_asks_again_at_once() -> None:
    async def story() -> list[Look]:
        watch = DriverWatch(no_cards, None, SystemClock())

        async def twice() -> Look:
            await watch.look(max_age=-1)
            return await watch.look(max_age=-1)

        try:
            return await asyncio.gather(*(twice() for _ in range(8)))
        finally:
            watch.close()

    assert asyncio.run(story()) == [Look()] * 8
