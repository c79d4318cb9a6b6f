"""The tables of ``pumice ps`` and ``pumice top`` in terminals of any width: what is needed most stays."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.unit.local.test_several_cards import CARDS, booked

from pumice.cli.local_view import shares_table
from pumice.local.place import Place
from pumice.local.request import Request
from pumice.local.shares import CardShare, Share

MIB = 1 << 20


def share(number: str, *cards: str, command: str = "python train.py --epochs 90 --data /srv/imagenet") -> Share:
    booking = msgspec.structs.replace(
        booked(Request(memory=4471, cores=40, cards=cards, count=len(cards)), number, CARDS), pid=4194303, command=[command]
    )
    allocated = tuple(CardShare(card, device, 3152 * MIB, 40) for card, device in booking.allocated)
    return Share(booking, Place(Path("/m/run"), Path("/m")), (booking.pid,), allocated)


def printed(width: int, wide: bool = False) -> list[str]:
    console = Console(width=width or 500, force_terminal=False, highlight=False, record=True)
    with console.capture() as shown:
        console.print(shares_table([share("r1", "0"), share("r20", "0", "1")], width, wide))
    return [line.rstrip() for line in shown.get().splitlines()]


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200])
def test_numbers_stay_whole_in_every_terminal_and_no_row_is_longer_than_it(width: int) -> None:
    head, *rows = printed(width)
    assert len(rows) == 3
    assert head.split() == ["ID", "PID", "CARD", "MEMORY", "CORES", "COMMAND"]
    for row in rows:
        assert len(row) <= width
        assert "3152/4471 MiB" in row
        assert "40/40 %" in row
    assert re.match(r"r20 +4194303  0", rows[1])
    assert "python trai" in rows[0]


def test_bars_and_commands_use_the_room_there_is() -> None:
    bars = {width: printed(width)[1].count("█") for width in (60, 80, 120)}
    assert 0 == bars[60] < bars[80] < bars[120]
    assert printed(0)[1].endswith("--data /srv/imagenet")
    assert printed(90)[1].endswith("…")
