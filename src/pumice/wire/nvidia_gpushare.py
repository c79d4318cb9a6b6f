"""The legacy sharing wire: ``gpu-memory`` and ``gpu-number`` with their two annotations (Volcano
pkg/scheduler/api/devices/nvidia/gpushare)."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.wire import names


def parse_index(text: str | None) -> tuple[int, ...] | None:
    """Card ids of ``volcano.sh/gpu-index``. Absent or with any item that is no integer: None, as a whole."""
    if not text:
        return None
    ids = []
    for item in text.split(","):
        number = _integer(item)
        if number is None:
            return None
        ids.append(number)
    return tuple(ids)


def render_index(ids: Iterable[int]) -> str:
    """Comma-separated without blanks."""
    return ",".join(map(str, ids))


def parse_unhealthy(text: str | None) -> frozenset[int]:
    """Card ids of ``volcano.sh/gpu-unhealthy-ids``; items that are no integers are skipped, blanks are not trimmed."""
    numbers = (_integer(item) for item in (text or "").split(","))
    return frozenset(number for number in numbers if number is not None)


def render_binding(ids: Iterable[int], now_ns: int) -> dict[str, str]:
    """Return the two annotations of a decision."""
    return {names.GPU_INDEX: render_index(ids), names.PREDICATE_TIME: str(now_ns)}


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else None
