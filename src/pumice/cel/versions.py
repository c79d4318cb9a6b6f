"""Semantic versions, as Kubernetes' expressions know them (``semver``, ``isSemver``; rules: semver.org 2.0.0)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

from pumice.cel.values import CelError, OfItsKind, of

_NUMBER = r"(0|[1-9][0-9]*)"
_WORDS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_FORM: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_WORDS}))?(?:\+({_WORDS}))?")
_LOOSE: Final = re.compile(rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(-{_WORDS})?(\+{_WORDS})?")
LONGEST: Final = 256


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver(OfItsKind):
    numbers: tuple[int, int, int]
    prerelease: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[object, ...]:
        """A version before its release comes first; numbers come before words, and what is left out does not count."""
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease)
        return self.numbers, not self.prerelease, parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.order == other.order

    def __lt__(self, other: Semver) -> bool:
        return self.order < other.order

    def __hash__(self) -> int:
        return hash(self.order)


def semver(text: Any, loosely: Any = False) -> Semver:
    """Raises CelError. ``loosely``: a leading v, missing parts and zeros in front are put right."""
    given = of(text, str)
    if of(loosely, bool):
        given = _put_right(given)
    found = _FORM.fullmatch(given) if len(given) <= LONGEST else None
    words = tuple(found[4].split(".")) if found and found[4] else ()
    if found is None or any(part.isdigit() and part[0] == "0" and part != "0" for part in words):
        raise CelError(f"{text!r} is no semantic version")
    return Semver((int(found[1]), int(found[2]), int(found[3])), words)


def _put_right(text: str) -> str:
    found = _LOOSE.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return text
    return ".".join(str(int(found[part] or 0)) for part in (1, 2, 3)) + (found[4] or "") + (found[5] or "")


def _is_semver(text: Any, loosely: Any = False) -> bool:
    try:
        semver(text, loosely)
    except CelError:
        return False
    return True


def _part(place: int) -> Callable[[Any], int]:
    return lambda value: int(of(value, Semver).numbers[place])


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"semver": semver, "isSemver": _is_semver}

METHODS: Final[dict[str, Callable[..., Any]]] = {"major": _part(0), "minor": _part(1), "patch": _part(2)}
