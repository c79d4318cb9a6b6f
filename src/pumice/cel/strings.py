"""Functions of strings, with the extension of that name.

Regular expressions that others write: RE2, which Kubernetes uses, for time grows with the length of the text alone.

It grows with the size of the pattern as well, and what stands in ten letters may be large. So a pattern has a size, and a search
has a cost that is known before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from re import Match
from typing import Any, Final, Protocol

import re2

from pumice.cel.conversions import shown
from pumice.cel.values import CelError, Metered, Spend, of

LONGEST: Final = 64 << 10
"""Characters of a pattern."""
SEARCHES: Final = 3_000_000
"""Bound on the cost of all searches of one request: a second where RE2 has to go the slow way, for a step takes 0.3 µs."""
_SHORT, _SMALL = 1000, 10
_MEMORY: Final = 256 << 10
"""Bytes of a compiled pattern, some ten thousand steps; it is made within milliseconds. RE2 then gets more for its searches."""


def _options(memory: int) -> re2.Options:
    options = re2.Options()
    options.log_errors, options.max_mem = False, memory
    return options


_PROBE, _USED = _options(_MEMORY), _options(8 << 20)


class Pattern(Protocol):
    programsize: int

    def search(self, text: str) -> Match[str] | None: ...

    def finditer(self, text: str) -> Iterator[Match[str]]: ...


@lru_cache(maxsize=512)
def pattern_of(text: str) -> Pattern:
    """Raises ValueError with what is wrong."""
    if len(text) > LONGEST:
        raise ValueError(f"pattern too large: {len(text)} characters, at most {LONGEST} are read")
    try:
        re2.compile(text, _PROBE)
        found: Pattern = re2.compile(text, _USED)
    except re2.error as problem:
        said = problem.args[0] if problem.args else ""
        raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None
    return found


def search_cost(pattern: Pattern, text: str) -> int:
    """Steps of a search at most: RE2 looks at each letter once, until a long text has led it into too many states."""
    size = len(text) if text.isascii() else 3 * len(text)
    if size < _SHORT or pattern.programsize <= _SMALL:
        return 1 + size // 100
    return size * pattern.programsize


_BAD_PATTERN: Final = 5000
"""Steps for one that cannot be made: what is too large is known after milliseconds."""


def _matches(spend: Spend, value: Any, pattern: Any) -> bool:
    return bool(_pattern(spend, value, pattern).search(value))


def _pattern(spend: Spend, value: Any, text: Any) -> Pattern:
    """To look through the value, after what Kubernetes takes for it: in the worst case every part of a pattern is tried at every
    character. One that had to be made first costs its size, too."""
    spend((len(of(value, str)) // 10) * (1 + len(of(text, str)) // 4))
    before = pattern_of.cache_info().misses
    try:
        found = pattern_of(text)
    except ValueError:
        spend(_BAD_PATTERN)
        raise CelError(f"{text[:100]!r} is no regular expression") from None
    spend(search_cost(found, value) + (found.programsize if pattern_of.cache_info().misses > before else 0))
    return found


def _find_all(spend: Spend, value: Any, pattern: Any, most: int = -1) -> list[str]:
    found: list[str] = []
    for match in _pattern(spend, value, pattern).finditer(value):
        if len(found) == most:
            break
        spend(10)
        found.append(match.group(0))
    return found


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


def _join(spend: Spend, value: Any, by: Any = "") -> str:
    spend(sum(len(of(item, str)) + len(of(by, str)) for item in of(value, list)) // 10)
    return str(of(by, str).join(of(item, str) for item in of(value, list)))


def _char_at(value: Any, place: int) -> str:
    if not 0 <= place <= len(of(value, str)):
        raise CelError(f"index out of range: {place}")
    return str(value[place : place + 1])


def _format(spend: Spend, value: Any, given: Any) -> str:
    left = list(of(given, list))

    def put(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        if not left:
            raise CelError("index out of range: too few arguments")
        item, digits, verb = left.pop(0), found[1], found[2]
        if digits and len(digits) > 3:
            raise CelError(f"a precision of {digits[1:]} is too large")
        match verb:
            case "s":
                return shown(spend, item)
            case "d":
                return str(of(item, int))
            case "f" | "e":
                return f"{of(item, float, int):{digits or '.6'}{verb}}"
            case "b":
                return f"{of(item, int, bool):b}"
            case _:
                return of(item, bytes, str).encode().hex() if not isinstance(item, int) else f"{item:{verb}}"

    return re.sub(r"%(\.[0-9]+)?([sdfebxXo])|%%", put, of(value, str))


FUNCTIONS: Final[dict[str, Callable[..., Any] | Metered]] = {"matches": Metered(_matches)}

NAMESPACES: Final[dict[str, Callable[..., Any] | Metered]] = {
    "strings.quote": lambda value: '"' + of(value, str).replace("\\", "\\\\").replace('"', '\\"') + '"',
    "jsonpatch.escapeKey": lambda key: of(key, str).replace("~", "~0").replace("/", "~1"),
}

METHODS: Final[dict[str, Callable[..., Any] | Metered]] = {
    "contains": lambda value, part: of(part, str) in of(value, str),
    "startsWith": lambda value, part: of(value, str).startswith(of(part, str)),
    "endsWith": lambda value, part: of(value, str).endswith(of(part, str)), "matches": Metered(_matches),
    "find": Metered(lambda spend, value, pattern: next(iter(_find_all(spend, value, pattern, 1)), "")),
    "findAll": Metered(_find_all),
    "charAt": _char_at, "substring": _substring, "replace": _replace, "split": _split, "join": Metered(_join),
    "trim": lambda value: of(value, str).strip(), "format": Metered(_format),
    "lowerAscii": lambda value: of(value, str).translate({c: c + 32 for c in range(65, 91)}),
    "upperAscii": lambda value: of(value, str).translate({c: c - 32 for c in range(97, 123)}),
}  # fmt: skip
