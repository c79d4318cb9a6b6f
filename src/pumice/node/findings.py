"""The words of a doctor, of a node or of a cluster, and the rows of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: what is wrong in one place, and how it is mended; neither where all is well."""

    state: State
    text: str
    repair: str = ""


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A configuration as it is written; ``text`` is None where there is none."""

    where: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Check:
    """One row of a table: the ``promise``, and who finds out where it is not kept. ``lacking``: the finding where there is
    nothing to look at."""

    name: str
    promise: str
    look: Callable[[Any], Iterable[Finding]]
    lacking: Callable[[Any], Finding | None] = lambda facts: None


def examine(checks: Iterable[Check], facts: Any) -> list[tuple[str, list[Finding]]]:
    """Every check by its name with what it found; one that found nothing keeps its promise."""
    return [(c.name, list(c.look(facts)) or [c.lacking(facts) or Finding(State.OK, c.promise)]) for c in checks]
