"""Pictures of a plan of moves, and of when pods would start: one page each that opens from disk, and fetches nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from pumice.scheduler.engine import Engine
from pumice.simulation.moving import Answer, Place
from pumice.simulation.page import COLOURS, STYLE
from pumice.simulation.report import span
from pumice.simulation.starts import Start

ROWS = 64
"""Cards, or pods, of one picture at most."""
ROW, LABEL, BAR = 24, 230, 340
LETTER = 6.2
"""The width of a letter, about."""
OTHERS, STARTS = "#8a8f98", "#15803d"
"""Colours of pods that stay, and of those that start."""


@dataclass(slots=True)
class CardView:
    """One card and who holds it: memory by pod, in the order in which they came."""

    node: str
    card: int
    uuid: str
    total: int
    held: dict[str, int] = field(default_factory=dict)


def cards_of(engine: Engine, nodes: Collection[str]) -> list[CardView]:
    """Return the cards of these nodes as they are in the ledger."""
    found = []
    for table in engine.state.ledger.device_tables.values():
        for name in sorted(nodes & table.nodes.keys()):
            books = table.nodes[name]
            for card, usage in zip(books.inventory.cards, books.usages, strict=True):
                view = CardView(name, card.index, card.uuid, card.total)
                for uid, pieces in usage.holders.items():
                    view.held[engine.state.pods.name_of(uid)] = sum(piece.memory for piece in pieces)
                found.append(view)
    return found


def nodes_of(answer: Answer) -> set[str]:
    """Return the nodes that a plan has to do with."""
    places = [place for move in answer.moves for place in (move.source, move.target)] + [each.target for each in answer.starts]
    return {place.node for place in places} | {free.node for free in answer.frees}


def moves_page(answer: Answer, cards: Sequence[CardView]) -> str:
    """The document: each card as it is, and as it is once the plan is carried out."""
    colours = {move.pod: COLOURS[number % 2] for number, move in enumerate(answer.moves)}
    colours |= {start.pod: STARTS for start in answer.starts}
    then = _then(answer, cards)
    shown = list(zip(cards, then, strict=True))[:ROWS]
    height = ROW * (len(shown) + 1) + 8
    text = [_text(LABEL, 14, "now"), _text(LABEL + BAR + 24, 14, "then")]
    for number, pair in enumerate(shown, 1):
        text.append(_text(0, ROW * number + 15, f"{pair[0].node} card {pair[0].card}", LABEL - 10))
        for column, card in enumerate(pair):
            text.append(_bar(LABEL + column * (BAR + 24), ROW * number, card, colours))
    steps = "".join(
        f"<tr><td>{number}</td><td>{escape(move.pod)}</td><td>{escape(_where(move.source))}</td><td>{escape(_where(move.target))}"
        f"</td><td>{span(move.lost)} since its {escape(move.since)}</td></tr>"
        for number, move in enumerate(answer.moves, 1)
    )
    table = f"<table><tr><th>step</th><th>pod</th><th>from</th><th>to</th><th>loses</th></tr>{steps}</table>" if steps else ""
    more = f"<p>{len(cards) - ROWS:,} more cards of these nodes are not shown.</p>" if len(cards) > ROWS else ""
    starts = "".join(f"<li>{escape(one.pod)} starts on {escape(_where(one.target))}</li>" for one in answer.starts)
    starts += "".join(f"<li>{escape(one.node)} card {one.card} is free</li>" for one in answer.frees)
    restarts = f"{answer.cost.restarts} restart{'' if answer.cost.restarts == 1 else 's'}"
    cost = f"{restarts}, {span(answer.cost.lost)} of work lost" if answer.moves else ""
    picture = _svg("Cards now and then", LABEL + 2 * BAR + 30, height, text) if shown else ""
    return _page("pumice defrag plan", f"{answer.goal}: {answer.summary}", cost, f"{table}<ul>{starts}</ul>{picture}{more}")


def _then(answer: Answer, cards: Iterable[CardView]) -> list[CardView]:
    then = [CardView(card.node, card.card, card.uuid, card.total, dict(card.held)) for card in cards]
    at = {(card.node, card.uuid): card for card in then}
    for move in answer.moves:
        for piece in move.source.cards:
            if (card := at.get((move.source.node, piece.uuid))) is not None:
                card.held.pop(move.pod, None)
    for pod, place in [(move.pod, move.target) for move in answer.moves] + [(one.pod, one.target) for one in answer.starts]:
        for piece in place.cards:
            if (card := at.get((place.node, piece.uuid))) is not None:
                card.held[pod] = card.held.get(pod, 0) + piece.memory
    return then


def _bar(left: float, top: float, card: CardView, colours: dict[str, str]) -> str:
    found = [_rect(left, top, BAR, ROW - 6, 'class="grid" fill="none"')]
    for pod, memory in card.held.items():
        width = max(1.0, BAR * min(1.0, memory / max(1, card.total)))
        name = pod.rpartition("/")[2]
        label = _text(left + 4, top + 13, name, width - 6, "#fff") if width > 24 else ""
        rect = _rect(left, top, width, ROW - 6, f'fill="{colours.get(pod, OTHERS)}" stroke="#fff"')
        found.append(f"<g><title>{escape(pod)}: {memory:,} of {card.total:,}</title>{rect}{label}</g>")
        left += width
    return "".join(found)


def _where(place: Place) -> str:
    cards = ", ".join(f"card {held.card}" for held in place.cards)
    return f"{place.node} {cards}" if cards else place.node


def starts_page(found: Sequence[Start], now: float) -> str:
    """The document: from when to when each pod starts in 80 of 100 cases, and by when it is as likely as not."""
    shown = [each for each in found if not each.why][:ROWS]
    known = [at for each in shown for at in (each.p10, each.p50, each.p90) if at is not None]
    right = max(known, default=0.0) * 1.05 or 60.0
    width = 2 * BAR
    clock = "%H:%M:%S" if right < 600 else "%H:%M" if right < 86_400 else "%m-%d %H:%M"
    text = []
    for quarter in range(5):
        x, at = LABEL + width * quarter / 4, right * quarter / 4
        text.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{ROW - 6}" y2="{ROW * (len(shown) + 1)}"/>')
        text.append(_text(x - 14, 12, time.strftime(clock, time.gmtime(now + at))))
    for number, each in enumerate(shown, 1):
        early, even, late = (LABEL + width * min(1.0, (right if at is None else at) / right)
                             for at in (each.p10, each.p50, each.p90))  # fmt: skip
        top = ROW * number + 4
        said = " / ".join("later" if at is None else span(at) for at in (each.p10, each.p50, each.p90))
        text.append(_text(0, top + 11, each.pod, LABEL - 10))
        bar = _rect(early, top, max(2.0, late - early), ROW - 10, f'rx="3" fill="{COLOURS[0]}"')
        line = _rect(even - 1.5, top - 2, 3, ROW - 6, f'fill="{COLOURS[1]}"')
        text.append(f"<g><title>{escape(each.pod)}: {said} from now</title>{bar}{line}</g>")
    whys = "".join(f"<li>{escape(each.pod)}: {escape(each.why)}</li>" for each in found if each.why)
    picture = _svg("When pods start", LABEL + width + 20, ROW * (len(shown) + 1) + 8, text) if shown else ""
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(now))
    about = f"Of {day} UTC, by recorded run times, as if nobody else came. Bars: 80 of 100 cases; line: half of them."
    return _page("pumice explain --start", "When pods would start", about, f"{picture}<ul>{whys}</ul>")


def _svg(title: str, width: float, height: float, text: Iterable[str]) -> str:
    return (f'<figure><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{escape(title)}">{"".join(text)}</svg></figure>')  # fmt: skip


def _rect(x: float, y: float, width: float, height: float, how: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" {how}/>'


def _text(x: float, y: float, words: str, room: float = 10_000, fill: str = "") -> str:
    most = max(1, int(room / LETTER))
    shown = words if len(words) <= most else words[: most - 1] + "…"
    style = f' style="fill:{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y}"{style}>{escape(shown)}</text>'


def _page(title: str, head: str, about: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
        f'<h1>{escape(head)}</h1><p class="of">{escape(about)}</p>{body}</html>\n'
    )
