"""Tables that fit a terminal.

Cards and the pods on them as a table: what ``pumice status`` and the demo show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pumice.devices.device_type import CardRow

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


BAR = 10  # characters
TYPE_MOST, PODS_LEAST, NODE_LEAST = 20, 16, 4  # characters, too

COLUMNS = ("Node", "Card", "Type", "Memory (MiB)", "Cores", "Pods")
WITHOUT_TYPE, SHORTEST = ("Node", "Card", "Memory (MiB)", "Cores", "Pods"), ("Node", "Card", "Memory (MiB)", "Pods")
SHAPES = ((COLUMNS, BAR, True), (COLUMNS, 0, True), (WITHOUT_TYPE, 0, True), (SHORTEST, 0, False))
"""Columns, lengths of bars, and whether there is a line below the head, from a wide terminal to a narrow one: who is on a card
stays in each."""


def cards_table(rows: Sequence[CardRow], width: int = 0) -> Table:
    """``width`` is the terminal's, 0 where nothing bounds the lines."""
    for titles, length, lined in SHAPES:
        cells = [_cells(row, length) for row in rows]
        needed = {title: max([len(title), *(Text.from_markup(cell[title]).cell_len for cell in cells)]) for title in titles}
        if width:
            needed["Type"] = min(needed.get("Type", 0), TYPE_MOST)
        needed["Pods"] = min(needed["Pods"], PODS_LEAST)
        over = sum(needed.values()) + (3 if lined else 2) * (len(titles) - 1) + (2 if lined else 0) - width
        if not width or over <= 0:
            break
    else:
        needed["Node"] = max(NODE_LEAST, needed["Node"] - over)
    table = Table(box=box.SIMPLE_HEAD if lined else None, pad_edge=False, padding=(0, 1))
    for title in titles:
        if title == "Pods":
            table.add_column(title, overflow="fold", min_width=needed[title])
        else:
            side: Literal["left", "right"] = "right" if title == "Card" else "left"
            table.add_column(title, justify=side, no_wrap=True, overflow="ellipsis", width=needed[title])
    for cell in cells:
        table.add_row(*(cell[title] for title in titles))
    return table


def _cells(row: CardRow, length: int) -> dict[str, str]:
    health = "" if row.healthy else " [red]unhealthy[/red]"
    return {
        "Node": escape(row.node),
        "Card": str(row.index),
        "Type": escape(model_of(row.type)) + health,
        "Memory (MiB)": f"{bar(row.memory, row.total, length)} {row.memory}/{row.total}".strip() if row.total else "",
        "Cores": f"{bar(row.cores, 100, length)} {row.cores} %".strip(),
        "Pods": escape("\n".join(map(str, row.holders))) or "[dim]free[/dim]",
    }


def model_of(card_type: str) -> str:
    """A card's registered type without its maker, whom the plugin writes in front of a name that often begins with it."""
    return card_type.removeprefix("NVIDIA-").removeprefix("NVIDIA ")


def bar(used: int, total: int, length: int = BAR) -> str:
    """A bar of so many characters; anything used shows at least one."""
    filled = min(length, max(1 if used else 0, round(length * used / total))) if total else 0
    return f"[green]{'█' * filled}[/green][dim]{'░' * (length - filled)}[/dim]" if length else ""
