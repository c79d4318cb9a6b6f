"""Documents of a person in YAML or TOML, read through ``wire.document``: typed getters, TOML beside YAML, and the nearest right
word where case and punctuation differ.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Self

from pumice.model.errors import BadInput
from pumice.wire import document
from pumice.wire.document import Document


class Field(document.Field):
    """One value of a document and where it stands. Every getter raises BadInput with file, line, key and what is wrong."""

    __slots__ = ()

    def mapping(self, known: Collection[str] = (), *, wanted: str = "a mapping of keys to values") -> dict[str, Self]:
        """Return the fields by key; an unknown key is an error that names the nearest of ``known``."""
        if not isinstance(self.value, dict):
            raise self.error(f"must be {wanted}")
        for field in self.unknown(known):
            raise field.error(f"unknown key{nearest(str(field.path[-1]), known)}")
        return {key: self[key] for key in self.value}

    def items(self, *, wanted: str = "a list") -> list[Self]:
        if not isinstance(self.value, list):
            raise self.error(f"must be {wanted}")
        return super().items()

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.error(f"must be a word, not {self.value!r}")
        return self.value.strip()

    def word(self, known: Iterable[str]) -> str:
        known = tuple(known)
        text = self.text()
        if text not in known:
            raise self.error(f"{text!r} is not known{nearest(text, known)}")
        return text

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.error(f"must be true or false, not {self.value!r}")
        return self.value

    def integer(self, least: int = 0, most: int = 2**63 - 1) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.error(f"must be a whole number, not {self.value!r}")
        if not least <= self.value <= most:
            bound = f"at least {least}" if self.value < least else f"at most {most}"
            raise self.error(f"must be {bound}, not {self.value}")
        return self.value

    def number(self, least: float = 0.0) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error(f"must be a number, not {self.value!r}")
        if self.value < least:
            raise self.error(f"must be at least {least:g}, not {self.value}")
        return float(self.value)

    def mib(self, least: int = 0) -> int:
        """A size in MiB: a whole number, or text with a binary unit (``40Gi``, ``512Mi``)."""
        if isinstance(self.value, str):
            match = re.fullmatch(r"\s*(-?\d+)\s*(Mi|Gi|Ti)B?\s*", self.value)
            if match is None:
                raise self.error(f"must be MiB or a size such as 512Mi or 40Gi, not {self.value!r}")
            size = int(match[1]) * {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}[match[2]]
        else:
            size = self.integer(least=-(2**62))
        if size < least:
            raise self.error(f"a size must be at least {least} MiB, not {size}")
        return size


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean "memory"?``, or the known words when none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not close:  # case and punctuation aside, or a part of the right word
        plain = {_plain(name): name for name in known}
        close = [plain[near] for near in difflib.get_close_matches(_plain(word), plain, n=1)]
        close = close or [name for text, name in plain.items() if len(_plain(word)) > 2 and _plain(word) in text]
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; known: {', '.join(known)}"


def _plain(word: str) -> str:
    return re.sub(r"\W|_", "", word).lower()


def read_file(path: Path) -> Field:
    """Return the document in a file. Raises BadInput, also when the file cannot be read."""
    try:
        return read_document(path.read_text("utf-8"), str(path), toml=path.suffix == ".toml")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"{path}: cannot be read: {reason}") from None


def read_document(text: str, file: str, *, toml: bool = False) -> Field:
    """Return the document as a field. ``toml``: it is TOML; else its first line says it. Raises BadInput with the line."""
    found = _read_toml(text, file) if toml or _looks_like_toml(text) else document.read_document(text, file=file)
    for path, _ in found.duplicates:
        raise BadInput(f"{found.place(path)}: stands twice")
    return Field(found, (), {} if found.value is None else found.value)


def _looks_like_toml(text: str) -> bool:
    """Return True if the first significant line is TOML's (``[table]`` or ``key = value``)."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return bool(re.match(r"\s*(\[|[\w.\"-]+\s*=)", line))
    return False


def _read_toml(text: str, file: str) -> Document:
    try:
        return Document(tomllib.loads(text), dict(_toml_lines(text)), file=file)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        raise BadInput(f"{file}:{match[1] if match else 1}: not TOML: {error}") from None
    except RecursionError:
        raise BadInput(f"{file}:1: nested too deeply") from None


def _toml_lines(text: str) -> Iterator[tuple[document.Path, int]]:
    """Yield path and line of every table header and of every key at the start of a line.

    tomllib keeps no positions; keys inside inline tables have the line of the key that holds them.
    """
    table: document.Path = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[\[\s*([\w.-]+)\s*\]\]", line):
            counts[match[1]] = counts.get(match[1], -1) + 1
            table = (*match[1].split("."), counts[match[1]])
            yield table, number
        elif match := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            head, _, rest = match[1].partition(".")
            table = (head, counts[head], *rest.split(".")) if head in counts and rest else tuple(match[1].split("."))
            yield table, number
        elif match := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            yield (*table, *match[1].replace('"', "").replace("'", "").split(".")), number
