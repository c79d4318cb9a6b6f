"""A YAML or TOML document whose every value still knows its line, so that a mistake can be named where it stands.

``Field`` wraps one value; its typed getters raise ``DocumentError`` with file, line, key and, for a misspelt word, the
nearest right one.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pumice.model.errors import BadInput
from pumice.wire import document


class DocumentError(BadInput):
    """A file of a person that cannot be used; in one line: file, line, key, what is wrong, the nearest right word."""

    def __init__(self, where: str, key: str, problem: str) -> None:
        text = f"{where}: {key}: {problem}" if key else f"{where}: {problem}"
        super().__init__(" ".join(text.split()))  # one line, whatever stood in the document


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a document. ``value`` is a scalar, a list of fields, or a mapping from key to field."""

    value: Any
    file: str
    line: int
    key: str

    def error(self, problem: str) -> DocumentError:
        return DocumentError(f"{self.file}:{self.line}", self.key, problem)

    def mapping(self, known: Iterable[str]) -> dict[str, Field]:
        """The fields by key; an unknown key is an error that names the nearest of ``known``."""
        if not isinstance(self.value, dict):
            raise self.error("must be a mapping of keys to values")
        known = tuple(known)
        for key, field in self.value.items():
            if key not in known:
                raise field.error(f"unknown key{nearest(key, known)}")
        return dict(self.value)

    def items(self) -> list[Field]:
        if not isinstance(self.value, list):
            raise self.error("must be a list")
        return list(self.value)

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.error(f"must be a word, not {as_written(self.value)!r}")
        return self.value.strip()

    def word(self, known: Iterable[str]) -> str:
        known = tuple(known)
        text = self.text()
        if text not in known:
            raise self.error(f"{text!r} is not known{nearest(text, known)}")
        return text

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.error(f"must be true or false, not {as_written(self.value)!r}")
        return self.value

    def integer(self, least: int = 0, most: int = 2**63 - 1) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.error(f"must be a whole number, not {as_written(self.value)!r}")
        if not least <= self.value <= most:
            bound = f"at least {least}" if self.value < least else f"at most {most}"
            raise self.error(f"must be {bound}, not {self.value}")
        return self.value

    def number(self, least: float = 0.0) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error(f"must be a number, not {as_written(self.value)!r}")
        if self.value < least:
            raise self.error(f"must be at least {least:g}, not {self.value}")
        return float(self.value)

    def mib(self, least: int = 0) -> int:
        """A size in MiB: a whole number, or text with a binary unit (``40Gi``, ``512Mi``)."""
        if isinstance(self.value, str):
            match = re.fullmatch(r"\s*(-?\d+)\s*(Mi|Gi|Ti)B?\s*", self.value)
            if match is None:
                raise self.error(f"must be MiB or a size such as 512Mi or 40Gi, not {as_written(self.value)!r}")
            size = int(match[1]) * {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}[match[2]]
        else:
            size = self.integer(least=-(2**62))
        if size < least:
            raise self.error(f"a size must be at least {least} MiB, not {size}")
        return size


def as_written(value: Any) -> Any:
    """A value as it stands in the document."""
    if isinstance(value, Field):
        return as_written(value.value)
    if isinstance(value, dict):
        return {key: as_written(field) for key, field in value.items()}
    return [as_written(field) for field in value] if isinstance(value, list) else value


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
    """The document in a file. Raises ``DocumentError``, also when the file cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise DocumentError(str(path), "", f"cannot be read: {reason}") from None
    return read_document(text, str(path), toml=path.suffix == ".toml" or looks_like_toml(text))


def read_document(text: str, file: str, *, toml: bool) -> Field:
    """The document as a field; a syntax error becomes a ``DocumentError`` with its line."""
    try:
        return _read_toml(text, file) if toml else _read_yaml(text, file)
    except RecursionError:
        raise DocumentError(f"{file}:1", "", "is nested too deeply") from None


def looks_like_toml(text: str) -> bool:
    """Return True if the first significant line is TOML's (``[table]`` or ``key = value``)."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return bool(re.match(r"\s*(\[|[\w.\"-]+\s*=)", line))
    return False


_MOST_VALUES = 20_000  # aliases can make a small text large without end


def _read_yaml(text: str, file: str) -> Field:
    try:
        return document.read(text, lambda loader: _field(loader, file))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(f"{file}:{line}", "", f"not YAML: {error.problem}") from None
    except DocumentError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentError(f"{file}:1", "", f"not YAML: {error}") from None


def _field(loader: document.Loader, file: str) -> Field:
    node = loader.get_single_node()
    return _YamlReader(loader, file).field(node, "") if node is not None else Field({}, file, 1, "")


class _YamlReader:
    """Turns YAML nodes into fields; an alias inside of what it names, and too many values, are errors."""

    def __init__(self, loader: document.Loader, file: str) -> None:
        self._loader, self._file = loader, file
        self._open: set[int] = set()
        self._values = 0

    def field(self, node: yaml.Node, path: str) -> Field:
        line = node.start_mark.line + 1
        self._values += 1
        if id(node) in self._open:
            raise DocumentError(f"{self._file}:{line}", path, "holds itself")
        if self._values > _MOST_VALUES:
            raise DocumentError(f"{self._file}:{line}", path, f"the document has more than {_MOST_VALUES} values")
        self._open.add(id(node))
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.field(part, f"{path}[{index}]") for index, part in enumerate(node.value)]
        else:
            value = self._loader.construct_object(node)
        self._open.discard(id(node))
        return Field(value, self._file, line, path)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Field]:
        found: dict[str, Field] = {}
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, key_node.value
            if not isinstance(key, str):
                raise DocumentError(f"{self._file}:{line}", path, "has a key that is no word")
            where = f"{path}.{key}" if path else key
            if key in found:
                raise DocumentError(f"{self._file}:{line}", where, "stands twice")
            found[key] = Field(self.field(value_node, where).value, self._file, line, where)
        return found


def _read_toml(text: str, file: str) -> Field:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        raise DocumentError(f"{file}:{match[1] if match else 1}", "", f"not TOML: {error}") from None
    return _from_toml(document, dict(_toml_lines(text)), file, "", 1)


def _from_toml(value: Any, lines: Mapping[str, int], file: str, path: str, line: int) -> Field:
    line = lines.get(path, line)
    if isinstance(value, dict):
        inner = {
            key: _from_toml(part, lines, file, f"{path}.{key}" if path else key, line) for key, part in value.items()
        }
        return Field(inner, file, line, path)
    if isinstance(value, list):
        parts = [_from_toml(part, lines, file, f"{path}[{index}]", line) for index, part in enumerate(value)]
        return Field(parts, file, line, path)
    return Field(value, file, line, path)


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    """``(path, line)`` of every table header and of every key at the start of a line.

    tomllib keeps no positions; keys inside inline tables have the line of the key that holds them.
    """
    table = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[\[\s*([\w.-]+)\s*\]\]", line):
            counts[match[1]] = counts.get(match[1], -1) + 1
            table = f"{match[1]}[{counts[match[1]]}]"
            yield table, number
        elif match := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            head, _, rest = match[1].partition(".")
            table = f"{head}[{counts[head]}].{rest}" if head in counts and rest else match[1]
            yield table, number
        elif match := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            key = match[1].replace('"', "").replace("'", "")
            yield (f"{table}.{key}" if table else key), number
