"""Shares of this machine's cards from Python, for the programs that it starts.

    import subprocess
    import pumice

    with pumice.share(memory="3GiB", cores=50):
        subprocess.run(["python", "train.py"], check=True)

The process itself is not held to the share: the library that enforces it is loaded when a program starts. Amounts and
refusals are those of ``pumice run``.
"""

from __future__ import annotations

import os
import resource
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pumice.adapters.bookings.book import living
from pumice.adapters.bookings.processes import put_mark
from pumice.cli.local_view import places
from pumice.cli.run import cards_of, library, world
from pumice.local import start
from pumice.local.request import parse_cards, parse_priority, parse_shares
from pumice.local.shares import Share as _Share
from pumice.local.shares import share_of
from pumice.local.shares import shares as _shares
from pumice.model.amount import MIB
from pumice.ports.cards import CardFacts
from pumice.wire import variables
from pumice.wire.nvidia_vgpu import PodDevice

__all__ = ["Card", "CardShare", "Share", "cards", "share", "shares"]


@dataclass(frozen=True, slots=True)
class Card:
    """A card of this machine. ``memory`` and ``memory_booked`` are MiB, ``cores_booked`` the percent that shares are limited to;
    ``shares`` counts them."""

    index: int
    uuid: str
    model: str
    memory: int
    memory_booked: int
    cores_booked: int
    shares: int


@dataclass(frozen=True, slots=True)
class CardShare:
    """A share of one card: ``memory`` MiB and ``cores`` percent (0: no limit), and the bytes in use (None: not known)."""

    index: int
    uuid: str
    model: str
    memory: int
    cores: int
    memory_used: int | None


@dataclass(frozen=True, slots=True)
class Share:
    """A booked share. ``pids`` are the processes that keep it. ``environment`` is what a program in it is started with, empty for
    shares that others booked."""

    id: str
    pids: tuple[int, ...]
    command: tuple[str, ...]
    cards: tuple[CardShare, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@contextmanager
def share(*, memory: int | str | None = None, cores: int | str = 0, gpu: int | str | None = None, gpus: int | str | None = None,
          priority: int = 1, emulated: bool | str = False) -> Iterator[Share]:  # fmt: skip
    """Book a share and have it in ``os.environ``, so that programs started inside are held to it.

    ``memory`` is MiB, "3GiB" or "25%" (None: all of the card's), ``cores`` a percent (0: no limit); ``gpu``, ``gpus``,
    ``priority`` and ``emulated`` (True: your own emulated machine) are as in ``pumice run``. The share is given back at the end,
    or when the last program that was started inside has ended. Raises PumiceError where it cannot be had; then nothing is booked.
    """
    before = dict(os.environ)
    start.refuse_nested(before)
    chosen = parse_cards(_text(gpu), _text(gpus), before.get(variables.CUDA_VISIBLE_DEVICES))
    request = parse_shares(_text(memory), str(cores), chosen.cards, chosen.number, parse_priority(str(priority)), chosen.source)
    limit = resource.getrlimit(resource.RLIMIT_RTTIME)
    try:
        present, place, nvml = world(_named(emulated), before)
        enforcing = library()
        with cards_of(nvml) as found:
            begun = start.book(request, [*filter(None, sys.argv)] or [sys.executable], place, found)
        try:
            if begun.note:
                warnings.warn(begun.note, stacklevel=3)
            if begun.contested:
                from pumice.local import arbiter  # rarely needed

                arbiter.start(place.directory)
            environment = start.environment(begun.booking, enforcing, place.neighbours, present, only_card=begun.only_card)
            _become(environment)
            put_mark(begun.booking.pid, begun.booking.start)
            yield _public(share_of(begun.booking, place), environment)
        finally:
            resource.setrlimit(resource.RLIMIT_RTTIME, limit)
            start.give_back(begun, place)
    finally:
        _become(before)


def shares(*, emulated: bool | str | None = None) -> list[Share]:
    """Return the living shares of this machine, as ``pumice ps`` lists them: of the real cards and of your emulated machines, or
    (``emulated``) of these alone."""
    return [_public(found) for found in _shares(places(None if emulated is None else _named(emulated)))]


def cards(*, emulated: bool | str = False) -> list[Card]:
    """Return the cards of this machine with what is booked of them. Raises PumiceError where no driver answers."""
    before = dict(os.environ)
    try:
        _, place, nvml = world(_named(emulated), before)
        with cards_of(nvml) as found:
            facts = found.facts()
    finally:
        _become(before)
    allocated = [device for booking in living(place.directory) for device in booking.devices]
    return [_card(card, allocated) for card in facts]


def _text(given: int | str | None) -> str | None:
    return None if given is None else str(given)


def _named(emulated: bool | str) -> str | None:
    """Return the emulated machine as ``--emulated`` names it; None for the real cards."""
    return emulated if isinstance(emulated, str) else "" if emulated else None


def _become(environment: Mapping[str, str]) -> None:
    """Change what differs in this process's environment."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if os.environ.get(name) != value})


def _public(found: _Share, environment: Mapping[str, str] | None = None) -> Share:
    allocated = tuple(
        CardShare(card.card.index, card.device.uuid, card.card.model, card.device.memory, card.device.cores,
                  None if found.note else card.memory)
        for card in found.cards
    )  # fmt: skip
    return Share(found.booking.id, found.pids, tuple(found.booking.command), allocated, environment or {})


def _card(facts: CardFacts, allocated: Sequence[PodDevice]) -> Card:
    on_it = [device for device in allocated if device.uuid == facts.uuid]
    return Card(facts.index, facts.uuid, facts.name, facts.memory // MIB, sum(device.memory for device in on_it),
                sum(device.cores for device in on_it), len(on_it))  # fmt: skip
