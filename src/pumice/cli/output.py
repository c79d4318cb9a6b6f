"""Printing of commands."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

API_VERSION = "pumice/v1"
"""Of what commands print as JSON (docs/reference/json.md): raised when a key goes or means something else, not when one comes."""


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


def document(found: Any, indent: int = 2) -> str:
    """The JSON object of a mapping, a dataclass or of JSON text, with its version as the first key."""
    import msgspec

    raw = found if isinstance(found, bytes) else msgspec.json.encode(found)
    more = b"," if raw != b"{}" else b""
    return msgspec.json.format(b'{"apiVersion":"%s"%s%s' % (API_VERSION.encode(), more, raw[1:]), indent=indent).decode()


def plain(text: str) -> str:
    """Names of others without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def writable(file: Path | None) -> None:
    """Raise OSError where a page cannot be written, before anything is worked out for it."""
    if file is not None:
        with file.open("ab"):
            pass
