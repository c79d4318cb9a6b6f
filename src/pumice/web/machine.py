"""One machine without a cluster as the page's values: its cards by NVML, its programs by the bookings of `pumice run` and the
counts of libvgpu.so in their regions, as `pumice top` and `pumice ps` read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pumice.local.shares import CardShare, Share
from pumice.model.amount import MIB
from pumice.ports.cards import CardReading
from pumice.web.values import CardView, Held, NodeView, Use

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
    """A program that has a share. ``unknown`` is why its use is not known."""

    id: str
    pid: int
    user: int
    command: str
    started: float
    priority: int
    pids: tuple[int, ...] = ()
    held_back: bool = False
    region: str = ""
    cards: tuple[tuple[CardView, Held], ...] = field(default=())
    unknown: str = ""


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
    found = []
    for share in looked.shares:
        booking = share.booking
        on = tuple(
            (cards[card.device.uuid], held) for card in share.cards for held in cards[card.device.uuid].held
            if held.pod == booking.id
        )  # fmt: skip
        found.append(Program(booking.id, booking.pid, booking.user, _line(booking.command), booking.created, booking.priority,
                             share.pids, share.launches_wait, booking.region, on, share.note))  # fmt: skip
    return sorted(found, key=lambda program: (program.started, program.id))


def _line(command: Sequence[str]) -> str:
    """The whole command, without what a terminal would take for an order."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(command))
