"""The words of a doctor, of a node or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
