"""Regular expressions that others write: RE2, which Kubernetes uses, for time grows with the length of the text alone.

It grows with the size of the pattern as well, and what stands in ten letters may be large. So a pattern has a size, and a search
has a cost that is known before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from re import Match
from typing import Final, Protocol

import re2

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
