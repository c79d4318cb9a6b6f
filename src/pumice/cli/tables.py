"""Tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

GAP = 2
"""Blanks between two columns."""


def wide_console() -> tuple[Console, int]:
    """A console and the width to which tables are cut; 0 where nobody's terminal bounds the lines."""
    console = Console(highlight=False)
    return (console, console.width) if console.is_terminal else (Console(highlight=False, width=500), 0)


def print_whole(console: Console, table: Table) -> None:
    """Print a table with every column as wide as it needs. In a narrower terminal the lines run on: columns that are squeezed
    lose digits, or vanish."""
    unbounded = console.options.update(max_width=10_000)
    console.width = max(console.width, Measurement.get(console, unbounded, table).maximum)
    console.print(table, soft_wrap=True)


def width_of(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return what each column needs that is not to be cut. Cells are in rich's markup."""
    return [max([len(title), *(Text.from_markup(row[at]).cell_len for row in rows)]) for at, title in enumerate(titles)]


def end_of(text: str, most: int) -> str:
    """The text, or where it is longer its end behind a mark: of a resource that is what tells it from others."""
    return text if len(text) <= most else f"…{text[len(text) - most + 1 :]}"
