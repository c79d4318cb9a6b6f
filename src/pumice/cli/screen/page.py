"""The machine's page: a function from what was measured and what a person chose to lines of text. Nothing here knows a terminal
library, and the time is an argument.

Bars and braille graphs out of figures: text of exactly so many characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from pumice.cli.screen.view import View
from pumice.cli.tables import cards_table
from pumice.devices.device_type import CardRow
from pumice.model.errors import PumiceError

if TYPE_CHECKING:
    from pumice.scheduler.explaining.queues import QueueView
from typing import Final

from rich.cells import cell_len, set_cell_size

from pumice.cli.screen.samples import MIB, CardSample, History, Part, Program, Sample
from pumice.cli.screen.view import SORTS, Row, pod_name, rows

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


NARROWEST, SHORTEST = 40, 10
"""Columns and lines without which there is no page."""
GRAPHS: Final = (4, 3, 2, 1, 0)
"""Lines of a card's graphs, in a high terminal and in lower ones."""
MODEL: Final = 22
COMMAND: Final = 8
"""Characters of a command without which the column is not there."""


SPARED: Final = ("POD", "USER", "COMMAND", "PID", "CARD")
SHAPES: Final = ((10, True, 0), (6, True, 0), (6, False, 0), (4, False, 1), *((0, False, count) for count in range(1, 6)))
"""Of the programs' table from a wide terminal to a narrow one: characters of bars, histories, and how many columns of SPARED it
goes without. A figure is whole or not there."""


@dataclass(frozen=True, slots=True)
class Page:
    """Lines, and what a click on them means: the row of a line, the way to sort of a cell in the table's head."""

    lines: list[Text]
    at: Mapping[int, str] = field(default_factory=dict)
    head: int = -1
    sorts: Sequence[tuple[int, int, str]] = ()
    body: int = 0
    """Lines that the programs' table has room for."""


def too_small(width: int, height: int) -> Page | None:
    """A sentence where the terminal is too small for a page."""
    if width >= NARROWEST and height >= SHORTEST:
        return None
    words = (f"pumice top needs a terminal of {NARROWEST} columns and {SHORTEST} lines. This one has {width} and {height}. "
             "q ends; pumice top --once needs none.").split()  # fmt: skip
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return Page([Text(fitted(line, width)) for line in lines[:height]])


def machine_page(sample: Sample, history: History, view: View, pods: Mapping[str, str], width: int, height: int) -> Page:
    """Return the page of cards and programs for so many columns and lines."""
    head = [Text(fitted(sample.trouble, width), "yellow")] if sample.trouble else []
    head += [Text(fitted(f"on the emulated machine {sample.where}", width), "italic dim")] if sample.where else []
    table = rows(sample, view, pods)
    least = min(len(table), 6) + 2
    upper = _cards(sample.cards, history, width, max(1, height - len(head) - least))
    title = padded(_title(sample, view, table), width)
    body = max(1, height - len(head) - len(upper) - 2)
    columns = _columns(table, history, pods, view, width)
    first = min(view.first, max(0, len(table) - body))
    seen = table[first : first + body]
    titles, sorts = _titles(columns, view)
    above = len(head) + len(upper)
    lines = [*head, *upper, title, padded(titles, width)]
    lines += [padded(_line(row, columns, row.key == view.selected, width), width) for row in seen]
    return Page(lines, {above + 2 + at: row.key for at, row in enumerate(seen) if row.program}, above + 1, sorts, body)


# -- cards


def _cards(cards: Sequence[CardSample], history: History, width: int, room: int) -> list[Text]:
    high = next((lines for lines in GRAPHS if len(cards) * (lines + 1) <= room), 0)
    shown = cards if len(cards) * (high + 1) <= room else cards[: max(0, room - 1)]
    lines = [line for card in shown for line in _card(card, history, width, high)]
    if len(shown) < len(cards):
        lines.append(Text(fitted(f"… and {len(cards) - len(shown)} more cards, for which the terminal is too low", width), "dim"))
    return lines


def _card(card: CardSample, history: History, width: int, high: int) -> list[Text]:
    half = (width - 1) // 2
    rest = width - 1 - half
    booked = card.booked_memory * MIB / card.total if card.total else 0.0
    memory = f"{-(-card.used // MIB)}/{card.total // MIB} MiB"
    busy = "not told" if card.busy is None else f"{card.busy} %"
    name = f"{card.index} {card.model}"
    left = _figure(name, "MEM", card.used / card.total if card.total else None, booked, memory, half)
    cores = None if card.busy is None else card.busy / 100
    promised = f"booked {card.booked_memory} MiB, {card.booked_cores} %"
    right = _figure("", "BUSY", cores, card.booked_cores / 100, busy, rest, promised, calm=True)
    lines = [Text(" ").join((left, right))]
    pair = graph(history.of(card.uuid, "memory"), half, high), graph(history.of(card.uuid, "cores"), rest, high, calm=True)
    return lines + [Text(" ").join(two) for two in zip(*pair, strict=True)]


def _figure(name: str, what: str, used: float | None, booked: float, words: str, width: int, more: str = "",
            calm: bool = False) -> Text:  # fmt: skip
    """A figure with its bar, as much of the name before it as there is room for, and more words where there is much room."""
    head = f"{what} "
    spare = width - cell_len(words) - 1
    short = name.split(" ", 1)[0]
    shown = ""
    if name:
        for length in (min(MODEL, cell_len(name)), 10, len(short)):
            if spare - len(head) - length - 1 >= (4 if length > len(short) else 0):
                shown = f"{fitted(name if length > len(short) else short, length)} "
                break
        else:
            shown, head = f"{short} ", ""
    tail = f" {more}" if more and spare - len(head) - len(more) - 1 >= 10 else ""
    length = max(0, spare - len(head) - len(shown) - len(tail))
    line = Text.assemble((shown, "bold"), (head, "dim"), bar(used, length, booked, calm), " " if length else "",
                         (words, "" if used is None or calm else colour(used)), (tail, "dim"))  # fmt: skip
    return padded(line, width)


# -- programs


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: its title, cells, and the way to sort by it. ``least`` is what it may shrink to, 0 to nothing."""

    title: str
    cell: Callable[[Program, Part], Text]
    width: int
    sort: str = ""
    lead: bool = False


def _columns(table: Sequence[Row], history: History, pods: Mapping[str, str], view: View, width: int) -> list[Column]:
    """The columns that there is room for, the command as long as the rest of the line."""
    there = [(row.program, row.part) for row in table if row.program and row.part]
    for bars, graphs, spared in SHAPES:
        found = _all_columns(there, history, pods, bars, graphs)
        left_out = {*SPARED[:spared], *({"POD"} if view.tree == "pod" else set()), *({"USER"} if view.tree == "user" else set()),
                    *({"CARD"} if view.tree == "card" else set())}  # fmt: skip
        found = [column for column in found if column.title not in left_out]
        spare = width - _needed(found) + (found[-1].width - COMMAND if found[-1].title == "COMMAND" else 0)
        if spare >= 0:
            break
    if found[-1].title == "COMMAND":
        found[-1] = Column("COMMAND", found[-1].cell, COMMAND + max(0, spare), "command", lead=True)
        found = _with_longer_graphs(found, there, history)
    return found


def _needed(columns: Sequence[Column]) -> int:
    return 2 + sum(column.width + 1 for column in columns) - 1


def _with_longer_graphs(columns: list[Column], there: Sequence[tuple[Program, Part]], history: History) -> list[Column]:
    """Give what commands do not need to the histories."""
    longest = max([COMMAND, *(cell_len(program.command) for program, _ in there)])
    spare = max(0, columns[-1].width - longest)
    graphs = sum(column.title.endswith("HISTORY") for column in columns)
    if not spare or not graphs:
        return columns
    more = min(30, spare // graphs)
    found = [
        Column(column.title, _history(history, column.title, column.width + more), column.width + more)
        if column.title.endswith("HISTORY") else column for column in columns[:-1]
    ]  # fmt: skip
    last = columns[-1]
    return [*found, Column(last.title, last.cell, last.width - more * graphs, last.sort, lead=True)]


def _history(history: History, title: str, width: int) -> Callable[[Program, Part], Text]:
    what = "memory" if title.startswith("MEM") else "cores"
    return lambda program, part: graph(history.of(program.key, part.uuid, what), width, 1, calm=what == "cores")[0]


def _all_columns(there: Sequence[tuple[Program, Part]], history: History, pods: Mapping[str, str], bars: int,
                 graphs: bool) -> list[Column]:  # fmt: skip
    def wide(title: str, cell: Callable[[Program, Part], Text], sort: str = "", lead: bool = False, most: int = 400) -> Column:
        longest = max([len(title), *(cell(program, part).cell_len for program, part in there)])
        return Column(title, cell, min(most, longest), sort, lead)

    found = [
        wide("ID", lambda program, _: Text(program.share or "-", "bold" if program.share else "dim"), "id", lead=True),
        wide("PID", lambda program, _: Text(str(program.pid or "-"), justify="right"), "pid", lead=True),
        wide("USER", lambda program, _: Text(program.user), "user", lead=True, most=12),
    ]
    if any(program.pod for program, _ in there):
        found.append(wide("POD", lambda program, _: Text(pod_name(program, pods)), "", lead=True, most=30))
    found += [
        wide("CARD", lambda _, part: Text(str(part.card))),
        wide("MEMORY", lambda program, part: _memory(program, part, bars), "memory"),
    ]
    if graphs:
        found.append(Column("MEM HISTORY", _history(history, "MEM HISTORY", 11), 11))
    found.append(wide("CORES", lambda program, part: _cores(program, part, bars), "cores"))
    if graphs:
        found.append(Column("CORE HISTORY", _history(history, "CORE HISTORY", 12), 12))
    found.append(wide("COMMAND", lambda program, _: Text(program.command), "command", lead=True))
    return found


def _memory(program: Program, part: Part, bars: int) -> Text:
    of = f"/{part.memory_limit}" if part.memory_limit else ""
    if part.memory is None:
        return Text(f"?{of} MiB", "dim")
    used = part.memory / (part.memory_limit * MIB) if part.memory_limit else None
    front = Text.assemble(bar(used, bars), " ") if bars and used is not None else Text(" " * (bars + 1) if bars else "")
    return front.append(f"{-(-part.memory // MIB)}{of} MiB", colour(used) if used is not None else "")


def _cores(program: Program, part: Part, bars: int) -> Text:
    waits = " held back" if program.waits else ""
    if not part.cores_limit:
        words = "no limit" if part.memory_limit else "not told" if part.cores is None else f"{part.cores} %"
        return Text(f"{' ' * (bars + 1) if bars else ''}{words}{waits}", "dim")
    if part.cores is None:
        return Text(f"?/{part.cores_limit} %{waits}", "dim")
    front = Text.assemble(bar(part.cores / part.cores_limit, bars, calm=True), " ") if bars else Text()
    return front.append(f"{part.cores}/{part.cores_limit} %").append(waits, "yellow")


def _title(sample: Sample, view: View, table: Sequence[Row]) -> Text:
    shown = len({row.program.key for row in table if row.program})
    of = f"{shown} of {len(sample.programs)}" if view.filter else str(shown)
    order = f"by {view.sort}{', reversed' if view.reverse else ''}"
    tree = f", tree by {view.tree}" if view.tree != "none" else ""
    line = Text.assemble((f"PROGRAMS ({of})", "bold"), (f" {order}{tree}", "dim"))
    if view.filter:
        line.append(f"  filter: {view.filter}", "yellow")
    return line


def _titles(columns: Sequence[Column], view: View) -> tuple[Text, list[tuple[int, int, str]]]:
    line, sorts = Text("  "), []
    for column in columns:
        name = column.title
        if column.sort == view.sort:
            falls = SORTS[view.sort][1] is not view.reverse
            name = f"{name}{'▼' if falls else '▲'}" if len(name) < column.width else name
        if column.sort:
            sorts.append((line.cell_len, line.cell_len + column.width, column.sort))
        line.append(fitted(name, column.width), "bold reverse" if column.sort == view.sort else "bold").append(" ")
    line.right_crop(1)
    return line, sorts


def _line(row: Row, columns: Sequence[Column], chosen: bool, width: int) -> Text:
    if row.program is None or row.part is None:
        return Text(f"▾ {row.head}", "bold cyan")
    line = Text("▸" if chosen else " ")
    for column in columns:
        cell = Text() if column.lead and not row.lead else column.cell(row.program, row.part)
        if column.title == "PID":
            cell.align("right", column.width)
        line.append(" ").append_text(padded(cell, column.width))
    if chosen:
        line = padded(line, width)
        line.stylize("on grey30")
    return line


# -- The pages of a cluster: what its tables and `pumice explain` read, and nothing to be done ----------------------


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
