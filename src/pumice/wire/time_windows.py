"""Windows of the day in which revocable nodes are lent: ``10:00-21:00``, over midnight too (arguments of plugin tdm)."""

from __future__ import annotations

import re
from typing import NamedTuple

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
