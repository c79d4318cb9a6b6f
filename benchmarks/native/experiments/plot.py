"""Plots as SVG text: lines over an axis, or bars with the goal drawn across. No plotting package is needed for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 760, 400, 70, 40, 60, 180
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
Series = Mapping[str, Sequence[tuple[float, float]]]


def _frame(title: str, across: str, up: str, body: Sequence[str]) -> str:
    plot = (
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}" '
        'fill="none" stroke="#ccc"/>'
    )
    words = (
        f'<text x="{LEFT}" y="{TOP - 16}" font-size="15">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(across)}</text>',
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">{escape(up)}</text>',
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', plot, *words, *body, "</svg>"]) + "\n"


def _scale(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 1, high + 1)


def _axis(low: float, high: float, place: Sequence[float], across: bool) -> list[str]:
    out = []
    for step in range(5):
        value = low + (high - low) * step / 4
        at = place[0] + (place[1] - place[0]) * step / 4
        x, y, anchor = (at, HEIGHT - BOTTOM + 16, "middle") if across else (LEFT - 6, at + 4, "end")
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#555">{value:.4g}</text>')
    return out


def lines(title: str, across: str, up: str, series: Series, goal: float | None = None) -> str:
    """One line a series through its (x, y) points."""
    points = [point for line in series.values() for point in line]
    if not points:
        return _frame(title, across, up, [f'<text x="{LEFT + 20}" y="{HEIGHT / 2}">nothing was measured</text>'])
    ys = [y for _, y in points] + ([goal] if goal is not None else [])
    left, right = _scale(min(x for x, _ in points), max(x for x, _ in points))
    low, high = _scale(min(0.0, *ys), max(ys) * 1.05)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (x - left) / (right - left) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM),
        )

    body = _axis(left, right, (LEFT, WIDTH - RIGHT), across=True) + _axis(
        low, high, (HEIGHT - BOTTOM, TOP), across=False
    )
    if goal is not None:
        (x1, y), (x2, _) = at(left, goal), at(right, goal)
        body.append(f'<line x1="{x1}" y1="{y:.1f}" x2="{x2}" y2="{y:.1f}" stroke="#888" stroke-dasharray="5 4"/>')
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        y = TOP + 14 + 18 * number
        body.append(f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return _frame(title, across, up, body)


def bars(title: str, up: str, values: Mapping[str, float], goal: float | None = None) -> str:
    """One bar a value, in order."""
    if not values:
        return lines(title, "", up, {})
    low, high = _scale(min(0.0, *values.values()), max([*values.values(), goal or 0.0]) * 1.05)
    wide = (WIDTH - LEFT - RIGHT) / len(values)

    def height_at(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    body = _axis(low, high, (HEIGHT - BOTTOM, TOP), across=False)
    for number, (name, value) in enumerate(values.items()):
        x, top, foot = LEFT + wide * number, height_at(max(value, 0.0)), height_at(min(value, 0.0))
        colour = COLOURS[number % len(COLOURS)]
        body.append(
            f'<rect x="{x + 2:.1f}" y="{top:.1f}" width="{max(1.0, wide - 4):.1f}" height="{foot - top:.1f}" fill="{colour}"/>'
        )
        body.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{TOP + 14 + 16 * number}" fill="{colour}">{escape(name)}</text>'
        )
    if goal is not None:
        y = height_at(goal)
        body.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#888" stroke-dasharray="5 4"/>'
        )
    return _frame(title, "", up, body)
