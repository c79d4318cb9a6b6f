"""Shares of this machine's cards for people and programs: what ``pumice ps``, ``top`` and ``limit`` have in common."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pumice.cli.cards_table import bar
from pumice.cli.emulated import machines
from pumice.local.place import Place, of_cards, of_machine
from pumice.local.shares import CardShare, Share
from pumice.model.refusal import PumiceError
from pumice.node.sharing import MIB


def places(emulated: Path | None, present: Mapping[str, str] | None = None) -> list[Place]:
    """Where programs may have been booked: the real cards and this user's emulated machines, or the one that is named."""
    present = os.environ if present is None else present
    if emulated is not None:
        if not (emulated / "state").is_file():
            raise PumiceError(f"{emulated}: no emulated machine here")
        return [of_machine(emulated.resolve())]
    return [of_cards(present), *map(of_machine, machines(present))]


def wide_console() -> tuple[Console, int]:
    """A console and the width to which tables are cut; 0 where nobody's terminal bounds the lines."""
    console = Console(highlight=False)
    return (console, console.width) if console.is_terminal else (Console(highlight=False, width=500), 0)


NARROWEST = 12
"""Characters of a command that are shown however narrow the terminal is."""
COLUMNS = ("ID", "PID", "CARD", "MEMORY", "CORES", "COMMAND")
WIDE = ("ID", "PID", "USER", "PRIORITY", "SINCE", "CARD", "MEMORY", "CORES", "REGION", "COMMAND")


def shares_table(shares: Sequence[Share], width: int = 0, wide: bool = False) -> Table:
    """One row per share, and one more for each further card of it. ``width``: of the terminal, to which commands are cut;
    0 cuts nothing. ``wide``: also user, priority, start, and the region, whose path `pumice vgpu status` takes."""
    titles = WIDE if wide else COLUMNS
    models = len({card.card.model for share in shares for card in share.cards}) > 1
    rows = [[cells[title] for title in titles] for share in shares for cells in _rows(share, models)]
    table = Table(pad_edge=False, box=None, header_style="bold")
    taken = 0
    for place, name in enumerate(titles):
        longest = max([len(name), *(Text.from_markup(row[place]).cell_len for row in rows)])
        table.add_column(name, justify="right" if name == "PID" else "left", no_wrap=True, min_width=longest)
        taken += longest + 2
    cut = 0
    if width and taken > width:
        widest = max(len(share.booking.line) for share in shares)
        cut = max(NARROWEST, widest - (taken - width))
        table.columns[-1].min_width = cut
    for row in rows:
        line = Text.from_markup(row[-1]).plain
        table.add_row(*row[:-1], escape(line if not cut or len(line) <= cut else line[: cut - 1] + "…"))
    return table


def _rows(share: Share, models: bool) -> Iterator[dict[str, str]]:
    """The cells of a share by column; further cards say what is theirs only."""
    booking = share.booking
    whole = {"ID": booking.id, "PID": str(booking.pid), "USER": _user(booking.user), "PRIORITY": str(booking.priority),
             "SINCE": time.strftime("%d %b %H:%M", time.localtime(booking.created)), "REGION": escape(booking.region),
             "COMMAND": escape(booking.line)}  # fmt: skip
    for place, card in enumerate(share.cards):
        model = f" {card.card.model}" if models else ""
        own = {"CARD": f"{card.card.index}{model}{' emulated' if share.place.machine else ''}",
               "MEMORY": _memory(share, card), "CORES": _cores(share, card)}  # fmt: skip
        yield (whole if place == 0 else dict.fromkeys(whole, "")) | own


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _memory(share: Share, card: CardShare) -> str:
    limit = card.device.memory
    return f"? of {limit} MiB" if share.note else f"{bar(card.memory, card.memory_limit)} {-(-card.memory // MIB)}/{limit} MiB"


def _cores(share: Share, card: CardShare) -> str:
    waits, limit = " held back" if share.launches_wait else "", card.device.cores
    return f"{bar(card.cores, limit)} {card.cores}/{limit} %{waits}" if limit else f"no limit{waits}"


def as_json(share: Share) -> dict[str, Any]:
    """One share with units in the names."""
    booking = share.booking
    return {
        "id": booking.id,
        "pid": booking.pid,
        "pids": list(share.pids),
        "user": booking.user,
        "emulatedMachine": str(share.place.machine) if share.place.machine else None,
        "cards": [
            {
                "card": card.card.index,
                "uuid": card.device.uuid,
                "model": card.card.model,
                "memoryUsedBytes": card.memory,
                "memoryLimitMiB": card.device.memory,
                "coresUsedPercent": card.cores if card.device.cores else None,
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
