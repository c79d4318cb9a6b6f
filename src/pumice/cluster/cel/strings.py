"""Functions of strings, with the extension of that name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from pumice.cluster.cel.conversions import shown
from pumice.cluster.cel.values import CelError, of
from pumice.cluster.patterns import Pattern, pattern_of


def _matches(value: Any, pattern: Any) -> bool:
    return bool(_pattern(pattern).search(of(value, str)))


def _pattern(text: Any) -> Pattern:
    try:
        return pattern_of(of(text, str))
    except ValueError:
        raise CelError(f"{text!r} is no regular expression") from None


def _find_all(value: Any, pattern: Any, most: int = -1) -> list[str]:
    found = [match.group(0) for match in _pattern(pattern).finditer(of(value, str))]
    return found if most < 0 else found[:most]


def _substring(value: Any, begin: int, end: int | None = None) -> str:
    text = of(value, str)
    last = len(text) if end is None else end
    if not 0 <= begin <= last <= len(text):
        raise CelError(f"index out of range: {begin}")
    return str(text[begin:last])


def _replace(value: Any, old: Any, new: Any, most: int = -1) -> str:
    found = of(value, str).count(of(old, str))
    if len(value) + found * len(of(new, str)) > 1 << 20:
        raise CelError("the string would be too long")
    return str(value.replace(old, new, most))


def _split(value: Any, by: Any, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not of(by, str):
        return list(of(value, str))
    return list(of(value, str).split(by, most - 1 if most > 0 else -1))


def _join(value: Any, by: Any = "") -> str:
    return str(of(by, str).join(of(item, str) for item in of(value, list)))


def _char_at(value: Any, place: int) -> str:
    if not 0 <= place <= len(of(value, str)):
        raise CelError(f"index out of range: {place}")
    return str(value[place : place + 1])


def _format(value: Any, given: Any) -> str:
    left = list(of(given, list))

    def put(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        if not left:
            raise CelError("index out of range: too few arguments")
        item, digits, verb = left.pop(0), found[1], found[2]
        match verb:
            case "s":
                return shown(item)
            case "d":
                return str(of(item, int))
            case "f" | "e":
                return f"{of(item, float, int):{digits or '.6'}{verb}}"
            case "b":
                return f"{of(item, int, bool):b}"
            case _:
                return of(item, bytes, str).encode().hex() if not isinstance(item, int) else f"{item:{verb}}"

    return re.sub(r"%(\.[0-9]+)?([sdfebxXo])|%%", put, of(value, str))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"matches": _matches}

NAMESPACES: Final[dict[str, Callable[..., Any]]] = {
    "strings.quote": lambda value: '"' + of(value, str).replace("\\", "\\\\").replace('"', '\\"') + '"',
    "jsonpatch.escapeKey": lambda key: of(key, str).replace("~", "~0").replace("/", "~1"),
}

METHODS: Final[dict[str, Callable[..., Any]]] = {
    "contains": lambda value, part: of(part, str) in of(value, str),
    "startsWith": lambda value, part: of(value, str).startswith(of(part, str)),
    "endsWith": lambda value, part: of(value, str).endswith(of(part, str)), "matches": _matches,
    "find": lambda value, pattern: next(iter(_find_all(value, pattern, 1)), ""), "findAll": _find_all,
    "charAt": _char_at, "substring": _substring, "replace": _replace, "split": _split, "join": _join,
    "trim": lambda value: of(value, str).strip(), "format": _format,
    "lowerAscii": lambda value: of(value, str).translate({c: c + 32 for c in range(65, 91)}),
    "upperAscii": lambda value: of(value, str).translate({c: c - 32 for c in range(97, 123)}),
}  # fmt: skip
