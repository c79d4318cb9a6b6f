"""The accountant of share-hours: bound pods and their shares in, the day's record out (``wire.share_hours``).

A record says until when it counts, and is written whole and on condition that nobody wrote it meanwhile. So what was counted and
until when cannot part, whenever the accountant dies: the next one goes on where the record ends, by the pods' own timestamps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from pumice.wire.held_shares import Share
from pumice.wire.share_hours import (
    CORES,
    DAY,
    HOURS,
    LIMIT_CORES,
    LIMIT_MEMORY,
    LOST,
    MEMORY,
    OTHERS,
    RECONSTRUCTED,
    SEEN_CORES,
    SEEN_MEMORY,
    SHARES,
    USED_CORES,
    USED_MEMORY,
    WHOLE_DAY,
    Day,
    Key,
    Rows,
    RunKey,
    add,
    bounded,
    nothing,
    step_of,
)

BEHIND = 30_000
"""Thousandths of a second by which the record is behind: what happened then has been told by the watch."""
AWAY = 10 * 60_000
"""A stretch that is longer is said to be reconstructed: nobody watched it."""
JUMP = 60.0
"""Seconds by which the clock may differ from the machine's steady one before it is asked a second time."""
SERIES = 500
"""Of the metrics; what comes later is one of others."""
KEPT_BY_A_STANDBY = 100_000
"""Pods that are gone, of which whoever does not lead remembers the last."""


@dataclass(slots=True, eq=False)
class ShareOwner:
    """A bound pod. Times are in thousandths of a second; ``counted``: up to which the record has it."""

    uid: str
    pod: tuple[str, str]
    """Namespace and name."""
    run: RunKey
    parts: tuple[tuple[Key, Share], ...]
    start: int
    end: float = inf
    counted: int = 0
    there: bool = True
    """False when the API server no longer has it."""


@dataclass(frozen=True, slots=True)
class Use:
    """The parts of cards that a pod was seen to use; None where the monitor does not tell."""

    memory: float | None
    cores: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """Use between two looks, by key: memory, the shares of which it is known, and the same of cores."""

    begin: int
    end: int
    sums: Mapping[Key, tuple[float, int, float, int]]


@dataclass(slots=True)
class Accountant:
    """The accountant of hours of shares. ``day`` is the last record that was written, or read; None before ``adopt``."""

    holders: dict[str, ShareOwner] = field(default_factory=dict)
    day: Day | None = None
    totals: dict[Key, list[int]] = field(default_factory=dict)
    """Share-hours that this process has counted, for metrics."""
    _by_name: dict[tuple[str, str], ShareOwner] = field(default_factory=dict)
    _samples: deque[Sample] = field(default_factory=deque)
    _missing: dict[Key, int] = field(default_factory=dict)
    """The shares that were held when the adopted record ended, by pods that are not there; in thousandths."""
    _adopted_at: int = 0
    _away: bool = False
    """True where nobody watched between the record's end and then."""
    _offset: float | None = None
    _more: _Sums | None = None
    """Share-hours of the last settled record beyond those of the one before."""

    # -- what the watch tells -----------------------------------------------------------------------------------

    def held(self, owner: ShareOwner) -> None:
        """A pod has its shares, and had them from its ``start`` on; one that has ended already says when."""
        if owner.uid in self.holders:
            return
        owner.counted = max(owner.start, self.day.until if self.day is not None else 0)
        self.holders[owner.uid] = owner
        self._by_name[owner.pod] = owner

    def ended(self, uid: str, at: int, *, there: bool = True) -> None:
        """A pod holds nothing from that time on. The first time that is told counts. ``there`` False: it is deleted."""
        owner = self.holders.get(uid)
        if owner is None:
            return
        if owner.end == inf:
            owner.end = max(at, owner.start, owner.counted + 1)  # what is counted stays, and the run is not forgotten
        if not there:
            owner.there = False
            self._forget(owner)
            if self.day is None and len(self.holders) > KEPT_BY_A_STANDBY:  # nobody leads here yet
                self._drop([next((each for each in self.holders.values() if not each.there), owner)])

    def used(self, begin: int, end: int, uses: Mapping[tuple[str, str], Use]) -> None:
        """Record the use of pods (by namespace and name) between two looks. Impossible readings count as unknown."""
        sums: dict[Key, list[float]] = {}
        for name, use in uses.items():
            owner = self._by_name.get(name)
            if owner is None or owner.start > begin or owner.end < end or end <= begin:
                continue
            devices = sum(share.shares for _, share in owner.parts)
            for key, share in owner.parts:
                row = sums.setdefault(key, [0.0, 0, 0.0, 0])
                for at, part in enumerate((use.memory, use.cores)):
                    if part is not None and isfinite(part) and 0.0 <= part <= devices * 1.001:
                        row[2 * at] += part * share.shares / devices
                        row[2 * at + 1] += share.shares
        if sums:
            self._samples.append(Sample(begin, end, {key: (a, int(b), c, int(d)) for key, (a, b, c, d) in sums.items()}))

    # -- the record ---------------------------------------------------------------------------------------------

    def adopt(self, day: Day, now: int) -> None:
        """Go on where a record ends: at the start, and where somebody else has written it. Before the first of all it is empty,
        and ends at the present. ``now``: since then we watch."""
        self.day = day
        self._adopted_at, self._away = now, now - day.until > AWAY
        for owner in self.holders.values():
            owner.counted = max(owner.start, day.until)
        while self._samples and self._samples[0].begin < day.until:
            self._samples.popleft()
        missing = dict(day.open)
        for owner in self.holders.values():
            if owner.start < day.until < owner.end:
                for key, share in owner.parts:
                    missing[key] = missing.get(key, 0) - share.shares * 1000
        self._missing = {key: count for key, count in missing.items() if count > 0}
        self._drop([each for each in self.holders.values() if not each.there and each.end <= day.until])

    def settle(self, now: float, steady: float) -> Day | None:
        """Return the record to write next; None where there is nothing to count. ``steady`` is a clock that never jumps: where
        ``now`` has moved against it, nothing is counted until that is seen a second time. Days are settled one by one."""
        offset, before = now - steady, self._offset
        self._offset = offset
        if self.day is None or (before is not None and abs(offset - before) > JUMP):
            return None
        base = self.day
        to = int(now * 1000) - BEHIND
        if base.until >= base.end:
            base = Day(base.until // (DAY * 1000), base.until)
        to = min(to, base.end)
        if to <= base.until:
            return None
        new = Day(base.number, to, {at: list(row) for at, row in base.rows.items()}, version=base.version,
                  runs={key: dict(steps) for key, steps in base.runs.items()})  # fmt: skip
        whole_day = any(hour == WHOLE_DAY for hour, _ in base.rows)
        self._more = _Sums(new, base.until, whole_day, self._adopted_at if self._away else 0)
        for owner in self.holders.values():
            self._more.count(owner)
        self._more.close()
        for sample in self._samples:
            if sample.end <= to:
                self._more.put_used(sample)
        lost = min(to, self._adopted_at) - base.until
        for key, count in self._missing.items():
            if lost > 0:
                self._more.put(base.until, key, _one(LOST, count * lost // 1000))
            if to < self._adopted_at:  # whoever adopts this record must not take them for never there
                new.open[key] = new.open.get(key, 0) + count
        for (hour, key), sums in self._more.rows.items():
            add(new.rows, hour, key, sums)
        new.rows = bounded(new.rows)
        return new

    def written(self, day: Day) -> None:
        """The record that ``settle`` returned last is stored, with its new version."""
        self.day = day
        self._book()
        for owner in self.holders.values():
            owner.counted = max(owner.counted, day.until)
        while self._samples and self._samples[0].end <= day.until:
            self._samples.popleft()
        if day.until >= self._adopted_at:
            self._missing = {}
        self._drop([each for each in self.holders.values() if not each.there and each.end <= day.until])

    def _book(self) -> None:
        """The metrics: what is new in the day's sums, of a bounded number of keys."""
        for (_, key), sums in self._more.rows.items() if self._more is not None else ():
            counted = key if key in self.totals or len(self.totals) < SERIES else (OTHERS, OTHERS, OTHERS, "")
            row = self.totals.setdefault(counted, nothing())
            for at, amount in enumerate(sums):
                row[at] += amount
        self._more = None

    def _drop(self, holders: Iterable[ShareOwner]) -> None:
        for owner in holders:
            del self.holders[owner.uid]
            self._forget(owner)

    def _forget(self, owner: ShareOwner) -> None:
        if self._by_name.get(owner.pod) is owner:
            del self._by_name[owner.pod]


@dataclass(slots=True)
class _Sums:
    """Share-hours that come to a record in one stretch, from ``begin`` to the end of ``day``."""

    day: Day
    begin: int
    whole_day: bool
    """The day has given up its hours."""
    away_until: int
    """Begin of this process' counting, Unix seconds: use before it is read off the pods' timestamps."""
    rows: Rows = field(default_factory=dict)
    _steady: dict[Key, list[float]] = field(default_factory=dict)
    """The sums of those who hold the same all the while, which are nearly all."""

    def count(self, owner: ShareOwner) -> None:
        """Add what a pod held since it was counted."""
        day = self.day
        if owner.start < day.until < owner.end:
            for key, share in owner.parts:
                day.open[key] = day.open.get(key, 0) + share.shares * 1000
            if owner.counted == self.begin:
                for key, share in owner.parts:
                    sums = self._steady.setdefault(key, [0.0] * len(HELD))
                    for at, part in enumerate(_parts(share)):
                        sums[at] += part
                return
        elif owner.counted < owner.end <= day.until:
            steps = day.runs.setdefault(owner.run, {})
            step = step_of((owner.end - owner.start) / 1000)
            steps[step] = steps.get(step, 0) + 1
        for key, share in owner.parts:
            self._put_held(owner.counted, int(min(owner.end, day.until)), key, _parts(share))

    def close(self) -> None:
        """Add what was held all the while."""
        for key, parts in self._steady.items():
            self._put_held(self.begin, self.day.until, key, parts)

    def _put_held(self, begin: int, end: int, key: Key, parts: Sequence[float]) -> None:
        for start, stop in _by_hours(begin, end):
            sums = nothing()
            for at, part in zip(HELD, parts, strict=True):
                sums[at] = round(part * (stop - start))
            sums[RECONSTRUCTED] = round(parts[0] * max(0, min(stop, self.away_until) - start))
            self.put(start, key, sums)

    def put_used(self, sample: Sample) -> None:
        for begin, stop in _by_hours(sample.begin, sample.end):
            for key, parts in sample.sums.items():
                sums = nothing()
                for at, part in zip((USED_MEMORY, SEEN_MEMORY, USED_CORES, SEEN_CORES), parts, strict=True):
                    sums[at] = round(part * (stop - begin))
                self.put(begin, key, sums)

    def put(self, at: int, key: Key, sums: Sequence[int]) -> None:
        """Add to the hour of a time; what is told late is of the day's first."""
        hour = max(0, min(HOURS - 1, (at - self.day.number * DAY * 1000) // HOUR))
        add(self.rows, WHOLE_DAY if self.whole_day else hour, key, sums)


HOUR = DAY * 1000 // HOURS
HELD = (SHARES, MEMORY, CORES, LIMIT_MEMORY, LIMIT_CORES)


def _parts(share: Share) -> Sequence[float]:
    return share.shares, share.memory, share.cores, share.limit_memory, share.limit_cores


def _by_hours(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a stretch that lie in one hour each."""
    while begin < end:
        stop = min(end, (begin // HOUR + 1) * HOUR)
        yield begin, stop
        begin = stop


def _one(at: int, amount: int) -> list[int]:
    row = nothing()
    row[at] = amount
    return row
