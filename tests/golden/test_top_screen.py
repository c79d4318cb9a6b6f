"""The screen of ``pumice top`` without a terminal: what is drawn is the page, keys and mouse choose, dialogs fit.

`python -m tests.golden.test_top_screen` writes the dialogs' file anew; read its diff before you keep it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kit.top_picture import BEGAN, sample
from textual.events import Key
from textual.pilot import Pilot

from pumice.cli.screen.app import Top
from pumice.cli.screen.dialogs import Confirm, Help, Limits, Signals
from pumice.cli.screen.page import machine_page
from pumice.cli.screen.polling import Machine
from pumice.cli.screen.samples import History, Sample
from pumice.cli.screen.view import View

HERE = Path(__file__).parent / "screens"
SIZES = ((40, 20), (80, 24), (200, 60))


@dataclass(slots=True)
class Played(Machine):
    """A machine whose looks are played, of which each waits until it is let go on."""

    where: Sequence[object] = ()  # type: ignore[assignment]
    cards: None = None
    place: None = None
    go_on: threading.Event = field(default_factory=threading.Event)
    looks: int = 0

    def look(self, now: float) -> Sample:
        self.go_on.wait()
        self.looks += 1
        return sample(0)


def played(hangs: bool = False) -> Played:
    machine = Played()
    if not hangs:
        machine.go_on.set()
    return machine


def lines(pilot: Pilot[int]) -> list[str]:
    """What stands on the screen, whatever lies over what."""
    return [strip.text for strip in pilot.app.screen._compositor.render_strips(pilot.app.size)]


async def shows(pilot: Pilot[int], words: str) -> list[str]:
    deadline = time.monotonic() + 60
    while not any(words in line for line in lines(pilot)):
        assert time.monotonic() < deadline, "\n".join(lines(pilot))
        await pilot.pause(0.01)
    return lines(pilot)


def play(story: Callable[[Pilot[int]], Awaitable[None]], size: tuple[int, int] = (80, 24), machine: Played | None = None,
         kubeconfig: Path | None = None, clock: Callable[[], float] = lambda: BEGAN) -> None:  # fmt: skip
    there = machine or played()

    async def run() -> None:
        app = Top(there, kubeconfig, "machine", 60.0, clock)
        async with app.run_test(size=size) as pilot:
            if there.go_on.is_set():
                await shows(pilot, "PROGRAMS" if size[0] >= 40 else "needs")
            await story(pilot)
        there.go_on.set()

    asyncio.run(run())


@pytest.mark.parametrize("size", SIZES)
def test_what_is_drawn_is_the_page_between_the_tabs_and_the_keys(size: tuple[int, int]) -> None:
    remembered = History()
    remembered.add(sample(0))
    page = machine_page(sample(0), remembered, View(), {}, size[0], size[1] - 2)

    async def story(pilot: Pilot[int]) -> None:
        await shows(pilot, "tritonserver" if size[0] > 80 else "PROGRAMS (4)")
        head, *middle, foot = lines(pilot)
        assert head.startswith(" 1 machine ")
        assert foot.startswith("? help  q quit")
        assert [line.rstrip() for line in middle][: len(page.lines)] == [line.plain.rstrip() for line in page.lines]

    play(story, size)


def test_a_screen_of_twenty_columns_says_what_is_needed_and_takes_the_key_that_ends_it() -> None:
    async def story(pilot: Pilot[int]) -> None:
        assert "pumice top needs a terminal of 40 columns" in " ".join(" ".join(lines(pilot)).split())
        await pilot.resize_terminal(80, 24)
        await shows(pilot, "PROGRAMS (4)")
        await pilot.resize_terminal(20, 24)
        await shows(pilot, "needs")
        await pilot.press("q")
        assert pilot.app.return_value == 0

    play(story, (20, 24))


def test_keys_sort_turn_round_group_and_filter() -> None:
    async def story(pilot: Pilot[int]) -> None:
        await pilot.press("s")
        await shows(pilot, "by memory, tree by card")
        await pilot.press("r", "t")
        await shows(pilot, "by memory, reversed, tree by user")
        await pilot.press("slash", *"anna tr")
        found = await shows(pilot, "PROGRAMS (1 of 4)")
        assert not any("torchrun" in line for line in found)
        await pilot.press("enter", "s")
        await shows(pilot, "by cores, tree by user  filter: anna tr")
        await pilot.press("escape")
        await shows(pilot, "PROGRAMS (4)")

    play(story)


def test_keys_that_come_all_at_once_are_taken_in_their_order() -> None:
    """As over a slow line, where the terminal hands many over together."""

    async def story(pilot: Pilot[int]) -> None:
        await pilot.press("slash")
        driver = pilot.app._driver
        assert driver is not None
        for key in (*"xy", "backspace", "backspace", *"annb", "backspace", *"a tr"):
            driver.send_message(Key(key, key if len(key) == 1 else None))
        await shows(pilot, "PROGRAMS (1 of 4) by id, tree by card  filter: anna tr")

    play(story)


def test_a_click_selects_a_program_a_title_sorts_and_the_wheel_goes_on() -> None:
    async def story(pilot: Pilot[int]) -> None:
        there = await shows(pilot, "torchrun")
        row = next(y for y, line in enumerate(there) if "torchrun" in line)
        await pilot.click(offset=(10, row))
        assert "▸ r2" in (await shows(pilot, "▸"))[row]
        title = next(y for y, line in enumerate(there) if "MEMORY" in line)
        await pilot.click(offset=(there[title].index("MEMORY") + 1, title))
        await shows(pilot, "by memory, tree")
        await pilot.click(offset=(there[title].index("MEMORY") + 1, title))
        await shows(pilot, "by memory, reversed")

    play(story)


def test_a_driver_that_hangs_leaves_the_screen_alive_and_is_told_of() -> None:
    now = [BEGAN]
    machine = played()

    async def story(pilot: Pilot[int]) -> None:
        now[0] = BEGAN + 500
        await shows(pilot, "the driver has not answered for 500 s")
        await pilot.press("t")
        await shows(pilot, "tree by user")

    play(story, machine=machine, clock=lambda: now[0])


def test_on_a_page_of_a_cluster_nothing_is_done_to_a_program(tmp_path: Path) -> None:
    """Nor is the page empty where the cluster does not answer: it says so, and the machine's page goes on."""
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("""{apiVersion: v1, kind: Config, current-context: a,
contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: a, user: {}}]}""")

    async def story(pilot: Pilot[int]) -> None:
        await pilot.press("2")
        await shows(pilot, "the cluster does not answer")
        for key in ("x", "l"):
            await pilot.press(key)
            await shows(pilot, "signals and limits are for programs of this machine, on its page")
            await pilot.press("j")
        await pilot.press("1")
        await shows(pilot, "PROGRAMS (4)")

    play(story, kubeconfig=nowhere)


def test_a_process_that_is_gone_or_has_no_share_is_said_to_be_so() -> None:
    """The played programs are in no book: there is nothing to be signalled and no limit to be changed."""

    async def story(pilot: Pilot[int]) -> None:
        await pilot.press("x")
        await shows(pilot, "select a program first")
        await pilot.press("j", "x")
        await shows(pilot, "r1: no process of it is known any more")
        await pilot.press("end", "l")
        await shows(pilot, "process 777 has no share: only programs of")

    play(story)


DIALOGS: dict[str, Callable[[], Help | Signals | Limits | Confirm]] = {
    "help": Help,
    "signals": lambda: Signals("r20: python train.py --epochs 90 --data /srv/imagenet"),
    "limits": lambda: Limits("r20 on card 0, 1: torchrun serve.py", "3000,8000", "50"),
    "confirm": lambda: Confirm("Send SIGKILL to r20, processes 4711, 4712?\npython train.py --epochs 90 --data /srv/imagenet"),
}
SEEN = {"help": "Pages", "signals": "SIGKILL", "limits": "50 ", "confirm": "y: yes"}


def dialogs() -> str:
    found: list[str] = []
    for size in SIZES:
        for name, made in DIALOGS.items():

            async def story(pilot: Pilot[int], name: str = name, made: Callable[[], Help | Signals | Limits | Confirm] = made,
                            size: tuple[int, int] = size) -> None:  # fmt: skip
                pilot.app.push_screen(made())
                there = await shows(pilot, SEEN[name])
                box = [line for line in there if "│" in line or "╭" in line or "╰" in line]
                left = min(line.find(mark) for line in box for mark in "│╭╰" if mark in line)
                right = max(max(line.rfind(mark) for mark in "│╮╯") for line in box)
                found.append(f"== {name}, {size[0]} x {size[1]}")
                found.extend(line[left : right + 1].rstrip() for line in box)

            play(story, size)
    return "\n".join(found) + "\n"


def test_a_dialog_is_what_it_was_in_every_terminal() -> None:
    assert dialogs() == (HERE / "top_dialogs.txt").read_text()


if __name__ == "__main__":
    (HERE / "top_dialogs.txt").write_text(dialogs())
