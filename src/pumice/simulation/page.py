"""One page about a simulation that opens from disk: tables and SVG pictures in the text itself, nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import floor, log10

from pumice.simulation.outcome import Difference, Outcome
from pumice.simulation.report import Row, difference_lines, is_shown, reason_lines, rows_of, span, waiting_lines

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 220, 52, 26
COLOURS = ("#0b6e99", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be123c")
STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
table { border-collapse: collapse; }
td, th { padding: .15rem .9rem .15rem 0; text-align: right; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child { text-align: left; } td { font-variant-numeric: tabular-nums; }
.pictures { display: flex; flex-wrap: wrap; gap: 0 1.5rem; } figure { margin: 0; } svg { max-width: 100%; height: auto; }
svg text { font-size: 11px; fill: currentColor; } .grid { stroke: var(--line); } .of { font-size: .9rem; opacity: .75; }
"""
Curve = tuple[str, Sequence[tuple[float, float]]]


def page(outcomes: Sequence[Outcome], differences: Iterable[Difference], about: str) -> str:
    """The document. ``about`` says what was played."""
    sampled: list[tuple[str, str, str, Callable[[Outcome], list[tuple[float, float]]], str]] = [
        ("memory", "Memory of cards that is allocated", "per cent, over time",
         lambda o: [(s.at, 100 * s.memory) for s in o.samples], "%"),
        ("fragmentation", "Memory that is free and stranded", "per cent of all, that the next pod is expected to find no use for",
         lambda o: [(s.at, 100 * s.stranded) for s in o.samples], "%"),
        ("cores", "Cores of cards that are allocated", "per cent, over time",
         lambda o: [(s.at, 100 * s.cores) for s in o.samples], "%"),
        ("cpu", "CPUs beside cards that are allocated", "per cent, over time",
         lambda o: [(s.at, 100 * s.cpu) for s in o.samples], "%"),
        ("waiting", "Pods that wait", "over time", lambda o: [(s.at, float(s.waiting)) for s in o.samples], ""),
    ]  # fmt: skip
    figures = [_figure(title, under, [(o.variant, curve(o)) for o in outcomes], unit)
               for amount, title, under, curve, unit in sampled if is_shown(amount, outcomes)]  # fmt: skip
    figures.append(_figure("Pods that had a place after so long", "per cent of all pods, by seconds of waiting, logarithmic",
                           [(o.variant, _waits(o)) for o in outcomes], "%", lambda x: span(10**x - 1)))  # fmt: skip
    lines = [line for one in differences for line in difference_lines(one, 20)]
    lines += [line for outcome in outcomes for line in (*reason_lines(outcome, 20), *waiting_lines(outcome, 20))]
    shown = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>pumice simulate</title><style>{STYLE}</style>'
        f'<h1>{escape(" / ".join(o.variant for o in outcomes))}</h1><p class="of">{escape(about)}</p>'
        f"{_legend(outcomes)}{_table(outcomes, rows_of(outcomes))}"
        f'<div class="pictures">{"".join(figures)}</div>'
        + (f"<h2>Pods that wait, or fare otherwise</h2><ul>{shown}</ul>" if shown else "")
        + "</html>\n"
    )


def _waits(outcome: Outcome) -> list[tuple[float, float]]:
    """The part of all pods that had a place after so long; x is the logarithm of the seconds and one."""
    waited = sorted(seconds for seconds, _ in outcome.starts.values())
    number, step = max(1, outcome.whole.pods), max(1, len(waited) // 200)
    return [(log10(1 + max(0.0, waited[i])), 100 * (i + 1) / number) for i in {*range(0, len(waited), step), len(waited) - 1}
            if i >= 0]  # fmt: skip


def _legend(outcomes: Sequence[Outcome]) -> str:
    return "<p>" + " &emsp; ".join(
        f'<span style="color:{COLOURS[i % len(COLOURS)]}">&#9644;</span> {escape(o.variant)}' for i, o in enumerate(outcomes)
    ) + "</p>"  # fmt: skip


def _table(outcomes: Sequence[Outcome], rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(o.variant)}</th>" for o in outcomes)
    body = "".join(f"<tr><td>{escape(title)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
                   for title, cells in rows)  # fmt: skip
    return f"<table><tr><th></th>{head}</tr>{body}</table>"


def _figure(title: str, under: str, curves: Sequence[Curve], unit: str, x_word: Callable[[float], str] = span) -> str:
    points = [point for _, curve in curves for point in curve]
    right = max((x for x, _ in points), default=0.0) or 1.0
    top = _rounded(max((y for _, y in points), default=0.0) or 1.0)
    if unit == "%" and top > 40:
        top = 100.0

    def x_of(x: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * x / right

    def y_of(y: float) -> float:
        return 8 + (HEIGHT - BOTTOM - 8) * (1 - y / top)

    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y_of(y):.1f}" y2="{y_of(y):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:g}{unit}</text>'
        for y in (top * i / 4 for i in range(5))
    ) + "".join(
        f'<text x="{x_of(x):.1f}" y="{HEIGHT - 8}" text-anchor="{"end" if i == 4 else "start" if i == 0 else "middle"}">'
        f"{escape(x_word(x))}</text>"
        for i, x in enumerate(right * i / 4 for i in range(5))
    )
    lines = "".join(
        f'<polyline fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="2" points="'
        + " ".join(f"{x_of(x):.1f},{y_of(min(y, top)):.1f}" for x, y in sorted(curve))
        + f'"><title>{escape(name)}</title></polyline>'
        for i, (name, curve) in enumerate(curves)
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return (f'<figure><h2>{escape(title)}</h2><svg {size} role="img" aria-label="{escape(title)}">{grid}{lines}</svg>'
            f'<figcaption class="of">{escape(under)}</figcaption></figure>')  # fmt: skip


def _rounded(number: float) -> float:
    """The next number that reads well: 1, 2, 4, 5 or 10 of a power of ten."""
    power = 10.0 ** floor(log10(number))
    return float(next(factor * power for factor in (1, 2, 4, 5, 10) if factor * power >= number * 0.999))
