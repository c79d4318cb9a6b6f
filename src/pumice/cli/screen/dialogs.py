"""The dialogs of ``pumice top``: which signal, which limits, whether it is meant, and help."""

from __future__ import annotations

import signal
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static

from pumice.local.permissions import SIGNALS

Answer = TypeVar("Answer")
MEANINGS = {signal.SIGINT: "interrupt, as Ctrl-C", signal.SIGTERM: "ask to end", signal.SIGHUP: "hang up",
            signal.SIGKILL: "end it now"}  # fmt: skip
HELP = """\
Pages      1 2 3, Tab, ← →, or a click
Select     ↑ ↓, j k, Page up and down, Home, End,
           a click, the mouse wheel
s S        sort by the next or the last column;
           a click on a title does, too
r          turn the order round
t          tree by card, user, pod, or none
/          filter; Enter keeps it, Esc ends it
x          send the selected program a signal
l          change its limits while it runs
q          quit

█ used   ▒ promised beyond it   ░ free   ? not known
Green: below 80 % of the limit, red: from 95 %.
A graph's right end is now; its lowest dot is nothing,
no dot at all is not known.

Signals and limits are for root and for whom the
program belongs to, and are logged (actions.log beside
the shares). A program of a pod is for root alone."""


STYLE = """
Dialog { align: center middle; }
Dialog > Vertical { width: 70; max-width: 100%; height: auto; max-height: 100%; padding: 0 1; border: round $primary; }
Dialog Button { height: 1; min-width: 10; border: none; margin: 0 1 0 0; }
Dialog Button:focus { text-style: reverse; }
Dialog OptionList { height: auto; border: none; padding: 0; }
Dialog Input { height: 1; border: none; padding: 0; }
Dialog Static { height: auto; }
Dialog VerticalScroll { height: auto; max-height: 20; }
"""


class Field(Input):
    """A field that takes keys in the order in which they came. Textual takes letters at once, and what deletes or moves behind
    all that waits; over a slow line many keys come together."""

    AT_ONCE: ClassVar[dict[str, str]] = {
        "backspace": "delete_left", "delete": "delete_right", "left": "cursor_left", "right": "cursor_right", "home": "home",
        "end": "end", "ctrl+a": "home", "ctrl+e": "end", "ctrl+d": "delete_right", "ctrl+k": "delete_right_all",
        "ctrl+u": "delete_left_all", "ctrl+w": "delete_left_word",
    }  # fmt: skip

    async def _on_key(self, event: Key) -> None:
        if action := self.AT_ONCE.get(event.key):
            event.stop()
            event.prevent_default()
            getattr(self, f"action_{action}")()
        else:
            await super()._on_key(event)


class Dialog(ModalScreen[Answer]):
    """A box in the middle; Esc leaves it without an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave"), Binding("ctrl+c", "end", priority=True),
        # at once, so that what is typed behind it meets the next field
        Binding("tab", "app.focus_next", priority=True), Binding("shift+tab", "app.focus_previous", priority=True),
    ]  # fmt: skip

    def action_leave(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)

    def action_end(self) -> None:
        """End the program, as Ctrl-C does elsewhere."""
        self.app.exit(130)


class Help(Dialog[None]):
    """A list of the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,question_mark,h,f1,enter", "leave")]

    def compose(self) -> ComposeResult:
        """Build it."""
        with Vertical(), VerticalScroll():
            yield Static(Text(HELP))


class Signals(Dialog[signal.Signals]):
    """A choice of signals."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._about = title

    def compose(self) -> ComposeResult:
        """Build it."""
        with Vertical():
            yield Static(Text(self._about))
            yield OptionList(*(Text(f"{number.name}  {MEANINGS[number]}") for number in SIGNALS))

    @on(OptionList.OptionSelected)
    def pick(self, event: OptionList.OptionSelected) -> None:
        """Answer with what was picked."""
        self.dismiss(SIGNALS[event.option_index])


class Limits(Dialog[tuple[str, str]]):
    """Two fields for limits, beginning with those that hold."""

    def __init__(self, title: str, memory: str, cores: str) -> None:
        super().__init__()
        self._about, self._memory, self._cores = title, memory, cores

    def compose(self) -> ComposeResult:
        """Build it."""
        with Vertical():
            yield Static(Text(self._about))
            yield Static(Text("Memory: MiB, 3GiB or 25%", "dim"))
            yield Field(self._memory, id="memory")
            yield Static(Text("Cores in percent, 0: no limit. Enter goes on, Esc leaves", "dim"))
            yield Field(self._cores, id="cores")

    @on(Input.Submitted)
    def give(self) -> None:
        """Answer with what the fields say."""
        self.dismiss((self.query_one("#memory", Input).value.strip(), self.query_one("#cores", Input).value.strip()))


class Confirm(Dialog[bool]):
    """A question whether it is meant: only y, or the button, says so."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "answer(True)"), Binding("n,q", "answer(False)")]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Build it. No is what Enter means."""
        with Vertical():
            yield Static(Text(self._question))
            yield Button("n: no", id="no")
            yield Button("y: yes", id="yes")

    @on(Button.Pressed)
    def press(self, event: Button.Pressed) -> None:
        """Answer by a button."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, meant: bool) -> None:
        """Answer by a key."""
        self.dismiss(meant)
