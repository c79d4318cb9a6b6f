"""Operators, and the ways into lists, maps and optional values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pumice.cel.running import Budget
from pumice.cel.values import (
    NOTHING,
    CelError,
    Host,
    Message,
    Optional,
    Uint,
    equal,
    is_number,
    length,
    ordered,
    type_of,
    whole,
)

Operator = Callable[[Budget, Any, Any], Any]


def negated(value: Any) -> Any:
    if isinstance(value, float):
        return -value
    if is_number(value) and not isinstance(value, Uint):
        return whole(-value)
    raise CelError(f"no such overload: -{type_of(value)}")


def _arithmetic(symbol: str, compute: Callable[[Any, Any], Any], joins: tuple[type, ...] = ()) -> Operator:
    def operate(budget: Budget, left: Any, right: Any) -> Any:
        same = type_of(left) == type_of(right)
        if is_number(left) and is_number(right) and same:
            found = compute(left, right)
            return found if isinstance(found, float) else whole(found, left)
        if same and isinstance(left, joins):
            budget.spend(length(left) + length(right))
            return left + right
        moved = _moved(symbol, left, right)
        if moved is None:
            raise CelError(f"no such overload: {type_of(left)} {symbol} {type_of(right)}")
        return moved

    return operate


def _moved(symbol: str, left: Any, right: Any) -> Any:
    """Times and durations; None where that is not defined."""
    kinds = type_of(left).rpartition(".")[2], type_of(right).rpartition(".")[2]
    try:
        if symbol == "+" and kinds in (("Timestamp", "Duration"), ("Duration", "Timestamp"), ("Duration", "Duration")):
            return left + right
        if symbol == "-" and kinds in (("Timestamp", "Duration"), ("Timestamp", "Timestamp"), ("Duration", "Duration")):
            return left - right
    except OverflowError:
        raise CelError("timestamp overflow") from None
    return None


def _divided(left: Any, right: Any) -> Any:
    """Integers are cut towards zero."""
    if isinstance(left, float):
        return left / right if right else float("nan") if left in (0, float("nan")) else float("inf") * (1 if left > 0 else -1)
    if not right:
        raise CelError("division by zero")
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


def _rest(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        raise CelError("no such overload: double % double")
    if not right:
        raise CelError("modulus by zero")
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def _compared(holds: Callable[[int], bool]) -> Operator:
    return lambda budget, left, right: holds(ordered(left, right))


def _equality(budget: Budget, left: Any, right: Any) -> bool:
    return equal(budget.spend, left, right)


OPERATORS: Final[dict[str, Operator]] = {
    "+": _arithmetic("+", lambda a, b: a + b, (str, bytes, list)),
    "-": _arithmetic("-", lambda a, b: a - b),
    "*": _arithmetic("*", lambda a, b: a * b),
    "/": _arithmetic("/", _divided),
    "%": _arithmetic("%", _rest),
    "==": _equality,
    "!=": lambda budget, left, right: not _equality(budget, left, right),
    "<": _compared(lambda order: order < 0),
    "<=": _compared(lambda order: order <= 0),
    ">": _compared(lambda order: order > 0),
    ">=": _compared(lambda order: order >= 0),
}


def contains(budget: Budget, whole_: Any, part: Any) -> bool:
    if isinstance(whole_, Mapping):
        return _key(part) in whole_
    if isinstance(whole_, list):
        return any(equal(budget.spend, part, item) for item in whole_)
    raise CelError(f"no such overload: {type_of(part)} in {type_of(whole_)}")


# -- into values ----------------------------------------------------------------------------------------------------------


def field_of(value: Any, name: str) -> Any:
    if isinstance(value, Optional):
        return lookup(value, name)
    found = lookup(value, name)
    if not found.there:
        raise CelError(f"no such key: {name}")
    return found.value


def elements(value: Any, maybe: bool) -> tuple[Any, ...]:
    """The value as an element, nothing of one that is missing."""
    if not maybe:
        return (value,)
    if not isinstance(value, Optional):
        raise CelError(f"no such overload: {type_of(value)} is no optional value")
    return (value.value,) if value.there else ()


def map_key(key: Any) -> Any:
    if not isinstance(key, bool | int | str):
        raise CelError(f"unsupported key type: {type_of(key)}")
    return key


def _key(key: Any) -> Any:
    if isinstance(key, float) and key.is_integer():
        return int(key)
    if isinstance(key, list | dict | Message | Optional | Host):
        raise CelError(f"unsupported key type: {type_of(key)}")
    return key


def lookup(value: Any, key: Any) -> Optional:
    if isinstance(value, Optional):
        return lookup(value.value, key) if value.there else NOTHING
    if isinstance(value, Message):
        value = value.fields
    if isinstance(value, Mapping):
        try:
            return Optional(True, value[_key(key)])  # not looked up before: a map may have a value for keys that it lacks
        except KeyError:
            return NOTHING
    if isinstance(value, list) and is_number(key) and key == key // 1:
        key = int(key)
        return Optional(True, value[key]) if 0 <= key < len(value) else NOTHING
    if value is None and isinstance(key, str):
        return NOTHING
    raise CelError(f"no such overload: {type_of(value)} has no {key}")


def item_of(value: Any, key: Any) -> Any:
    found = lookup(value, key)
    if isinstance(value, Optional):
        return found
    if not found.there:
        raise CelError(f"index out of bounds: {key}" if isinstance(value, list) else f"no such key: {key}")
    return found.value
