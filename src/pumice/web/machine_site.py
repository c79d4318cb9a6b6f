"""The site of one machine: its cards as bars, and the programs that share them. Looked at only while somebody looks at it.

One machine without a cluster as the page's values: its cards by NVML, its programs by the bookings of `pumice run` and the
counts of libvgpu.so in their regions, as `pumice top` and `pumice ps` read them. Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.local.shares import CardShare, Share
from pumice.model.amount import MIB
from pumice.model.errors import PumiceError
from pumice.ports.cards import CardReading
from pumice.ports.clock import Clock
from pumice.web.monitors import NodeUse
from pumice.web.values import CardView, Held, NodeView, Use
from pumice.web.views import Missing, Query, Shown

FAMILY, MODE = "run", "shared by pumice run"


@dataclass(frozen=True, slots=True)
class Looked:
    """One look at the machine. ``remarks`` say what is not known, and why."""

    at: float = 0.0
    cards: tuple[CardReading, ...] = ()
    shares: tuple[Share, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A program that has a share, and what it holds of each of its cards."""

    share: Share
    cards: tuple[tuple[CardView, Held], ...]


def card_views(name: str, looked: Looked) -> tuple[CardView, ...]:
    """The cards of the driver, and those that are booked though it tells nothing of them, by index."""
    readings = {card.uuid: card for card in looked.cards}
    booked = {card.device.uuid: card for share in looked.shares for card in share.cards}
    absent = [card for uuid, card in booked.items() if uuid not in readings]
    found = [_view(name, card, looked.shares) for card in looked.cards]
    found += [_unread(name, card, looked.shares) for card in absent]
    return tuple(sorted(found, key=lambda card: (card.index, card.uuid)))


def _view(name: str, card: CardReading, shares: Sequence[Share]) -> CardView:
    held = tuple(_held(card.uuid, shares))
    use = Use(float(card.memory_used), float(card.memory_total), float(card.utilization) if card.utilization >= 0 else None)
    return CardView(
        name, FAMILY, card.index, card.uuid, card.name or "card", MODE, card.memory_total // MIB, "MiB",
        sum(each.memory for each in held), sum(each.cores for each in held), 0, held=held, use=use,
    )  # fmt: skip


def _unread(name: str, card: CardShare, shares: Sequence[Share]) -> CardView:
    held = tuple(_held(card.device.uuid, shares))
    return CardView(
        name, FAMILY, card.card.index, card.device.uuid, card.card.model, MODE, card.card.total, "MiB",
        sum(each.memory for each in held), sum(each.cores for each in held), 0, held=held,
    )  # fmt: skip


def _held(uuid: str, shares: Sequence[Share]) -> Iterator[Held]:
    for share in shares:
        for card in share.cards:
            if card.device.uuid == uuid:
                use = Use(None, None, None) if share.note else Use(
                    float(card.memory), float(card.memory_limit), float(card.cores) if card.device.cores else None)  # fmt: skip
                yield Held(share.booking.id, 0, card.device.memory, card.device.memory, card.device.cores, use=use,
                           unknown=share.note)  # fmt: skip


def machine_view(name: str, looked: Looked) -> NodeView:
    """The machine as a node is shown."""
    return NodeView(name, card_views(name, looked), looked.remarks, tuple(share.booking.id for share in looked.shares))


def programs(name: str, looked: Looked) -> list[Program]:
    """The programs that have shares, the oldest first."""
    cards = {card.uuid: card for card in card_views(name, looked)}
    return [
        Program(share, tuple(
            (cards[card.device.uuid], held) for card in share.cards for held in cards[card.device.uuid].held
            if held.pod == share.booking.id
        ))
        for share in sorted(looked.shares, key=lambda share: (share.booking.created, share.booking.id))
    ]  # fmt: skip


NAVIGATION = (("", "Machine"), ("programs", "Programs"))
FRESH = 1.0
"""Seconds for which a look at the machine is fresh."""
LONGEST_QUERY = 200


@dataclass(slots=True)
class MachineSite:
    """The site of a machine. ``look`` reads driver, bookings and regions; it may take its time, and raise PumiceError."""

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
        found = next((each for each in programs(self.name, looked) if each.share.booking.id == wanted), None)
        if found is None:
            raise Missing(f"no program of `pumice run` has the id {wanted}; it may have ended")
        return Shown("program", f"Program {found.share.booking.id}", {"program": found, "now": self.clock.now()})


def _matches(program: Program, wanted: str) -> bool:
    booking = program.share.booking
    return wanted in booking.id.lower() or wanted in booking.text.lower() or wanted == str(booking.pid)
