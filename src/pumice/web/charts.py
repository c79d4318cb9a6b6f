"""The last hour of a pod's shares as lines: where each point lies in a picture of 240 by 60, and the same as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pumice.node.history import POINTS, PodHistory

WIDTH, HEIGHT, ROWS = 240.0, 60.0, 12
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Chart:
    """``lines`` are the points of each line without a gap, as SVG writes them; ``limit_y`` is where the limit lies; ``rows`` are
    (Unix seconds, words), the newest first."""

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
