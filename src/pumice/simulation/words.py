"""Options that are written as ``name=value,name=value``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pumice.model.errors import BadInput, nearest
from pumice.wire.quantity import parse_duration, parse_quantity

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Words(Mapping[str, str]):
    """The pairs of an option. Every reader raises BadInput with the option and the key."""

    def __init__(self, option: str, text: str, known: tuple[str, ...]) -> None:
        self.option, self.text = option, text
        self._values: dict[str, str] = {}
        for pair in text.split(","):
            key, equals, value = pair.strip().partition("=")
            if key not in known:
                raise self.error(f"no key {key!r} among {', '.join(known)}{nearest(key, known)}")
            if key in self._values:
                raise self.error(f"{key} is there twice")
            if not equals or not value:
                raise self.error(f"write {key}=…")
            self._values[key] = value.strip()

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def error(self, what: str) -> BadInput:
        return BadInput(f"{self.option} {self.text!r}: {what}")

    def whole(self, key: str, default: int | None = None, most: int = 10**7) -> int:
        """A whole number from 1."""
        text = self.get(key)
        if text is None and default is not None:
            return default
        if text is None:
            raise self.error(f"write {key}=…")
        if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 0 < int(text) <= most:
            raise self.error(f"{key} is a whole number from 1 to {most:,}, not {text!r}")
        return int(text)

    def seconds(self, key: str, text: str | None = None) -> float:
        """The seconds of a duration; 0 where the key is not given, and only there, unless a ``text`` is read."""
        try:
            found = parse_duration(self.get(key, "0s") if text is None else text)
        except ValueError as error:
            raise self.error(f"{key}: {error}") from None
        if text is None and key in self and key != "at" and found <= 0:
            raise self.error(f"{key} is not above 0")
        return found

    def object_name(self, key: str) -> str:
        """A name that an object of Kubernetes may have; empty where the key is not given."""
        text = self.get(key, "")
        if text and (len(text) > 253 or not OBJECT_NAME.fullmatch(text)):
            raise self.error(f"{key}: {text!r} is no name of an object; it has lower case letters, digits, - and . alone")
        return text

    def quantity(self, key: str, default: str) -> str:
        """A quantity of Kubernetes, as it was written."""
        text = self.get(key, default)
        try:
            if parse_quantity(text) > 0:
                return text
            raise ValueError("it is not above 0")
        except ValueError as error:
            raise self.error(f"{key}: {error}") from None
