"""Shares of this machine's cards for people and programs: what ``pumice ps``, ``top`` and ``limit`` have in common."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pumice.cli import flags
from pumice.cli.laboratory import machines, made_machines
from pumice.cli.tables import BAR, GAP, bar, width_of
from pumice.local.permissions import name_of
from pumice.local.place import Place, of_cards, of_machine
from pumice.local.shares import CardShare, Share
from pumice.model.amount import MIB

EMULATED = Annotated[str | None, flags.Option(
    "--emulated", metavar="[MODEL|DIR]", bare=True,
    help="Only emulated machines: all of yours, or this one, named as to `pumice run`.")]


def places(emulated: str | None, present: Mapping[str, str] | None = None) -> list[Place]:
    """Return where programs may have been booked: the real cards and this user's emulated machines, or the emulated ones that are
    named, all of them by an empty name."""
    present = os.environ if present is None else present
    if emulated is not None:
        return [*map(of_machine, made_machines(emulated, present))]
    return [of_cards(present), *map(of_machine, machines(present))]


NARROWEST = 12
"""Characters of a command that are shown however narrow the terminal is."""
COLUMNS = ("ID", "PID", "CARD", "MEMORY", "CORES", "COMMAND")
WIDE = ("ID", "PID", "USER", "PRIORITY", "SINCE", "CARD", "MEMORY", "CORES", "REGION", "COMMAND")


@dataclass(frozen=True, slots=True)
class Fill:
    """The width of a row: characters of a bar, and words that may be left out."""

    bar: int = BAR
    words: bool = True


FILLS = (Fill(), Fill(5), Fill(0), Fill(0, words=False))
"""From a wide terminal to a narrow one."""
SHAPES = (*((fill, ()) for fill in FILLS), *((FILLS[-1], ("PID", "COMMAND", "CORES")[:count]) for count in (1, 2, 3)))
"""The columns that are left out of a terminal that is too narrow for all of them come last; a figure is whole or not there."""


def shares_table(shares: Sequence[Share], width: int = 0, wide: bool = False) -> Table:
    """One row per share, and one more for each further card of it. ``width``: of the terminal, to which bars and commands are
    cut and columns are left out; 0 cuts nothing. ``wide``: also user, priority, start, and the region, whose path
    `pumice vgpu status` takes."""
    models = len({card.card.model for share in shares for card in share.cards}) > 1
    for fill, spared in SHAPES:
        titles = tuple(title for title in (WIDE if wide else COLUMNS) if title not in spared)
        rows = [tuple(cells[title] for title in titles) for share in shares for cells in _rows(share, models, fill)]
        needed = width_of(titles, rows)
        over = sum(needed) + GAP * (len(titles) - 1) - width if width else 0
        spare = max(0, needed[-1] - NARROWEST) if titles[-1] == "COMMAND" else 0
        if over <= spare:
            break
    longest = needed[-1] - max(0, over)
    table = Table(pad_edge=False, box=None, header_style="bold")
    for title, least in zip(titles, needed, strict=True):
        table.add_column(title, justify="right" if title == "PID" else "left", no_wrap=True,
                         min_width=longest if title == "COMMAND" else least)  # fmt: skip
    for row in rows:
        table.add_row(*(cells if title != "COMMAND" else _cut(cells, longest) for title, cells in zip(titles, row, strict=True)))
    return table


def _cut(command: str, longest: int) -> str:
    line = Text.from_markup(command).plain
    return escape(line if len(line) <= longest else line[: longest - 1] + "…")


def _rows(share: Share, models: bool, fill: Fill) -> Iterator[dict[str, str]]:
    """The cells of a share by column; further cards say what is theirs only."""
    booking = share.booking
    whole = {"ID": booking.id, "PID": str(share.pid or "-"), "USER": name_of(booking.user), "PRIORITY": str(booking.priority),
             "SINCE": time.strftime("%d %b %H:%M", time.localtime(booking.created)), "REGION": escape(booking.region),
             "COMMAND": escape(booking.line)}  # fmt: skip
    for place, card in enumerate(share.cards):
        words = [*([card.card.model] if models else []), *(["emulated"] if share.place.machine else [])]
        own = {"CARD": " ".join([str(card.card.index), *(words if fill.words else [])]),
               "MEMORY": _memory(share, card, fill), "CORES": _cores(share, card, fill)}  # fmt: skip
        yield (whole if place == 0 else dict.fromkeys(whole, "")) | own


def _memory(share: Share, card: CardShare, fill: Fill) -> str:
    limit = card.device.memory
    if share.note:
        return f"? of {limit} MiB{', region damaged' if fill.words else ''}"
    return f"{bar(card.memory, card.memory_limit, fill.bar)} {-(-card.memory // MIB)}/{limit} MiB".strip()


def _cores(share: Share, card: CardShare, fill: Fill) -> str:
    waits, limit = " held back" if share.launches_wait else "", card.device.cores
    if share.note:
        return f"? of {limit} %" if limit else "no limit"
    return f"{bar(card.cores, limit, fill.bar)} {card.cores}/{limit} %{waits}".strip() if limit else f"no limit{waits}"


def as_json(share: Share) -> dict[str, Any]:
    """One share with units in the names."""
    booking = share.booking
    return {
        "id": booking.id,
        "pid": share.pid or None,
        "pids": list(share.pids),
        "user": booking.user,
        "emulatedMachine": str(share.place.machine) if share.place.machine else None,
        "cards": [
            {
                "card": card.card.index,
                "uuid": card.device.uuid,
                "model": card.card.model,
                "memoryUsedBytes": None if share.note else card.memory,
                "memoryLimitMiB": card.device.memory,
                "coresUsedPercent": card.cores if card.device.cores and not share.note else None,
                "coresLimitPercent": card.device.cores or None,
            }
            for card in share.cards
        ],
        "priority": booking.priority,
        "launchesWait": share.launches_wait,
        "started": booking.created,
        "command": booking.command,
        "region": booking.region,
        "note": share.note or None,
    }
