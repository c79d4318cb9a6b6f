"""Keeps the control daemons of the cards that containers share by MPS, off the loop: a command may take seconds, and only its own
card waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from pumice.apps.service.worker import Worker
from pumice.model.errors import Unavailable
from pumice.node.mps import Bounds, Step, Supervisor
from pumice.node.protocol import Answer
from pumice.ports.clock import Clock
from pumice.ports.mps import MpsControl

log = logging.getLogger("pumice.node")

EVERY: Final = 1.0
"""Seconds between two looks whether the daemons live."""
ASK_EVERY: Final = 30.0
"""Seconds between two questions whether they answer."""
PATIENCE: Final = 8.0
"""Seconds for which a container waits for its card's daemon."""


class ControlDaemons:
    """One machine's. ``wanted`` says what each card's clients may have at most; a card that it does not name has no daemon, once
    nobody is served by it. ``changed`` hears when a card is closed or opened."""

    def __init__(self, control: MpsControl, clock: Clock, patience: float = PATIENCE) -> None:
        self._control, self._clock, self._patience = control, clock, patience
        self.wanted: Callable[[], Mapping[str, Bounds]] = dict
        self.changed: Callable[[], None] = lambda: None
        self._cards: dict[str, Supervisor] = {}
        self._workers: dict[str, Worker] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._requested: dict[str, float] = {}

    def closed(self) -> dict[str, str]:
        """Return why cards take no pods, by UUID."""
        return {card: supervisor.closed for card, supervisor in self._cards.items() if supervisor.closed}

    async def look(self) -> None:
        """Take every card's next steps."""
        wanted, before = self.wanted(), self.closed()
        there = dict.fromkeys((*wanted, *await self.known()))
        for card in there:
            self._supervisor(card).want(wanted.get(card))
        await asyncio.gather(*(self._steps(card) for card in there))
        if self.closed() != before:
            self._report(before)
            self.changed()

    async def known(self) -> tuple[str, ...]:
        """The cards that have a daemon, or had one and were not opened to everybody again."""
        return await asyncio.to_thread(self._control.known)

    async def keep(self) -> None:
        """Keep looking until cancelled."""
        while True:
            await self._clock.sleep(EVERY)
            await self.look()

    async def allocation(self, card: str, bounds: Bounds) -> None:
        """Return when the card's server will hold its clients to that, or to what others there have. Raises Unavailable."""
        supervisor = self._supervisor(card)
        deadline = self._clock.monotonic() + self._patience
        while True:
            supervisor.allocation(bounds, self._clock.monotonic())
            await self._steps(card)
            if not supervisor.closed:
                return
            if self._clock.monotonic() >= deadline:
                raise Unavailable(f"card {card}: {supervisor.closed}")
            await self._clock.sleep(0.2)

    async def prepare(self, answer: Answer) -> None:
        """Have the cards bounded as the answer says, before it is given. Raises Unavailable."""
        for card, bounds in answer.bounds.items():
            await self.allocation(card, bounds)

    async def leave(self) -> None:
        """End those that serve nobody: who is served goes on without us, and is found again by the next process."""
        for card, supervisor in self._cards.items():
            supervisor.want(None)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await self._steps(card)
            if supervisor.closed:
                log.info("the MPS control daemon goes on card=%s: %s", card, supervisor.closed)
        for worker in self._workers.values():
            worker.close(patience=0.0)

    def _supervisor(self, card: str) -> Supervisor:
        if card not in self._cards:
            self._cards[card] = Supervisor()
            self._workers[card], self._locks[card] = Worker(f"mps {card}"), asyncio.Lock()
        return self._cards[card]

    async def _steps(self, card: str) -> None:
        """Until there is nothing to do: at most a start, its bounds, and a look at what came of them."""
        async with self._locks[card]:
            for _ in range(3):
                if await self._step(card) in (Step.REST, Step.FORGET):
                    return

    async def _step(self, card: str) -> Step:
        supervisor, worker, now = self._cards[card], self._workers[card], self._clock.monotonic()
        ask = supervisor.requested(now) or now >= self._requested.get(card, 0.0) + ASK_EVERY
        seen = await worker.call(partial(self._control.look, card, ask=ask))
        if ask:
            self._requested[card] = now
        step = supervisor.next(seen, now)
        try:
            match step:
                case Step.START:
                    await worker.call(partial(self._control.start, card))
                    supervisor.started(now)
                    log.info("started the MPS control daemon card=%s", card)
                case Step.BOUND:
                    bounds = supervisor.bounds(now)
                    await worker.call(partial(self._bound, card, bounds))
                    supervisor.bounded(bounds)
                case Step.KILL:
                    log.warning("ending the MPS control daemon, which does not answer card=%s pid=%d", card, seen.pid)
                    await worker.call(partial(self._control.kill, card, seen.pid))
                case Step.QUIT:
                    await worker.call(partial(self._control.quit, card))
                    log.info("ended the MPS control daemon card=%s", card)
                case Step.FORGET:
                    await worker.call(partial(self._control.forget, card))
        except Unavailable as error:
            supervisor.failed(str(error), now)
            return Step.REST
        return step

    def _bound(self, card: str, bounds: Bounds) -> None:
        """The servers to come first: one that begins in between begins with them."""
        self._control.say(card, *bounds.commands())
        for server in self._control.servers(card):
            self._control.say(card, *bounds.commands(server))

    def _report(self, before: Mapping[str, str]) -> None:
        for card, reason in self.closed().items():
            if before.get(card) != reason:
                log.warning("card=%s: %s", card, reason)
