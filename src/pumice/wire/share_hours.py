"""The controller's record of share-hours: a ConfigMap for each day (UTC), in lines that `kubectl get` shows as they are.

A row is an hour's sums of one namespace, queue, model of card and kind of share. Of a day with more rows than a ConfigMap takes,
the hours go first, then the smallest namespaces are one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Final

DAY: Final = 86400
HOURS: Final = 24
KEPT_DAYS: Final = 92
PREFIX: Final = "pumice-share-hours-"
LIMIT: Final = 384 * 1024
"""Characters of the rows, and of the run times: a ConfigMap has 1 MiB for all."""
OTHERS: Final = "(others)"
"""The namespace, queue and model of rows that were too many, which no object of Kubernetes can be called."""
WHOLE_DAY: Final = -1
"""The hour of a row whose hours were summed up."""

MEASURES: Final = (
    "shares", "memory", "cores", "limitMemory", "limitCores", "usedMemory", "seenMemory", "usedCores", "seenCores",
    "reconstructed", "lost",
)  # fmt: skip
"""The sums of a row, in thousandths of a second. ``shares``: of the devices that were held, each counting as one; ``memory`` and
``cores``: of the parts of cards that were requested, ``limit...``: of those to which pods were limited. ``used...``: of the parts
that the monitors saw in use, ``seen...``: of the shares for which they were asked and answered. ``reconstructed``: the part of
``shares`` that was read off the pods' own timestamps; ``lost``: what pods that went while nobody watched held at most,
beyond ``shares``."""
TITLES: Final = "\t".join(("hour", "namespace", "queue", "model", "kind", *MEASURES))
(SHARES, MEMORY, CORES, LIMIT_MEMORY, LIMIT_CORES, USED_MEMORY, SEEN_MEMORY, USED_CORES, SEEN_CORES, RECONSTRUCTED, LOST) = range(
    len(MEASURES)
)

Key = tuple[str, str, str, str]
"""Namespace, queue, model of card, kind of share."""
Rows = dict[tuple[int, Key], list[int]]
"""By hour of the day and key."""
RunKey = tuple[str, str, str, str]
"""Namespace, queue, owner, what was requested."""


def nothing() -> list[int]:
    return [0] * len(MEASURES)


@dataclass(slots=True)
class Day:
    """The record of one day. ``number``: days since 1970. ``until``: thousandths of a second since then, up to which all is in
    it. ``open``: the shares that were held at that moment, by key, in thousandths. ``runs``: how many pods ran for how long,
    by step (``step_of``)."""

    number: int
    until: int
    rows: Rows = field(default_factory=dict)
    open: dict[Key, int] = field(default_factory=dict)
    runs: dict[RunKey, dict[int, int]] = field(default_factory=dict)
    version: str = ""
    """The resource version of the ConfigMap; empty where there is none yet."""

    @property
    def end(self) -> int:
        return (self.number + 1) * DAY * 1000


def config_map_of(number: int) -> str:
    """The name of a day's ConfigMap."""
    return PREFIX + time.strftime("%Y-%m-%d", time.gmtime(number * DAY))


# -- how long pods ran: eight steps to each doubling of a second -------------------------------------------------------

STEPS: Final = 216
"""The last one is of four years and more."""


def step_of(seconds: float) -> int:
    """The step of a run time: it is at least ``seconds_of(step)``, and less than that of the next."""
    return min(STEPS - 1, int(8 * log2(max(0.0, seconds) + 1.0)))


def seconds_of(step: int) -> float:
    return float(2.0 ** (step / 8)) - 1.0


# -- as text -----------------------------------------------------------------------------------------------------------


def render(day: Day) -> dict[str, str]:
    """The data of its ConfigMap, bounded."""
    rows = bounded(day.rows)
    lines = ("\t".join((*_hour(hour), *key, *map(str, sums))) for (hour, key), sums in sorted(rows.items()))
    held = ("\t".join((*key, str(count))) for key, count in sorted(day.open.items()))
    counted = sorted(day.runs.items(), key=lambda item: -sum(item[1].values()))
    runs = ("\t".join((*key, ",".join(f"{step}:{count}" for step, count in sorted(found.items())))) for key, found in counted)
    return {
        "until": str(day.until),
        "rows": "".join(f"{line}\n" for line in (TITLES, *lines)),
        "open": _bounded_lines(held, LIMIT // 4),
        "runs": _bounded_lines(runs, LIMIT // 2),
    }


def parse(number: int, data: Mapping[str, str]) -> tuple[Day, int]:
    """A day as its ConfigMap has it, and how many lines of that say nothing: they are left out. Raises ValueError where it does
    not say until when it counts."""
    until = data.get("until", "")
    if not (until.isascii() and until.isdigit() and len(until) <= 16):
        raise ValueError(f"until: {until[:40]!r} is no time in thousandths of a second")
    day, bad = Day(number, min(int(until), (number + 1) * DAY * 1000)), 0
    for line in data.get("rows", "").splitlines()[1:]:
        word, *rest = line.split("\t")
        key, sums = rest[:4], [_number(each) for each in rest[4:]]
        known = [each for each in sums if each is not None]
        hour = WHOLE_DAY if word == "-" else _number(word)
        if len(key) == 4 and len(known) == len(sums) == len(MEASURES) and hour is not None and hour < HOURS:
            add(day.rows, hour, (key[0], key[1], key[2], key[3]), known)
        else:
            bad += 1
    for line in data.get("open", "").splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and (count := _number(fields[4])) is not None:
            day.open[fields[0], fields[1], fields[2], fields[3]] = count
        else:
            bad += 1
    for line in data.get("runs", "").splitlines():
        if (run := parse_run(line)) is not None:
            day.runs[run[0]] = run[1]
        else:
            bad += 1
    return day, bad


def parse_run(line: str) -> tuple[RunKey, dict[int, int]] | None:
    """One line of run times; None where it says nothing."""
    fields = line.split("\t")
    pairs = [pair.partition(":") for pair in fields[-1].split(",")]
    steps = {int(step): int(count) for step, _, count in pairs if _number(step) is not None and _number(count)}
    if len(fields) != 5 or len(steps) != len(pairs) or max(steps) >= STEPS:
        return None
    return (fields[0], fields[1], fields[2], fields[3]), steps


def add(rows: Rows, hour: int, key: Key, sums: Iterable[int]) -> None:
    row = rows.setdefault((hour, key), nothing())
    for at, amount in enumerate(sums):
        row[at] += amount


def clean(text: str) -> str:
    """A foreign word as it stands in a line: no separators, and no longer than a name of Kubernetes' may be."""
    return re.sub(r"[\x00-\x1f\x7f\u2028\u2029\x85]+", " ", text)[:253]


def bounded(rows: Rows) -> Rows:
    """The rows, as many as there is place for; the sum of all of them stays what it is."""
    if _size(rows) <= LIMIT:
        return rows
    rows = _joined(rows, lambda hour, key: (WHOLE_DAY, key))
    if (size := _size(rows)) <= LIMIT:
        return rows
    of_namespace: dict[str, list[int]] = {}  # shares, characters
    for (hour, key), sums in rows.items():
        found = of_namespace.setdefault(key[0], [0, 0])
        found[0] += sums[SHARES]
        found[1] += _length(hour, key, sums)
    small = {OTHERS}
    for namespace, (_, length) in sorted(of_namespace.items(), key=lambda item: (item[1][0], item[0])):
        if size <= LIMIT * 3 // 4:  # some place for those that are to come
            break
        small.add(namespace)
        size -= length
    rows = _joined(rows, lambda hour, key: (hour, (OTHERS, *key[1:])) if key[0] in small else (hour, key))
    if _size(rows) > LIMIT:  # queues and models without number
        rows = _joined(rows, lambda hour, key: (hour, (key[0], OTHERS, OTHERS, key[3])))
    return rows if _size(rows) <= LIMIT else _joined(rows, lambda hour, key: (hour, (OTHERS, OTHERS, OTHERS, "")))


def _joined(rows: Rows, place: Callable[[int, Key], tuple[int, Key]]) -> Rows:
    joined: Rows = {}
    for (hour, key), sums in rows.items():
        add(joined, *place(hour, key), sums)
    return joined


def _size(rows: Rows) -> int:
    return sum(_length(hour, key, sums) for (hour, key), sums in rows.items())


def _length(hour: int, key: Key, sums: Sequence[int]) -> int:
    return len("\t".join((*_hour(hour), *key, *map(str, sums))).encode()) + 1


def _hour(hour: int) -> tuple[str]:
    return ("-" if hour == WHOLE_DAY else str(hour),)


def _bounded_lines(lines: Iterable[str], limit: int) -> str:
    kept: list[str] = []
    for line in lines:
        limit -= len(line.encode()) + 1
        if limit < 0:
            break
        kept.append(f"{line}\n")
    return "".join(kept)


def _number(text: str) -> int | None:
    return int(text) if 0 < len(text) <= 18 and text.isascii() and text.isdigit() else None
