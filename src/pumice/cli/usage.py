"""``pumice usage``: who held how many hours of which cards, from the controller's record."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.cli import flags
from pumice.cli.completion import NAMESPACES
from pumice.cli.output import document
from pumice.model.errors import BadInput, nearest
from pumice.wire.names import SYSTEM_NAMESPACE
from pumice.wire.times import stamp

if TYPE_CHECKING:
    from pumice.ports.cluster import Cluster
    from pumice.wire.share_hours import Day

app = flags.App()

GROUPS = ("namespace", "queue", "model", "kind", "day")
OUTPUTS = ("table", "csv", "json")
TITLES = {
    "shares": "SHARE-HOURS", "memory": "MEMORY", "cores": "CORES", "limitMemory": "LIMIT-MEMORY", "limitCores": "LIMIT-CORES",
    "usedMemory": "USED-MEMORY", "usedCores": "USED-CORES",
}  # fmt: skip
AT_ONCE = 8
"""Questions to the API server."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums in hours, by the names of ``wire.share_hours.MEASURES``; ``usedMemory`` and ``usedCores`` None where nobody tells."""

    of: tuple[str, ...]
    hours: Mapping[str, float | None]


@app.command(epilog="Examples: pumice usage;  pumice usage --since 30d --by namespace -o csv;  pumice usage --since 2026-11-01")
def usage(
    since: Annotated[str, flags.Option(help="From then on: 7d, 36h, 2026-11-01 or 2026-11-01T08:00:00Z.")] = "7d",
    until: Annotated[str, flags.Option(help="Until then, in the same words; the present without it.")] = "",
    by: Annotated[str, flags.Option(help="Sum up by these: namespace, queue, model, kind, day.")] = "namespace,queue,model",
    namespace: Annotated[str | None, flags.Option("-n", "--namespace", help="Only this namespace."), NAMESPACES] = None,
    record: Annotated[str, flags.Option("--record-namespace", help="Where the controller keeps its record.")] = SYSTEM_NAMESPACE,
    kubeconfig: Annotated[Path | None, flags.Option(envvar="KUBECONFIG", help="Kubeconfig file.")] = None,
    output: Annotated[str, flags.Option("-o", "--output", help="table, csv or json.")] = "table",
) -> None:
    """Sum up who held shares of which cards for how long: hours of shares, of the parts of cards requested and limited, and of
    the parts that the monitors saw in use. A card that one pod has alone for an hour is one hour of each."""
    # Only here: help and completion need no client.
    from pumice.cli.question import ask

    groups = [word.strip() for word in by.split(",") if word.strip()]
    for word in groups:
        if word not in GROUPS:
            raise BadInput(f"--by {word!r}: nothing is counted by this{nearest(word, GROUPS) or '; ' + ', '.join(GROUPS)}")
    if output not in OUTPUTS:
        raise BadInput(f"-o {output!r}: table, csv or json{nearest(output, OUTPUTS)}")
    now = time.time()
    begin, end = moment("--since", since, now), min(now, moment("--until", until, now)) if until else now
    if begin >= end:
        raise BadInput(f"--since {since} is not before {f'--until {until}' if until else 'now'}")

    async def question(kube: Cluster) -> list[Day]:
        return await days_of(kube, record, begin, end)

    days = ask(kubeconfig, "", question)
    if not days:
        raise BadInput(f"no record of share-hours from {stamp(begin)} to {stamp(end)} in namespace {record}; "
                       "`pumice controller` keeps it")  # fmt: skip
    found = summed(days, groups, begin, end, namespace)
    known_until = max(day.until for day in days) / 1000
    notes = list(_notes(days, found, known_until, end))
    if output == "json":
        shown = [{**dict(zip(groups, each.of, strict=True)), "hours": each.hours} for each in found]
        print(document({"since": stamp(begin), "until": stamp(min(end, known_until)), "by": groups, "usage": shown,
                        "notes": notes}))  # fmt: skip
    elif output == "csv":
        measures = list(found[0].hours) if found else []
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([*groups, *(f"{measure}Hours" for measure in measures)])
        for each in found:
            amounts = ("" if amount is None else f"{amount:.4f}" for amount in each.hours.values())
            writer.writerow([*map(_harmless, each.of), *amounts])
    else:
        _print(groups, found, notes)


def moment(flag: str, text: str, now: float) -> float:
    """Unix seconds of a time, or of so long ago. Raises BadInput."""
    from pumice.wire.quantity import parse_duration

    try:
        if text.endswith("d") and text[:-1].isascii() and text[:-1].isdigit() and len(text) < 6:
            return now - int(text[:-1]) * 86400.0
        if text[4:5] == "-":
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        return now - parse_duration(text)
    except (ValueError, OverflowError):
        raise BadInput(f"{flag} {text!r}: write for example 7d, 36h, 2026-11-01 or 2026-11-01T08:00:00Z") from None


async def days_of(kube: Cluster, namespace: str, begin: float, end: float) -> list[Day]:
    """The days of the record that there are. Raises BadInput where one of them says nothing."""
    import asyncio

    from pumice.ports.cluster import ApiError
    from pumice.wire.kinds import CONFIGMAPS
    from pumice.wire.share_hours import DAY, KEPT_DAYS, config_map_of, parse

    last = int(end // DAY)
    numbers = range(max(int(begin // DAY), last - KEPT_DAYS - 1), last + 1)
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> Day | None:
        try:
            async with turns:
                found = await kube.get(CONFIGMAPS, config_map_of(number), namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        try:
            return parse(number, found.get("data") or {})[0]
        except ValueError as error:
            raise BadInput(f"ConfigMap {namespace}/{config_map_of(number)}: {error}") from None

    return [day for day in await asyncio.gather(*map(one, numbers)) if day is not None]


def summed(days: Iterable[Day], by: Sequence[str], begin: float, end: float, namespace: str | None = None) -> list[Usage]:
    """The rows of hours and days that lie, if only in part, between the two times; the most share-hours first."""
    from pumice.wire.share_hours import DAY, MEASURES, SEEN_CORES, SEEN_MEMORY, SHARES, WHOLE_DAY, nothing

    sums: dict[tuple[str, ...], list[int]] = {}
    for day in days:
        for (hour, key), amounts in day.rows.items():
            start = day.number * DAY + (0 if hour == WHOLE_DAY else hour * 3600)
            length = DAY if hour == WHOLE_DAY else 3600
            if start + length <= begin or start >= end or namespace not in (None, key[0]):
                continue
            words = dict(zip(GROUPS, (*key, stamp(day.number * DAY)[:10]), strict=True))
            row = sums.setdefault(tuple(words[word] for word in by), nothing())
            for at, amount in enumerate(amounts):
                row[at] += amount
    found = []
    for of, row in sorted(sums.items(), key=lambda item: (-item[1][SHARES], item[0])):
        hours: dict[str, float | None] = {measure: row[at] / 3_600_000 for at, measure in enumerate(MEASURES)}
        for measure, seen in (("usedMemory", SEEN_MEMORY), ("usedCores", SEEN_CORES)):
            if not row[seen]:
                hours[measure] = None
        found.append(Usage(of, hours))
    return found


def _notes(days: Sequence[Day], found: Sequence[Usage], known_until: float, end: float) -> Iterable[str]:
    """Sentences on what the figures leave out."""
    from pumice.wire.share_hours import WHOLE_DAY

    if known_until < end - 900:
        yield f"the record ends at {stamp(known_until)}: what was held later is not in it"
    reported = ("shares", "reconstructed", "lost", "seenMemory")
    sums = {measure: sum(each.hours[measure] or 0.0 for each in found) for measure in reported}
    if sums["seenMemory"] < sums["shares"] * 0.995:
        part = sums["seenMemory"] / sums["shares"]
        yield f"use is known of {part:.0%} of the share-hours: of the rest, no monitor has told"
    if sums["reconstructed"] >= 0.005:
        yield f"{sums['reconstructed']:.2f} share-hours are read off the pods' timestamps: no controller watched then"
    if sums["lost"] >= 0.005:
        yield f"at most {sums['lost']:.2f} share-hours are missing, of pods that went while no controller watched"
    whole = [day for day in days if any(hour == WHOLE_DAY for hour, _ in day.rows)]
    for day in islice(whole, 3):
        yield f"{stamp(day.number * 86400)[:10]} has more rows than hours can be kept of, and counts as a whole"


def _print(groups: Sequence[str], found: Sequence[Usage], notes: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from pumice.cli.tables import print_whole, wide_console

    console, _ = wide_console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for word in groups:
        table.add_column(word.upper(), no_wrap=True)
    for title in (*TITLES.values(), "KNOWN"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in found:
        cells = [_cell(each.hours[measure]) for measure in TITLES]
        shares, seen = each.hours["shares"] or 0.0, each.hours["seenMemory"] or 0.0
        cells.append(f"{min(1.0, seen / shares):.0%}" if shares else "-")
        table.add_row(*(Text(word) for word in each.of), *cells)
    print_whole(console, table)
    for note in notes:
        print(note)


def _cell(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.2f}"


def _harmless(word: str) -> str:
    """For programs that take a cell with such a beginning for a formula."""
    return f"'{word}" if word[:1] in ("=", "+", "-", "@") else word


