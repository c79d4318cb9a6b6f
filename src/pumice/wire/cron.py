"""Schedules as cron writes them (``0 3 * * mon-fri``, ``@daily``), and their next time (crontab(5), Kubernetes' CronJob).

``@every 90s`` counts from the last time, as Kubernetes' CronJob does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from pumice.wire.quantity import parse_duration

EVERY: Final = "@every "
WORDS: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
YEARS_AHEAD: Final = 5
"""So far a next time is looked for; the 29th of February comes within."""


_ZONE_PART: Final = re.compile(r"[A-Za-z0-9._+-]{1,14}")


def bad_zone(name: str) -> str:
    """Return why it names no time zone; empty where it does. Its words are Kubernetes'."""
    if not name:
        return "timeZone must be nil or non-empty string"
    if name.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    if all(_ZONE_PART.fullmatch(part) and part not in (".", "..") for part in name.split("/")):
        try:
            ZoneInfo(name)
            return ""
        except (KeyError, ValueError, OSError):
            pass
    return f"unknown time zone {name}"


@dataclass(frozen=True, slots=True)
class Schedule:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool
    """Both kinds of days are said, and one of them is enough."""
    zone: tzinfo

    def after(self, moment: float) -> float | None:
        """The first time behind a moment (Unix seconds)."""
        start = datetime.fromtimestamp(moment, self.zone)
        day = start.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for _ in range(366 * YEARS_AHEAD):
            if day.month in self.months and self._is_day(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        found = day.replace(hour=hour, minute=minute, tzinfo=self.zone).timestamp()
                        if found > moment:
                            return found
            day += timedelta(days=1)
        return None

    def _is_day(self, day: datetime) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.either else in_month and in_week


@dataclass(frozen=True, slots=True)
class Every:
    """A schedule that knows no clock."""

    seconds: float

    def after(self, moment: float) -> float:
        return moment + self.seconds


def parse_schedule(text: str, zone: str = "") -> Schedule | Every:
    """Raises ValueError that says what is wrong."""
    if text.startswith(EVERY):
        return Every(max(1.0, float(int(parse_duration(text.removeprefix(EVERY))))))
    words = WORDS.get(text.strip().lower(), text).split()
    if len(words) != len(FIELDS):
        raise ValueError(f"schedule {text!r} has {len(words)} fields; write five, for example 0 3 * * *")
    minutes, hours, days, months, weekdays = (
        _field(word.lower(), *field) for word, field in zip(words, FIELDS, strict=True)
    )
    try:
        where: tzinfo = ZoneInfo(zone) if zone else UTC
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"time zone {zone!r} is not known") from error
    either = not words[2].startswith(("*", "?")) and not words[4].startswith(("*", "?"))
    return Schedule(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either, where)


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            begin, end = low, high
        else:
            begin = _number(first, name)
            end = _number(last, name) if dash else (high if slash else begin)
        by = int(step) if step.isdecimal() else 0 if slash else 1
        if not low <= begin <= end <= high or by < 1:
            raise ValueError(f"{part!r} is no {name} of a schedule ({low} to {high})")
        found.update(range(begin, end + 1, by))
    return frozenset(found)


def _number(text: str, name: str) -> int:
    names = {"month": MONTHS, "day of the week": DAYS}.get(name, ())
    if text in names:
        return names.index(text) + (name == "month")
    if not text.isdecimal() or len(text) > 3:
        raise ValueError(f"{text!r} is no {name} of a schedule")
    return int(text)


# -- Windows of the day in which revocable nodes are lent ------------------------------------------------------------

# ``10:00-21:00``, over midnight too (arguments of plugin tdm).

DAY = 24 * 3600.0
_FORM = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")


class Window(NamedTuple):
    """Seconds after midnight. One that ends before it begins goes over midnight."""

    begin: float
    end: float

    def holds(self, second: float) -> bool:
        if self.begin <= self.end:
            return self.begin <= second < self.end
        return second >= self.begin or second < self.end

    def until_switch(self, second: float) -> float:
        """Seconds until it begins or ends next."""
        return min((edge - second) % DAY or DAY for edge in self)


def parse_window(text: str) -> Window:
    """Raises ValueError when it is none."""
    found = _FORM.fullmatch(text.strip())
    if found is not None:
        begin_hour, begin_minute, end_hour, end_minute = (int(part) for part in found.groups())
        if max(begin_hour, end_hour) < 24 and max(begin_minute, end_minute) < 60:
            window = Window(begin_hour * 3600.0 + begin_minute * 60, end_hour * 3600.0 + end_minute * 60)
            if window.begin != window.end:
                return window
    raise ValueError(f"{text!r} is no window; write for example 10:00-21:00")
