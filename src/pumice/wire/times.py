"""Times as Kubernetes writes and reads them: RFC 3339."""

from __future__ import annotations

import re
import time
from datetime import datetime
from functools import lru_cache

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def moment(text: str) -> float | None:
    """Unix seconds of a time with any offset; None where it is none (ISO 8601 knows many more forms, Kubernetes none)."""
    if not _RFC_3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=4096)
def seconds(text: str | None) -> float:
    """Unix seconds of a time; 0 when absent or malformed."""
    return (moment(text) or 0.0) if text else 0.0


def stamp(now: float, digits: int = 0) -> str:
    """The time in UTC, cut to whole seconds (metav1.Time) or to some digits of one (6: metav1.MicroTime)."""
    whole = int(now // 1)
    return f"{_whole(whole)}.{int((now - whole) * 10**digits):0{digits}d}Z" if digits else f"{_whole(whole)}Z"


@lru_cache(maxsize=64)  # hundreds are written in one second
def _whole(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
