"""The program that shows the pages of ``pumice top``: keys and mouse by Textual, which is imported with this module alone.

Lines of text on a terminal, by Textual: what an idle screen costs is decided here.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from pumice.cli.screen.actions import Actions
from pumice.cli.screen.dialogs import STYLE, Confirm, Field, Help, Limits, Signals
from pumice.cli.screen.page import EVERY, ClusterSample, Page, cluster_page, lines_of, machine_page, padded, too_small
from pumice.cli.screen.page import look as look_at_cluster
from pumice.cli.screen.polling import Machine, Poller
from pumice.cli.screen.samples import History, Program, Sample
from pumice.cli.screen.view import SORTS, TREES, View, in_sight, moved, next_of, rows, selected
from pumice.cli.top_tabs import Sources
from pumice.model.errors import BadInput, PumiceError


class Canvas(Widget):
    """Lines of text, of which those are drawn anew that have changed."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Text] = []

    def show(self, lines: list[Text]) -> None:
        """Show these lines instead."""
        before, self.lines = self.lines, lines
        changed = [y for y, (old, new) in enumerate(zip_longest(before, lines))
                   if old is None or new is None or old != new or old.style != new.style]  # fmt: skip
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Return one line for the terminal."""
        width = self.size.width
        if y >= len(self.lines):
            return Strip.blank(width, self.rich_style)
        return Strip(self.lines[y].render(self.app.console)).adjust_cell_length(width).apply_style(self.rich_style)


Taken = TypeVar("Taken")
MACHINE, PODS, QUEUES = "machine", "pods", "queues"
HINTS = "? help  q quit  ↑↓ select  x signal  l limit  s sort  t tree  / filter"
CLUSTER_HINTS = "? help  q quit  ↑↓ scroll  tab next page  / filter"


class Watch(Screen[None]):
    """The pages. Keys change what is seen; whatever is done to a program is asked once more before."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,Q,ctrl+d", "leave(0)"), Binding("ctrl+c", "leave(130)", priority=True),
        Binding("tab,right,n", "page(1)"), Binding("shift+tab,left,p", "page(-1)"),
        *(Binding(str(number), f"page_of({number})") for number in range(1, 4)),
        Binding("down,j", "move(1)"), Binding("up,k", "move(-1)"), Binding("pagedown", "move(10)"),
        Binding("pageup", "move(-10)"), Binding("home,g", "move(-100000)"), Binding("end,G", "move(100000)"),
        Binding("s", "sort(1)"), Binding("S", "sort(-1)"), Binding("r", "reverse"), Binding("t", "tree"),
        Binding("slash", "filter"), Binding("escape", "plain"), Binding("x", "signal"),
        Binding("l", "limit"), Binding("question_mark,h,f1", "help"),
    ]  # fmt: skip

    def __init__(self, machine: Machine | None, kubeconfig: Path | None, tabs: list[str], view: View, every: float,
                 clock: Callable[[], float]) -> None:  # fmt: skip
        super().__init__()
        self.machine, self.kubeconfig, self.tabs, self.every, self.clock = machine, kubeconfig, tabs, every, clock
        self.view = view
        self.sample, self.history = Sample(0.0, trouble="looking at the cards …"), History()
        self.asked: dict[str, ClusterSample] = {}
        self.troubles: dict[str, str] = {}
        self.seen = Page([])
        self.actions = Actions(machine) if machine is not None else None
        self.looks: list[Poller] = []

    # -- what is seen

    def compose(self) -> ComposeResult:
        """Build the screen: the lines, and the field of the filter over the last of them."""
        yield Canvas()
        yield Field(placeholder="id, pid, user, pod or command; Enter, Esc", id="filter")

    def on_mount(self) -> None:
        """Begin to look."""
        loop = asyncio.get_running_loop()
        if (machine := self.machine) is not None:
            self.looks.append(Poller(lambda: self._hand(loop, self.took, machine.look(self.clock())), self.every))
        if self.kubeconfig is not None:
            self.looks.append(Poller(lambda: self._ask(loop), EVERY))
        for look in self.looks:
            look.start()
        self._want()
        self.set_interval(min(1.0, self.every), self.tick)
        self.query_one(Input).can_focus = False
        self.draw()

    def on_unmount(self) -> None:
        """End the looks."""
        for look in self.looks:
            look.end()

    @staticmethod
    def _hand(loop: asyncio.AbstractEventLoop, to: Callable[[Taken], None], taken: Taken) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(to, taken)

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self.kubeconfig is not None
        tab = self.view.tab
        if tab != MACHINE:
            found = look_at_cluster(self.kubeconfig, tab, self.clock())
            self._hand(loop, lambda sample: self.answered(tab, sample), found)

    def _want(self) -> None:
        for look in self.looks:
            of_machine = look is self.looks[0] and self.machine is not None
            if of_machine or self.view.tab != MACHINE:
                look.wanted.set()
                look.soon()
            else:
                look.wanted.clear()

    def took(self, sample: Sample) -> None:
        """Take in a look at the machine. One that failed leaves the figures of the last one, with the reason."""
        if sample.trouble and (self.sample.cards or self.sample.programs):
            self.sample = replace(self.sample, trouble=f"as of {sample.at - self.sample.at:.0f} s ago: {sample.trouble}")
        else:
            self.sample = sample
            self.history.add(sample)
        self.draw()

    def answered(self, tab: str, sample: ClusterSample) -> None:
        """Take in an answer of the cluster, as ``took`` does."""
        self.troubles[tab] = sample.trouble
        if not sample.trouble:
            self.asked[tab] = sample
        self.draw()

    def tick(self) -> None:
        """Let the clock go on, and tell of a driver that is silent."""
        silent = self.clock() - self.sample.at
        if self.sample.at and silent > 3 * self.every + 3:
            self.sample = replace(self.sample, trouble=f"the driver has not answered for {silent:.0f} s")
        self.draw()

    @property
    def pods(self) -> dict[str, str]:
        """Names of pods by UID, as far as the cluster was asked."""
        return dict(self.asked[PODS].pods) if PODS in self.asked else {}

    def draw(self) -> None:
        """Show the page that is chosen, made of what is known."""
        width, height = self.size
        if not width or not height:
            return
        canvas = self.query_one(Canvas)
        if small := too_small(width, height):
            self.seen = small
            canvas.show(small.lines)
            return
        now = self.clock()
        if self.view.tab == MACHINE:
            self.view = in_sight(self.view, rows(self.sample, self.view, self.pods), max(1, self.seen.body))
            self.seen = machine_page(self.sample, self.history, self.view, self.pods, width, height - 2)
        else:
            tab = self.view.tab
            self.seen = cluster_page(self.asked.get(tab), self.view, width, height - 2, now, self.troubles.get(tab, ""))
        lines = [*self.seen.lines[: height - 2]]
        lines += [Text(" " * width)] * (height - 2 - len(lines))
        canvas.show([padded(self._tabs(now), width), *lines, padded(self._foot(), width)])

    def _tabs(self, now: float) -> Text:
        line = Text()
        for number, name in enumerate(self.tabs, start=1):
            line.append(f" {number} {name} ", "reverse" if name == self.view.tab else "")
        line.append(time.strftime("  %H:%M:%S", time.localtime(now)), "dim")
        return line

    def _foot(self) -> Text:
        if self.view.message:
            return Text(self.view.message, "yellow")
        return Text(HINTS if self.view.tab == MACHINE else CLUSTER_HINTS, "dim")

    def on_resize(self, _: events.Resize) -> None:
        """Make the page for the new size."""
        self.draw()

    # -- keys and mouse

    def action_leave(self, code: int) -> None:
        """End the screen."""
        self.app.exit(code)

    def action_page(self, by: int) -> None:
        """Show the next page."""
        self._turn_to(next_of(self.tabs, self.view.tab, by))

    def action_page_of(self, number: int) -> None:
        """Show the page of this number."""
        if number <= len(self.tabs):
            self._turn_to(self.tabs[number - 1])

    def _turn_to(self, tab: str) -> None:
        self.view = replace(self.view, tab=tab, first=0, message="", filter="")
        self._want()
        self.draw()

    def action_move(self, by: int) -> None:
        """Select another row, or scroll a page that has none to select."""
        if self.view.tab == MACHINE:
            self.view = moved(self.view, rows(self.sample, self.view, self.pods), by, self.seen.body)
        else:
            there = lines_of(self.asked.get(self.view.tab), self.view, self.size.width)
            self.view = replace(self.view, first=max(0, min(there - self.seen.body, self.view.first + by)))
        self._say("")

    def action_sort(self, by: int) -> None:
        """Sort by the next column."""
        self.view = replace(self.view, sort=next_of(list(SORTS), self.view.sort, by), reverse=False)
        self._say("")

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.view = replace(self.view, reverse=not self.view.reverse)
        self._say("")

    def action_tree(self) -> None:
        """Make a tree by something else."""
        self.view = replace(self.view, tree=next_of(TREES, self.view.tree))
        self._say("")

    def action_filter(self) -> None:
        """Open the field of the filter."""
        field = self.query_one(Input)
        field.value, field.can_focus = self.view.filter, True
        field.add_class("open")
        field.focus()

    def action_plain(self) -> None:
        """Close the field of the filter and show everything."""
        self._close_field()
        self.view = replace(self.view, filter="")
        self._say("")

    def _close_field(self) -> None:
        field = self.query_one(Input)
        field.remove_class("open")
        field.can_focus = False
        self.set_focus(None)

    @on(Input.Changed)
    def filter_by(self, event: Input.Changed) -> None:
        """Show what matches while it is typed."""
        if event.input.has_class("open"):
            self.view = replace(self.view, filter=event.value, first=0)
            self.draw()

    @on(Input.Submitted)
    def keep_filter(self) -> None:
        """Go on with what the field says."""
        self._close_field()

    def on_click(self, event: events.Click) -> None:
        """Select what is clicked: a page, a column to sort by, a program; a second click on a program asks for its signal."""
        y = event.y - 1
        if event.y == 0:
            at = 0
            for name in self.tabs:
                at += len(name) + 4
                if event.x < at:
                    self._turn_to(name)
                    return
        elif y == self.seen.head:
            for begin, end, sort in self.seen.sorts:
                if begin <= event.x < end:
                    turned = not self.view.reverse if sort == self.view.sort else False
                    self.view = replace(self.view, sort=sort, reverse=turned)
                    self._say("")
                    return
        elif key := self.seen.at.get(y):
            self.view = replace(self.view, selected=key)
            self._say("")

    def on_mouse_scroll_down(self) -> None:
        """Go on by a row."""
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        """Go back by a row."""
        self.action_move(-1)

    def action_help(self) -> None:
        """Show what the keys do."""
        self.app.push_screen(Help())

    def _say(self, message: str) -> None:
        self.view = replace(self.view, message=message)
        self.draw()

    # -- what is done to a program

    def _chosen(self) -> Program | None:
        """The selected program, on the machine's page alone: of a pod's page there is nothing to be done to."""
        if self.view.tab != MACHINE or self.actions is None:
            self._say("signals and limits are for programs of this machine, on its page")
            return None
        found = selected(self.view, rows(self.sample, self.view, self.pods))
        if found is None:
            self._say("select a program first: ↑ and ↓, or a click")
        return found

    def action_signal(self) -> None:
        """Ask which signal, and then whether it is meant."""
        if (program := self._chosen()) is None or self.actions is None:
            return
        actions = self.actions
        try:
            wish = actions.aim(program)
        except PumiceError as error:
            self._say(str(error).splitlines()[0])
            return

        def picked(number: signal.Signals | None) -> None:
            if number is not None:
                self._confirm(wish.question(number), lambda: actions.send(wish, number))

        self.app.push_screen(Signals(wish.title), picked)

    def action_limit(self) -> None:
        """Ask for the new limits, and then whether they are meant."""
        if (program := self._chosen()) is None or self.actions is None:
            return
        actions = self.actions
        try:
            wish = actions.limits(program)
        except PumiceError as error:
            self._say(str(error).splitlines()[0])
            return

        def given(words: tuple[str, str] | None) -> None:
            if words is None:
                return
            try:
                question = wish.question(*words)
            except BadInput as error:
                self._say(str(error).splitlines()[0])
                return
            self._confirm(question, lambda: actions.change(wish, *words))

        self.app.push_screen(Limits(wish.title, wish.memory, wish.cores), given)

    def _confirm(self, question: str, deed: Callable[[], str]) -> None:
        def answered(meant: bool | None) -> None:
            if not meant:
                self._say("nothing was done")
                return
            self._say("…")
            self.run_worker(self._do(deed), exclusive=False)

        self.app.push_screen(Confirm(question), answered)

    async def _do(self, deed: Callable[[], str]) -> None:
        """Do it in a thread, for the books may be locked for seconds, and say what came of it."""
        try:
            said = await asyncio.to_thread(deed)
        except PumiceError as error:
            said = " ".join(str(error).split())
        self._say(said)
        for look in self.looks:
            look.soon()


class Top(App[int]):
    """The screen of ``pumice top``. It ends with an exit code, 130 for Ctrl-C."""

    ENABLE_COMMAND_PALETTE = False
    CSS = f"""{STYLE}
    #filter {{ dock: bottom; border: none; padding: 0; height: 1; display: none; }}
    #filter.open {{ display: block; }}
    """
    TITLE = "pumice top"

    def __init__(self, machine: Machine | None, kubeconfig: Path | None, tab: str, every: float,
                 clock: Callable[[], float] = time.time) -> None:  # fmt: skip
        super().__init__()
        tabs = [*([MACHINE] if machine is not None else []), *([PODS, QUEUES] if kubeconfig is not None else [])]
        self._watch = Watch(machine, kubeconfig, tabs, View(tab if tab in tabs else tabs[0]), every, clock)

    def get_default_screen(self) -> Screen[None]:
        """Return the pages."""
        return self._watch

    def on_mount(self) -> None:
        """Let the terminal be as it was before, whichever way it ends."""
        if not self.is_headless:
            threading.Thread(target=end_with_the_terminal, daemon=True).start()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.exit, 128 + number)


def end_with_the_terminal() -> None:
    """End the process once nobody is at the terminal any more. At once: what Textual would write on its way out nobody takes, and
    it waits until somebody does."""
    poll = select.poll()
    poll.register(0, 0)  # only what is told unasked: that the other end is gone
    poll.poll()
    os._exit(0)


def watch(sources: Sources, tabs: Sequence[str], tab: str, every: float) -> int:
    """Show the screen until it is left, and return its exit code. ``tabs``: of what there is something to show."""
    machine = Machine(sources.where, sources.cards, sources.place) if {"cards", "processes"} & {*tabs} else None
    return Top(machine, sources.kubeconfig, tab, every).run() or 0
