"""Bars and braille graphs out of figures: text of exactly so many characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

EMPTY: Final = 0x2800
"""The braille character without a dot."""
LEFT: Final = (0x40, 0x04, 0x02, 0x01)
RIGHT: Final = (0x80, 0x20, 0x10, 0x08)
"""The bits of its two columns of dots, from below (Unicode, Braille Patterns)."""
DOTS: Final = len(LEFT)
HOT, WARM, COOL = "red", "yellow", "green"
HOT_FROM, WARM_FROM = 0.95, 0.8


def colour(part: float | None) -> str:
    """Return the colour for a part of a limit."""
    if part is None:
        return "dim"
    return HOT if part >= HOT_FROM else WARM if part >= WARM_FROM else COOL


def graph(points: Sequence[float | None], width: int, height: int, calm: bool = False) -> list[Text]:
    """The latest points as a graph, the last one on the right. Nothing used is the lowest dot, what was not known is no dot."""
    latest = [*[None] * max(0, 2 * width - len(points)), *points[len(points) - min(len(points), 2 * width) :]]
    levels = [0 if point is None else _level(point, height) for point in latest]
    lines = []
    for row in range(height - 1, -1, -1):
        line, run, style = Text(), "", ""
        for at in range(width):
            pair = levels[2 * at], levels[2 * at + 1]
            bits = sum(bit for level, column in zip(pair, (LEFT, RIGHT), strict=True)
                       for bit in column[: max(0, min(DOTS, level - row * DOTS))])  # fmt: skip
            known = [point for point in latest[2 * at : 2 * at + 2] if point is not None]
            now = (COOL if calm else colour(max(known))) if known and bits else style if not bits else ""
            if now != style:
                line.append(run, style)
                run, style = "", now
            run += chr(EMPTY + bits) if bits else " "
        lines.append(line.append(run, style))
    return lines


def _level(point: float, height: int) -> int:
    return 1 + round(min(1.0, max(0.0, point)) * (height * DOTS - 1))


def bar(used: float | None, length: int, booked: float = 0.0, calm: bool = False) -> Text:
    """A bar of so many characters for a part of 1, and behind it what is promised beyond what is used. Anything used shows at
    least one character; what is not known is a row of question marks. ``calm``: all of it used is no reason to worry."""
    if used is None:
        return Text("?" * length, "dim")
    filled = min(length, max(1 if used > 0 else 0, round(length * used))) if length else 0
    promised = min(length, max(filled, round(length * booked)))
    style = COOL if calm else colour(used)
    return Text.assemble(("█" * filled, style), ("▒" * (promised - filled), "cyan"), ("░" * (length - promised), "dim"))


def fitted(text: str, width: int) -> str:
    """The text in exactly so many cells: cut with a mark, or filled up."""
    if width <= 0:
        return ""
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


def padded(text: Text, width: int) -> Text:
    """The styled text in exactly so many cells."""
    shown = text.copy()
    shown.truncate(max(0, width), overflow="ellipsis", pad=True)
    return shown
