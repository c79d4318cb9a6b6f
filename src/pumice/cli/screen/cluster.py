"""The pages of a cluster on the screen of ``pumice top``: what its tables and ``pumice explain`` read, and nothing to be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pumice.cli.screen.page import Page, fitted, padded
from pumice.cli.screen.view import View
from pumice.cli.tables import cards_table
from pumice.devices.device_type import CardRow
from pumice.model.errors import PumiceError

if TYPE_CHECKING:
    from pumice.scheduler.explaining.queues import QueueView

EVERY = 5.0
"""Seconds between two looks at a cluster; only while a page of it is seen."""


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """One answer of a cluster, at a Unix time. ``pods`` are names by UID; ``queues`` None: not asked for. ``trouble``: why none
    came."""

    at: float
    rows: Sequence[CardRow] = ()
    pods: Mapping[str, str] = field(default_factory=dict)
    queues: Sequence[QueueView] | None = None
    trouble: str = ""


def look(kubeconfig: Path, tab: str, now: float) -> ClusterSample:
    """Ask the cluster for what the page needs."""
    from pumice.cli import top_tabs  # which need what talks to a cluster

    try:
        if tab == "queues":
            return ClusterSample(now, queues=top_tabs.queues_of(kubeconfig))
        rows, pods = top_tabs.cards_and_pods(kubeconfig)
        return ClusterSample(now, rows, pods)
    except PumiceError as error:
        return ClusterSample(now, trouble=str(error).splitlines()[0])


def cluster_page(sample: ClusterSample | None, view: View, width: int, height: int, now: float, trouble: str = "") -> Page:
    """Return the page of pods or queues. ``trouble``: why ``sample`` is an older one."""
    if sample is None:
        return Page([Text(fitted(trouble or "asking the cluster …", width), "yellow" if trouble else "dim")], body=height)
    lines = _queues(sample, view, width) if sample.queues is not None else _pods(sample, view, width)
    age = max(0, int(now - sample.at))
    head = Text(f"as of {age} s ago" + (f"; {trouble}" if trouble else ""), "yellow" if trouble else "dim")
    if view.filter:
        head.append(f"  filter: {view.filter}", "yellow")
    titles, body = lines[:1], lines[1:]
    room = max(1, height - 1 - len(titles))
    first = max(0, min(view.first, len(body) - room))
    seen = body[first : first + room]
    return Page([padded(line, width) for line in (head, *titles, *seen)], body=room)


def lines_of(sample: ClusterSample | None, view: View, width: int) -> int:
    """Return how many lines there are to be scrolled through."""
    if sample is None:
        return 0
    return len(_queues(sample, view, width) if sample.queues is not None else _pods(sample, view, width)) - 1


def _pods(sample: ClusterSample, view: View, width: int) -> list[Text]:
    def told(row: CardRow) -> str:
        return f"{row.node} {row.type} {' '.join(map(str, row.holders))}".lower()

    return rendered(lambda: cards_table([row for row in sample.rows if _matches(told(row), view.filter)], width), width)


def _queues(sample: ClusterSample, view: View, width: int) -> list[Text]:
    from pumice.cli.explain_workloads import queues_table

    there = [queue for queue in sample.queues or ()
             if _matches(f"{queue.name} {queue.parent} {queue.state}".lower(), view.filter)]  # fmt: skip
    return rendered(lambda: queues_table(there, width), width)


def _matches(told: str, words: str) -> bool:
    return all(word in told for word in words.lower().split())


def rendered(table: Callable[[], RenderableType], width: int) -> list[Text]:
    """A table of rich's as lines of styled text."""
    console = Console(width=width, force_terminal=True, color_system="truecolor", highlight=False)
    found = []
    for segments in console.render_lines(table(), pad=False):
        line = Text()
        for segment in segments:
            line.append(segment.text, segment.style)
        found.append(line)
    while found and not found[0].plain.strip():
        found.pop(0)
    return found
