"""How a command prints."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"
