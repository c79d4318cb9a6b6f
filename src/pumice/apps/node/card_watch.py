"""Keeps the list of cards, their health, and who else holds them: looks for events every second, at all every half minute.

NVML calls block and an unhealthy card may hang one, so they run one after the other in a thread of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from pumice.adapters.bookings.foreign import ForeignPrograms
from pumice.apps.service.worker import PATIENCE, Worker, once
from pumice.effects.tasks import Signal, first
from pumice.node.health import Health, XidRule
from pumice.ports.cards import CardFacts, Cards, CardsUnavailable
from pumice.ports.clock import Clock

log = logging.getLogger("pumice.node")
T = TypeVar("T")


class CardWatch:
    """The watch on the cards of this machine. ``facts`` and ``unhealthy`` of this machine. ``changed`` fires when either did."""

    def __init__(
        self, cards: Cards, clock: Clock, rule: XidRule, *, every: float = 1.0, full_every: float = 30.0,
        foreign: ForeignPrograms | None = None, patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        self._cards, self._clock, self._rule = cards, clock, rule
        self._every, self._full_every, self._patience = every, full_every, patience
        self._driver = Worker("nvml")
        self._known: dict[str, CardFacts] = {}
        self._health = Health((), rule)
        self._foreign = foreign or ForeignPrograms(())
        self._allocated: dict[str, str] = {}
        self.uncut: Callable[[list[str]], dict[str, str]] | None = None
        """Which cards cannot be cut as a scheduler likes, and why; it is told which are in MIG mode."""
        self._uncut: dict[str, str] = {}
        self.unserved: Callable[[], Mapping[str, str]] = dict
        """Which cards wait for a daemon without which nobody may use them, and why."""
        self._look_soon = False
        self._answered = clock.monotonic()
        self.changed = Signal()

    @property
    def stuck(self) -> float:
        """Seconds since the driver last answered; an unhealthy card may hang it."""
        return self._clock.monotonic() - self._answered

    @property
    def facts(self) -> tuple[CardFacts, ...]:
        """Every card ever seen, in NVML order; one that fell off the bus stays, and is unhealthy."""
        return tuple(sorted(self._known.values(), key=lambda card: card.index))

    @property
    def unhealthy(self) -> dict[str, str]:
        """Return why a card takes no pods, by UUID: it is ill, programs outside of the cluster or claims hold it, it cannot be
        cut, or its daemon is not there."""
        allocated = self._allocated
        if why := allocated.get(""):  # nobody knows which cards
            allocated = dict.fromkeys(self._known, why) | allocated
            del allocated[""]
        return {**self.unserved(), **self._uncut, **allocated, **self._health.unhealthy}

    def soon(self) -> None:
        """Look at everything with the next look: a card did not do what it should."""
        self._look_soon = True

    async def look_at_slices(self, also: Iterable[CardFacts] = ()) -> None:
        """``also``: cards that are not shown yet."""
        known = {card.uuid: card for card in (*self.facts, *also)}
        cards = [card.uuid for card in known.values() if card.mig]
        if (uncut := self.uncut) is not None:
            self._uncut = await self._call(lambda: uncut(cards))

    async def start(self) -> None:
        """Look once. Raises CardsUnavailable."""
        facts = await self._call(self._cards.facts)
        await self.look_at_slices(facts)
        self._take(facts)
        self._allocated = await self._call(self._foreign.look)
        if self._rule.off:
            log.warning("health checks are switched off")
            return
        troubles = await self._call(lambda: self._cards.subscribe([card.uuid for card in facts]))
        for uuid, trouble in troubles.items():
            if trouble != "unsupported":
                self._health.blame(uuid, trouble)
        if unsupported := sorted(uuid for uuid, trouble in troubles.items() if trouble == "unsupported"):
            log.warning("cards without health events, taken as healthy cards=%s", ",".join(unsupported))

    async def learn_holders(self) -> None:
        """Learn of every program that began to book before now: called once our socket answers, which stops new ones."""
        self._allocated = await self._call(lambda: self._foreign.look(wait=True))

    async def run(self) -> None:
        """Keep looking until cancelled."""
        next_full = self._clock.monotonic() + self._full_every
        while True:
            await self._clock.sleep(self._every)
            before = self._known, self.unhealthy
            self._allocated = await self._call(self._foreign.look)
            if not self._rule.off:
                for event in await self._call(self._cards.events):
                    self._health.event(event)
            if self._look_soon or self._clock.monotonic() >= next_full:
                self._look_soon = False
                next_full = self._clock.monotonic() + self._full_every
                await self._look_again()
            if (self._known, self.unhealthy) != before:
                self._log(before[1])
                self.changed.fire()

    def close(self, last: Callable[[], None] | None = None) -> None:
        """``last`` gives the cards back, unless a call to them hangs: then nobody waits for either."""
        if not self._driver.close(last, self._patience):
            log.warning("the driver does not answer and is left behind")

    async def _look_again(self) -> None:
        try:
            facts = await self._call(self._cards.facts)
            await self.look_at_slices(facts)  # who shows a card that is new tells at once that it cannot be cut
            self._take(facts)
        except CardsUnavailable as error:
            log.warning("%s", error)
            self._health.watch(())
            await self.look_at_slices()
        for uuid in self._health.unhealthy:
            self._health.check(uuid, await self._call(lambda uuid=uuid: self._cards.answers(uuid)))  # type: ignore[misc]

    def _take(self, facts: tuple[CardFacts, ...]) -> None:
        self._known = {**self._known, **{card.uuid: card for card in facts}}
        self._health.watch(card.uuid for card in facts)

    def _log(self, before: dict[str, str]) -> None:
        for uuid, reason in self.unhealthy.items():
            if uuid not in before:
                log.warning("card takes no pods uuid=%s reason=%s", uuid, reason)
        for uuid in before.keys() - self.unhealthy.keys():
            log.info("card takes pods again uuid=%s", uuid)

    async def _call(self, work: Callable[[], T]) -> T:
        answer = await self._driver.call(work)
        self._answered = self._clock.monotonic()
        return answer


async def open_cards(opened: Callable[[], Cards], wait: bool, clock: Clock, stop: asyncio.Event) -> Cards | None:
    """Open this machine's cards. ``wait``: look every 30 s until there is a driver; None when stopped meanwhile."""
    while not stop.is_set():
        opening = asyncio.ensure_future(once("nvml", opened))
        try:
            return opening.result() if await first(opening, stop.wait()) == 0 else None
        except CardsUnavailable as error:
            if not wait:
                raise
            log.warning("%s; waiting", error)
            await first(stop.wait(), clock.sleep(30.0))
    return None
