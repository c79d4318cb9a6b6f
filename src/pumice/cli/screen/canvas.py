"""Lines of text on a terminal, by Textual: what an idle screen costs is decided here."""

from __future__ import annotations

from itertools import zip_longest

from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


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
