"""Queues and PodGroups explained to people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import msgspec
from rich.console import Console, JustifyMethod, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pumice.engine.explaining.groups import GroupView
from pumice.engine.explaining.queues import QueueView
from pumice.engine.state.resources import Vector, amount_text, render
from pumice.model.errors import BadInput

COLUMNS = ("RESOURCE", "GUARANTEE", "DESERVED", "CAPABILITY", "USED", "BORROWED", "WAITING")
JOBS_SHOWN = 20
NAMES_SHOWN = 5
LEAST_WIDTH = 110
"""A table of numbers is not cut: a narrower terminal breaks its lines."""


def show_queue(found: QueueView, output: str) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(as_json(found)), indent=2).decode())
        return
    console = _console(output)
    above = f" below {found.parent}" if found.parent else ""
    console.print(f"[bold]{escape(found.name)}[/bold]{escape(above)}: {found.state}, weight {found.weight},"
                  f" {found.running} pods have a place, {found.pending} wait")  # fmt: skip
    for remark in found.remarks:
        console.print(f"  {escape(remark)}")
    console.print(queues_table([found], named=False))
    shown = found.jobs if output == "wide" else found.jobs[:JOBS_SHOWN]
    if shown:
        console.print("Waiting, the first one first:")
    for key, pods, why in shown:
        console.print(f"  {escape(key)} ({pods} pod{'s' if pods != 1 else ''}): {escape(why)}")
    if len(shown) < len(found.jobs):
        console.print(f"  … and {len(found.jobs) - len(shown)} more (-o wide shows all)")


def show_group(found: GroupView, output: str) -> None:
    """Print it. Raises BadInput for an output that we do not know."""
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    console = _console(output)
    console.print(f"[bold]{escape(found.name)}[/bold] in queue {escape(found.queue)} ({found.phase}): {escape(found.summary)}")
    if found.queue_words not in found.summary:
        console.print(f"  kept back: {escape(found.queue_words)}")
    if found.held:
        console.print(f"  held for it, for {found.held_for:.0f} s still at most: {escape(', '.join(found.held))}")
    for node, count in found.nodes.items():
        console.print(f"  {count} on {escape(node)}")
    for why, names in found.waiting.items():
        shown = names if output == "wide" else names[:NAMES_SHOWN]
        more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        console.print(f"  {escape(', '.join(shown))}{more}: {escape(why)}")


def _console(output: str) -> Console:
    if output not in ("text", "wide"):
        raise BadInput(f"-o {output!r}: use text, wide or json")
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, LEAST_WIDTH)
    return console


def queues_table(views: Iterable[QueueView], *, named: bool = True) -> RenderableType:
    """A line per queue and resource, and one per type of card; queues below others are indented."""
    views = list(views)
    table = Table(pad_edge=False, box=None, header_style="bold")
    rows = {view.name: list(_rows(view)) or [("nothing", *[""] * (len(COLUMNS) - 1))] for view in views}
    widest = max((len(cells[0]) for lines in rows.values() for cells in lines), default=0)
    for title in (*(("QUEUE", "STATE", "PODS") if named else ()), *COLUMNS):
        justify: JustifyMethod = "left" if title in ("QUEUE", "STATE", "RESOURCE") else "right"
        table.add_column(title, justify=justify, no_wrap=True, min_width=widest if title == "RESOURCE" else None)
    for view in views:
        head = (f"{'  ' * view.depth}{view.name}", view.state, f"{view.running}+{view.pending}")
        for number, cells in enumerate(rows[view.name]):
            first = head if number == 0 else ("", "", "")
            table.add_row(*(Text(text) for text in (*(first if named else ()), *cells)))
    return table


def _rows(view: QueueView) -> Iterator[tuple[str, ...]]:
    parts = (view.guarantee, view.deserved, view.capability, view.used, view.borrowed, view.waiting)
    for name in view.resources():
        yield (name, *(_cell(part, name) for part in parts))
    for use in view.cards:
        used = f"{round(use.used, 2):g} of {use.total} cards" if use.shares else ""
        waiting = f"{use.waiting} pod{'s' if use.waiting != 1 else ''}" if use.waiting else ""
        yield (use.type, "", "", "", used, "", waiting)


def _cell(part: Vector, name: str) -> str:
    return amount_text(name, part[name]) if part.get(name) is not None else ""


def as_json(view: QueueView) -> dict[str, Any]:
    """With amounts as Kubernetes writes them."""
    return {key: render(value) if isinstance(value, dict) else value for key, value in asdict(view).items()}
