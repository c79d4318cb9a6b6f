"""``pumice top``: watch cards and who uses them. Its tabs are what is present."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pumice.cli import flags
from pumice.cli.daemon import DATA_DIR
from pumice.cli.local_view import EMULATED
from pumice.cli.output import Output
from pumice.cli.tables import wide_console
from pumice.cli.top_tabs import Tab, sources, tabs
from pumice.model.errors import BadInput, PumiceError

QUIT = ("q", "Q", "\x03", "\x04")
NEXT = ("\t", "\x1b[C", "n")
BACK = ("\x1b[Z", "\x1b[D", "p")

app = flags.App()


@app.command(epilog="Examples: pumice top;  pumice top --tab processes --once;  pumice top -o json")
def top(
    tab: Annotated[str | None, flags.Option(help="The tab to begin with: cards, processes, pods or queues.")] = None,
    once: Annotated[bool, flags.Option("--once", help="Print one frame and end.")] = False,
    output: Annotated[Output, flags.Option("--output", "-o", help="json: one frame for programs.")] = Output.TEXT,
    every: Annotated[float, flags.Option(min=0.1, max=60, help="Seconds between two looks.")] = 1.0,
    plain: Annotated[bool, flags.Option("--plain", help="Only tables, as without the extra `top`.")] = False,
    kubeconfig: Annotated[Path | None, flags.Option(help="Also pods and queues of this cluster.")] = None,
    emulated: EMULATED = None,
    data_dir: DATA_DIR = None,
) -> None:
    """Watch cards, programs, pods and queues live. With the extra `top`: bars, graphs, sorted and filtered; programs get signals
    and other limits; ? says how. Without it: tables, of which tab or 1 to 4 show another; q ends both."""
    if kubeconfig is not None:
        from pumice.cli.daemon import find_access

        find_access(kubeconfig)  # raises where it is none
    with contextlib.ExitStack() as stack:
        there = sources(stack, emulated, data_dir, kubeconfig)
        present = tabs(there)
        at = _named(present, tab) if tab else 0
        if output is Output.JSON:
            print(json.dumps({page.name: page.data() for page in ([present[at]] if tab else present)}, indent=1))
            return
        console, width = wide_console()
        if once or not console.is_terminal or not sys.stdin.isatty():
            shown = present[at : at + 1] if tab else present
            for page in shown:
                console.print(Text(page.title, style="bold"), _page(page, width), sep="\n")
            return
        if not plain and not console.is_dumb_terminal and importlib.util.find_spec("textual"):
            from pumice.cli.screen.app import watch

            stack.pop_all()  # a look may hang in the driver; the end of the process closes it
            code = watch(there, [page.name for page in present], present[at].name, every)
            if code == 128 + signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(code)
        _live(console, present, at, every)


def _named(present: list[Tab], name: str) -> int:
    names = [page.name for page in present]
    if name.lower() not in names:
        raise BadInput(f"--tab {name}: present are {', '.join(names)}")
    return names.index(name.lower())


def _live(console: Console, present: list[Tab], at: int, every: float) -> None:
    with _keys() as read_key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_frame(present, at, console.width), refresh=True)
            key = read_key(every)
            if key in QUIT:
                return
            if key.isdigit() and 1 <= int(key) <= len(present):
                at = int(key) - 1
            elif key in NEXT or key in BACK:
                at = (at + (1 if key in NEXT else -1)) % len(present)


def _frame(present: list[Tab], at: int, width: int) -> RenderableType:
    head = Text()
    for number, page in enumerate(present, start=1):
        head.append(f" [{number}] {page.title} ", style="reverse" if number == at + 1 else "")
    head.append(f"   {time.strftime('%H:%M:%S')}   q quits", style="dim")
    return Group(head, Text(), _page(present[at], width))


def _page(page: Tab, width: int) -> RenderableType:
    """The page, or the sentence why it cannot be had now: a daemon that goes away must not end the watch."""
    try:
        return page.render(width)
    except PumiceError as error:
        return Text(str(error), style="yellow")


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits so many seconds for a key and returns it, or nothing; the terminal is as before afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    def read(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        if not ready:
            return ""
        pressed = os.read(descriptor, 16)
        if not pressed:
            raise SystemExit(0)  # nobody is at the terminal any more
        return pressed.decode("utf-8", "replace")

    found = signal.signal(signal.SIGTERM, end)  # ended by it at once, the terminal would stay as it is now
    try:
        tty.setcbreak(descriptor)
        yield read
    finally:
        signal.signal(signal.SIGTERM, found)
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
