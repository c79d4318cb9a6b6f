"""Why a request does not fit, in words: what is left of each card, who holds the rest, and what would fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from msgspec import Struct

from pumice.adapters.bookings.book import Booking
from pumice.local.request import AUTO, Request
from pumice.model.cards import Grant
from pumice.ports.cards import CardFacts


class Room(Struct, frozen=True):
    """What is left of one card: MiB and percent. ``total`` in MiB; ``closed`` is why it takes nobody, or empty."""

    index: int
    uuid: str
    model: str
    total: int
    memory: int
    cores: int
    closed: str = ""


class Books(Protocol):
    """What is asked about: the books of this machine (``allocator.Allocator``)."""

    @property
    def bookings(self) -> Mapping[str, Booking]: ...

    def rooms(self, without: str = "") -> list[Room]: ...

    def fit(self, request: Request, number: str = "?", without: str = "") -> Grant | None: ...

    def facts(self, grant: Grant) -> list[CardFacts]: ...


def why(books: Books, request: Request, without: str) -> str:
    """One line on the request, some on each card, and one on what would fit. ``request`` names its cards by UUID.

    ``without`` is the booking that asks for a change, and is left out.
    """
    rooms = [room for room in books.rooms(without) if not request.cards or room.uuid in request.cards]
    lines = [_headline(request, rooms)]
    for room in rooms:
        lines.append(f"  card {room.index} ({room.model}, {room.total} MiB): {_left(room)}")
        held = [booking for booking in books.bookings.values() if booking.id != without and booking.on(room.uuid)]
        lines += [f"    {_holds(booking, room.uuid)}" for booking in held]
    suggestion = _elsewhere(books, request, without) or _smaller(books, request, rooms, without)
    return "\n".join([*lines, f"  {suggestion}"] if suggestion else lines)


def _headline(request: Request, rooms: Sequence[Room]) -> str:
    if request.count == 1:
        if len(rooms) == 1:
            return f"card {rooms[0].index} has no room for {request.words}"
        return f"no card has room for {request.words}"
    if request.count == len(rooms):
        return f"not each of the cards {', '.join(str(room.index) for room in rooms)} has room for {request.words}"
    return f"fewer than {request.count} cards have room for {request.words}"


def _left(room: Room) -> str:
    return room.closed or f"{room.memory} MiB and {room.cores} % of the cores are free"


def _holds(booking: Booking, uuid: str) -> str:
    device = booking.on(uuid)
    assert device is not None
    cores = f"{device.cores} %" if device.cores else "no core limit"
    return f"{booking.id}  pid {booking.pid}  {device.memory} MiB  {cores}  {booking.line}"


def _elsewhere(books: Books, request: Request, without: str) -> str:
    """Other cards with room for the same, asked of the same fit."""
    if not request.cards or without:
        return ""
    other = books.fit(replace(request, cards=()))
    if other is None:
        return ""
    found = sorted(card.index for card in books.facts(other))
    numbers = ",".join(map(str, found))
    anywhere = f"--gpu {AUTO}" if len(found) == 1 else f"--gpus {len(found)}"
    have = f"card {numbers} has" if len(found) == 1 else f"cards {numbers} have"
    return f"{have} room for it: --gpu {numbers}, or {anywhere}"


def _smaller(books: Books, request: Request, rooms: Sequence[Room], without: str) -> str:
    """The most that would fit on as many of these cards."""
    by_room = sorted(rooms, key=lambda room: -room.memory)
    for last in range(request.count - 1, len(by_room)):
        best, memory = by_room[: last + 1], by_room[last].memory
        wanted = request.memory or by_room[last].total * (request.percent or 100) // 100
        cores = min((room.cores for room in best if room.cores), default=0)
        smaller = replace(request, memory=min(wanted, memory), percent=0,
                          cores=min(request.cores, cores) or request.cores, cards=tuple(room.uuid for room in rooms))  # fmt: skip
        found = books.fit(smaller, without=without) if smaller.memory else None
        if found is not None:
            indices = sorted(card.index for card in books.facts(found))
            where = f"card {indices[0]}" if len(indices) == 1 else f"cards {', '.join(map(str, indices))}"
            more = f" --cores {smaller.cores}" if smaller.cores else ""
            return f"what would fit on {where}: --memory {smaller.memory}{more}"
    return ""
