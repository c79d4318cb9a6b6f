"""Functions of lists and sets, and those that strings share with lists."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cmp_to_key
from typing import Any, Final

from pumice.cel.values import CelError, Metered, Spend, equal, is_number, of, ordered, whole


def _index_of(spend: Spend, value: Any, part: Any, start: int = 0) -> int:
    if isinstance(value, list):
        return next((place for place, item in enumerate(value) if equal(spend, item, part)), -1)
    return int(of(value, str).find(of(part, str), start))


def _last_index_of(spend: Spend, value: Any, part: Any, begin: int | None = None) -> int:
    if isinstance(value, list):
        return next((place for place in reversed(range(len(value))) if equal(spend, value[place], part)), -1)
    end = None if begin is None else begin + len(of(part, str))
    return int(of(value, str).rfind(of(part, str), 0, end))


def _sorted(value: Any) -> bool:
    return all(ordered(a, b) <= 0 for a, b in zip(of(value, list), value[1:], strict=False))


def _sum(value: Any) -> Any:
    items = of(value, list)
    if all(isinstance(item, timedelta) for item in items) and items:
        return sum(items, timedelta())
    if not all(map(is_number, items)):
        raise TypeError
    found = sum(items)
    return found if isinstance(found, float) else whole(found, items[0] if items else 0)


def _extreme(sign: int) -> Callable[..., Any]:
    def extreme(value: Any) -> Any:
        if not of(value, list):
            raise CelError("min or max of an empty list")
        best = value[0]
        for item in value:
            best = item if ordered(item, best) * sign > 0 else best
        return best

    return extreme


least, greatest = _extreme(-1), _extreme(1)


def _distinct(spend: Spend, value: Any) -> list[Any]:
    found: list[Any] = []
    for item in of(value, list):
        if not any(equal(spend, item, other) for other in found):
            found.append(item)
    return found


def _flatten(spend: Spend, value: Any, depth: int = 1) -> list[Any]:
    spend(1 + len(of(value, list)))
    return [inner for item in value
            for inner in (_flatten(spend, item, depth - 1) if isinstance(item, list) and depth > 0 else [item])]  # fmt: skip


def _slice(value: Any, begin: int, end: int) -> list[Any]:
    if not 0 <= begin <= end <= len(of(value, list)):
        raise CelError(f"index out of range: {begin}")
    return list(value[begin:end])


def _range(count: int) -> list[int]:
    if not 0 <= count <= 10_000:
        raise CelError(f"a range of {count}")
    return list(range(count))


def _holds_all(spend: Spend, value: Any, other: Any) -> bool:
    return all(any(equal(spend, item, mine) for mine in of(value, list)) for item in of(other, list))


def _equivalent(spend: Spend, value: Any, other: Any) -> bool:
    return _holds_all(spend, value, other) and _holds_all(spend, other, value)


def _intersects(spend: Spend, value: Any, other: Any) -> bool:
    return any(any(equal(spend, item, mine) for mine in of(value, list)) for item in of(other, list))


NAMESPACES: Final[dict[str, Callable[..., Any] | Metered]] = {
    "sets.contains": Metered(_holds_all), "sets.equivalent": Metered(_equivalent), "sets.intersects": Metered(_intersects),
    "lists.range": _range,
}  # fmt: skip

METHODS: Final[dict[str, Callable[..., Any] | Metered]] = {
    "indexOf": Metered(_index_of), "lastIndexOf": Metered(_last_index_of),
    "reverse": lambda value: of(value, str, list)[::-1], "isSorted": _sorted, "sum": _sum, "min": least, "max": greatest,
    "distinct": Metered(_distinct), "flatten": Metered(_flatten), "slice": _slice,
    "sort": lambda value: sorted(of(value, list), key=cmp_to_key(ordered)),
}  # fmt: skip
