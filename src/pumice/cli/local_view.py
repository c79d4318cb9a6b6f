"""Shares of this machine's cards for people and programs: what ``pumice ps``, ``top`` and ``limit`` have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pumice.cli.cards_table import bar
from pumice.cli.emulated import machines
from pumice.local.place import Place, of_cards, of_machine
from pumice.local.shares import Share
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


def shares_table(shares: Sequence[Share], width: int = 0) -> Table:
    """One row per share. ``width``: of the terminal, to which commands are cut; 0 cuts nothing."""
    names = ("ID", "PID", "CARD", "MEMORY", "CORES", "COMMAND")
    rows = [_row(share, len({other.booking.model for other in shares}) > 1) for share in shares]
    table = Table(pad_edge=False, box=None, header_style="bold")
    taken = 0
    for place, name in enumerate(names):
        wide = max([len(name), *(Text.from_markup(row[place]).cell_len for row in rows)])
        table.add_column(name, justify="right" if name == "PID" else "left", no_wrap=True, min_width=wide)
        taken += wide + 2
    cut = 0
    if width and taken > width:
        widest = max(len(share.booking.line) for share in shares)
        cut = max(NARROWEST, widest - (taken - width))
        table.columns[-1].min_width = cut
    for row, share in zip(rows, shares, strict=True):
        line = share.booking.line
        table.add_row(*row[:-1], escape(line if not cut or len(line) <= cut else line[: cut - 1] + "…"))
    return table


def _row(share: Share, models: bool) -> tuple[str, ...]:
    booking = share.booking
    card = f"{booking.card}{f' {booking.model}' if models else ''}{' emulated' if share.place.machine else ''}"
    return booking.id, str(booking.pid), card, _memory(share), _cores(share), escape(booking.line)


def _memory(share: Share) -> str:
    if share.note:
        return f"? of {share.booking.device.memory} MiB"
    return f"{bar(share.memory, share.memory_limit)} {-(-share.memory // MIB)}/{share.booking.device.memory} MiB"


def _cores(share: Share) -> str:
    limit = share.booking.device.cores
    if not limit:
        return "no limit"
    return f"{bar(share.cores, limit)} {share.cores}/{limit} %{' held back' if share.launches_wait else ''}"


def as_json(share: Share) -> dict[str, Any]:
    """One share with units in the names."""
    booking, device = share.booking, share.booking.device
    return {
        "id": booking.id,
        "pid": booking.pid,
        "pids": list(share.pids),
        "user": booking.user,
        "card": booking.card,
        "uuid": device.uuid,
        "model": booking.model,
        "emulatedMachine": str(share.place.machine) if share.place.machine else None,
        "memoryUsedBytes": share.memory,
        "memoryLimitMiB": device.memory,
        "coresUsedPercent": share.cores if device.cores else None,
        "coresLimitPercent": device.cores or None,
        "priority": booking.priority,
        "started": booking.created,
        "command": booking.command,
        "region": booking.region,
        "note": share.note or None,
    }
