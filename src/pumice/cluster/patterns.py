"""Regular expressions that others write: RE2, which Kubernetes uses, for time grows with the length of the text alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from re import Match
from typing import Protocol

import re2

_QUIET = re2.Options()
_QUIET.log_errors = False


class Pattern(Protocol):
    def search(self, text: str) -> Match[str] | None: ...

    def finditer(self, text: str) -> Iterator[Match[str]]: ...


@lru_cache(maxsize=512)
def pattern_of(text: str) -> Pattern:
    """Raises ValueError with what is wrong."""
    try:
        found: Pattern = re2.compile(text, _QUIET)
    except re2.error as problem:
        said = problem.args[0] if problem.args else ""
        raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None
    return found
