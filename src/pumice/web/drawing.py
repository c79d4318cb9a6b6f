"""Bars of cards: where each segment lies, in hundredths of a bar's width. What is promised beyond 100 % is drawn beyond the mark
of 100 %, never cut off.

The last hour of a pod's shares as lines: where each point lies in a picture of 240 by 60, and the same as a table.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pumice.node.history import POINTS, PodHistory
from pumice.web.values import CardView

WIDTH, HEIGHT, ROWS = 240.0, 60.0, 12
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. ``lines`` are the points of each line without a gap, as SVG writes them; ``limit_y`` is where the limit lies;
    ``rows`` are (Unix seconds, words), the newest first."""

    title: str
    label: str
    lines: tuple[str, ...]
    limit_y: float | None
    rows: tuple[tuple[float, str], ...]


def charts(told: PodHistory) -> list[Chart]:
    """Of each share its memory, and its compute where that is told."""
    found = []
    for share in told.shares:
        whose = f"container {share.container} on {share.uuid}"
        found.append(_chart(f"Memory over the last hour, {whose}", share.memory, share.limit, "MiB", MIB, told))
        if any(value is not None for value in share.cores):
            found.append(_chart(f"Cores over the last hour, {whose}", share.cores, share.cores_limit or 100, "%", 1, told))
    return [chart for chart in found if chart.rows]


def _chart(title: str, values: Sequence[int | None], limit: int, unit: str, per: int, told: PodHistory) -> Chart:
    present = [value for value in values if value is not None]
    top = max([limit, *present, 1]) * 1.05
    begin = POINTS - len(values)  # the right edge is now
    places = [None if value is None else (begin + i, HEIGHT * (1 - value / top)) for i, value in enumerate(values)]
    dated = [(told.until - (len(values) - 1 - i) * told.every, value) for i, value in enumerate(values) if value is not None]
    step = max(1, -(-len(dated) // ROWS))
    label = title
    if present:
        low, high, last = (_words(value, unit, per) for value in (min(present), max(present), present[-1]))
        label = f"{title}: {low} to {high}, at last {last}, limit {_words(limit, unit, per)}"
    return Chart(title, label, tuple(_lines(places)), round(HEIGHT * (1 - limit / top), 1) if limit else None,
                 tuple((at, _words(value, unit, per)) for at, value in dated[::-1][::step]))  # fmt: skip


def _lines(places: Sequence[tuple[int, float] | None]) -> Iterator[str]:
    """One after another, broken where nothing was told. A lone point is a short line."""
    run: list[str] = []
    for place in (*places, None):
        if place is not None:
            run.append(f"{place[0]},{place[1]:.1f}")
        elif run:
            yield " ".join(run if len(run) > 1 else [run[0], f"{int(run[0].partition(',')[0]) + 1},{run[0].partition(',')[2]}"])
            run = []


def _words(value: int, unit: str, per: int) -> str:
    return f"{-(-value // per)} {unit}"


COLOURS = 8
WIDTH = 100.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a bar. ``kind``: share, leaving, slot (free room of a card that is cut) or used; ``colour`` is a number
    below COLOURS."""

    x: float
    width: float
    title: str
    kind: str = "share"
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar. ``full`` is where 100 % lie, WIDTH where nothing is beyond. ``label`` says in words what the picture shows."""

    label: str
    segments: tuple[Segment, ...]
    full: float = WIDTH


def colour_of(name: str) -> int:
    """The same pod has the same colour on each page."""
    return zlib.crc32(name.encode("utf-8", "replace")) % COLOURS


def percent(part: float, whole: float) -> str:
    """``0 %`` only for nothing, ``100 %`` only for all."""
    if not whole:
        return "-"
    value = 100 * part / whole
    return "<1 %" if 0 < value < 1 else ">99 %" if 99 < value < 100 else f"{value:.0f} %"


def memory_bar(card: CardView) -> Bar:
    """Draw what pods may use of its memory; a card that is cut into slices shows them where they lie, the free ones too."""
    unit = f" {card.unit}" if card.unit else ""
    label = f"Memory of card {card.index}: {card.memory} of {card.total}{unit} promised ({percent(card.memory, card.total)})"
    if card.slots:
        return Bar(f"{label}, {len(card.slots)} slots", tuple(
            Segment(_r(WIDTH * slot.start), _r(WIDTH * slot.width),
                    f"{slot.profile or 'slot'}, {slot.memory}{unit}: {slot.pod or 'free'}", "share" if slot.pod else "slot",
                    colour_of(slot.pod))
            for slot in card.slots
        ))  # fmt: skip
    return _stacked(label, card, [held.memory for held in card.held], card.total, unit)


def cores_bar(card: CardView) -> Bar:
    """Draw what pods may use of its compute, of 100 %."""
    label = f"Cores of card {card.index}: {card.cores} % promised"
    return _stacked(label, card, [held.cores for held in card.held], 100, " %")


def _stacked(label: str, card: CardView, amounts: list[int], total: int, unit: str) -> Bar:
    scale = max(total, sum(amounts), 1)
    x, segments = 0.0, []
    for held, amount in zip(card.held, amounts, strict=True):
        width = WIDTH * amount / scale
        if amount:
            leaving = ", leaving" if held.leaving else ""
            segments.append(Segment(_r(x), _r(width), f"{held.pod}: {amount}{unit}{leaving}",
                                    "leaving" if held.leaving else "share", colour_of(held.pod)))  # fmt: skip
        x += width
    over = f", {percent(sum(amounts) - total, total)} more than there is" if sum(amounts) > total else ""
    return Bar(label + over, tuple(segments), _r(WIDTH * total / scale))


def part_bar(label: str, part: float, whole: float, kind: str = "share") -> Bar:
    """One amount of a whole."""
    scale = max(part, whole, 1e-9)
    return Bar(f"{label}: {percent(part, whole)}", (Segment(0, _r(WIDTH * part / scale), label, kind),) if part else (),
               _r(WIDTH * whole / scale))  # fmt: skip


def _r(x: float) -> float:
    return round(x, 2)
