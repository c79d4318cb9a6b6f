"""Go's durations, as flags and annotations of Kubernetes' programs write them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``1h2m3s`` or ``500ms``. Raises ValueError when it is none."""
    text = text.strip()
    parts = _PART.findall(text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write for example 1s, 500ms or 1m30s")
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))
