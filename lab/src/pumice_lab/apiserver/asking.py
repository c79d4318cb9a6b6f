"""A write runs without a pause from the read of an object to the staging of its new state, and to ask somebody takes its time. So
what turns out to need an answer from outside is given up where it would need it, the answer is fetched, and it is made again.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.errors import ApiFailure
from pumice_lab.apiserver.http_types import Request

T = TypeVar("T")
TRIES = 5
"""For what others change while somebody is asked about it."""


class Waits(Exception):
    """Somebody has to be asked first."""

    @property
    @abstractmethod
    def about(self) -> tuple[str, ...]:
        """Return the key of a question, the same from one try to the next; its last word is a name."""

    @abstractmethod
    async def settle(self, backend: Backend, request: Request) -> None:
        """Asks, and keeps the answer for the next try. Raises ApiFailure."""


async def nothing() -> None:
    """Before a try that waits for nobody."""


async def made(backend: Backend, request: Request, make: Callable[[], T], before: Callable[[], Awaitable[None]] = nothing) -> T:
    """Return the result of ``make``, tried again whenever a part of it had to be asked for; ``before`` comes before each try."""
    tries: dict[tuple[str, ...], int] = {}
    while True:
        await before()
        try:
            return make()
        except Waits as waits:
            tries[waits.about] = tries.get(waits.about, 0) + 1
            if tries[waits.about] > TRIES:
                raise ApiFailure(409, "Conflict", f"{waits.about[-1]!r} changes faster than its webhooks answer; please apply "
                                 "your changes to the latest version and try again") from None  # fmt: skip
            await waits.settle(backend, request)
            await asyncio.sleep(0)
