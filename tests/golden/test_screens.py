"""Tables of programs and queues as terminals of several widths and a pipe show them: no digit is lost, no column of a wide one.

`python -m tests.golden.test_screens` writes the files anew; read their diff before you keep it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.unit.cli.test_local_tables import share

from pumice.cli.explain_workloads import queues_table
from pumice.cli.local_view import WIDE
from pumice.cli.ps import show
from pumice.local.place import Place
from pumice.local.shares import CardShare, Share
from pumice.scheduler.explaining.queues import CardUse, QueueView

HERE = Path(__file__).parent / "screens"
WIDTHS = (40, 60, 80, 120, 200, 0)
"""Characters of the terminal; 0 is a pipe."""
MIB = 1 << 20
MEMORY = "volcano.sh/vgpu-memory"


def programs() -> list[Share]:
    """One with a bar half full, and one on two cards, of a user and with a command that are long."""
    found = []
    for one in (share("r1", "0"), share("r20", "0", "1")):
        booking = msgspec.structs.replace(one.booking, user=4_000_000_000, created=1_800_000_000.0,
                                          region="/run/user/1000/pumice/regions/r1.cache")  # fmt: skip
        allocated = tuple(CardShare(each.card, each.device, 3152 * MIB, 40) for each in one.cards)
        found.append(Share(booking, Place(Path("/m/run"), Path("/m")), (booking.pid,), allocated))
    return found


def queues() -> list[QueueView]:
    """Amounts of five digits, a queue with a long name below another, and a type of card."""
    deserved, used = {MEMORY: 64_000_000, "cpu": 22_356}, {MEMORY: 22_356_000, "cpu": 7_500}
    cards = (CardUse("NVIDIA-Tesla-V100", 16, 2.56, 4, 3),)
    long = "natural-language-processing"
    return [
        QueueView("default", "", 0, "Open", 1, 0, 0, {}, {}, {}, {}, {}, {}, {}),
        QueueView("research", "", 0, "Open", 1, 4, 3, {}, deserved, {}, deserved, used, {}, {MEMORY: 41_000_000}, (), cards),
        QueueView(long, "research", 1, "Closing", 1, 1, 120, {}, deserved, deserved, deserved, used, {"cpu": 500}, used),
    ]


def ps(wide: bool) -> Callable[[Console, int], None]:
    return lambda console, width: show(programs(), console, width, wide=wide)


SCREENS: dict[str, Callable[[Console, int], None]] = {
    "ps": ps(wide=False),
    "ps_wide": ps(wide=True),
    "top_queues": lambda console, width: console.print(queues_table(queues(), width)),
}


def shown(draw: Callable[[Console, int], None], width: int) -> list[str]:
    console = Console(width=width or 500, force_terminal=bool(width), color_system=None, highlight=False)
    with console.capture() as text:
        draw(console, width)
    return [line.rstrip() for line in text.get().splitlines()]


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)


def whole(name: str) -> str:
    parts = ((f"== {width} characters" if width else "== a pipe", *shown(SCREENS[name], width)) for width in WIDTHS)
    return "\n".join(line for part in parts for line in part) + "\n"


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_what_it_was(name: str) -> None:
    assert whole(name) == (HERE / f"{name}.txt").read_text()


@pytest.mark.parametrize("width", [*range(36, 130), 200])
@pytest.mark.parametrize("name", SCREENS)
def test_a_terminal_however_narrow_shows_a_figure_whole_or_with_a_mark(name: str, width: int) -> None:
    figures = {figure for line in shown(SCREENS[name], 0) for figure in line.split()}
    lines = shown(SCREENS[name], width)
    assert name == "ps_wide" or max(map(len, lines)) <= width
    for word in (word for line in lines for word in line.split()):
        assert "█" in word or "░" in word or "…" in word or word in figures, f"{word!r} is a piece of something"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_wide_table_has_every_column_in_every_terminal(width: int) -> None:
    head, *rows = shown(SCREENS["ps_wide"], width)
    assert tuple(head.split()) == WIDE
    assert re.match(r"r1 +4194303  4000000000  1 ", rows[0])
    assert rows == shown(SCREENS["ps_wide"], 0)[1:]


if __name__ == "__main__":
    for name in SCREENS:
        (HERE / f"{name}.txt").write_text(whole(name))
