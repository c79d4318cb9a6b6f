"""The site of one machine: its cards as bars, and the programs that share them. Looked at only while somebody looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice.model.errors import PumiceError
from pumice.ports.clock import Clock
from pumice.web.machine import Looked, Program, card_views, machine_view, programs
from pumice.web.monitors import NodeUse
from pumice.web.views import Missing, Query, Shown

NAVIGATION = (("", "Machine"), ("programs", "Programs"))
FRESH = 1.0
"""Seconds for which a look at the machine is fresh."""
LONGEST_QUERY = 200


@dataclass(slots=True)
class MachineSite:
    """``look`` reads driver, bookings and regions; it may take its time, and raise PumiceError."""

    name: str
    look: Callable[[], Looked]
    clock: Clock
    version: int = 0
    looked: Looked = field(default_factory=Looked)
    failed: str = ""
    """Why the last look told nothing."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asked: float = float("-inf")

    @property
    def views(self) -> Mapping[str, Callable[[Query], Awaitable[Shown]]]:
        return {"": self.machine, "node": self.machine, "card": self.card, "programs": self.programs, "program": self.program}

    def state(self) -> Mapping[str, Any]:
        failed = (f"The machine could not be looked at: {self.failed}. What stands here was true before.",) if self.failed else ()
        return {"navigation": NAVIGATION, "place": "machine", "silent_since": 0.0, "unsynced": [], "lacks": [], "remarks": failed,
                "figures_of": self.looked.at}  # fmt: skip

    async def fresh(self) -> Looked:
        """Return what the machine is like now; one look for all who ask within a second."""
        async with self._turn:
            if self.clock.monotonic() - self._asked >= FRESH:
                failed, found = "", self.looked
                try:
                    found = await asyncio.to_thread(self.look)
                except PumiceError as error:
                    failed = str(error)
                if (found.cards, found.shares, found.remarks, failed) != (
                    self.looked.cards, self.looked.shares, self.looked.remarks, self.failed,
                ):  # fmt: skip
                    self.version += 1
                self.looked, self.failed, self._asked = found, failed, self.clock.monotonic()
            return self.looked

    async def keep_fresh(self, watched: Callable[[], bool]) -> None:
        """Look again while pages are open, for ever."""
        while True:
            await self.clock.sleep(FRESH)
            if watched():
                await self.fresh()

    # -- pages --------------------------------------------------------------------------------------------------

    async def machine(self, query: Query) -> Shown:
        looked = await self.fresh()
        return Shown("node", f"Machine {self.name}", {"node": machine_view(self.name, looked), "use": NodeUse(looked.at)})

    async def card(self, query: Query) -> Shown:
        looked, uuid = await self.fresh(), query.get("uuid", "")
        card = next((card for card in card_views(self.name, looked) if card.uuid == uuid), None)
        if card is None:
            raise Missing(f"this machine has no card {uuid}")
        return Shown("card", f"Card {card.index}", {"card": card, "use": NodeUse(looked.at)})

    async def programs(self, query: Query) -> Shown:
        looked, wanted = await self.fresh(), query.get("q", "")[:LONGEST_QUERY].strip().lower()
        found = [each for each in programs(self.name, looked) if _matches(each, wanted)]
        return Shown("programs", "Programs", {"programs": found, "q": wanted, "now": self.clock.now()})

    async def program(self, query: Query) -> Shown:
        looked, wanted = await self.fresh(), query.get("id", "")
        found = next((each for each in programs(self.name, looked) if each.id == wanted), None)
        if found is None:
            raise Missing(f"no program of `pumice run` has the id {wanted}; it may have ended")
        return Shown("program", f"Program {found.id}", {"program": found, "now": self.clock.now()})


def _matches(program: Program, wanted: str) -> bool:
    return wanted in program.id.lower() or wanted in program.command.lower() or wanted == str(program.pid)
