"""A document in YAML or JSON: each value with its line, so that a mistake is named where it stands, with the nearest
right word. Every file of configuration is read through here."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from pumice.model.errors import BadInput, nearest

Path = tuple[str | int, ...]
DEEPEST = 64
MOST_NODES = 200_000


@dataclass(slots=True)
class Document:
    """A document and, per path of keys and list positions, the line (from 1) where it stands.

    ``duplicates``: keys that stand twice in one mapping; the last one counts. ``file``: named in front of every line."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    duplicates: list[tuple[Path, int]] = field(default_factory=list)
    file: str = ""

    def line(self, *path: str | int) -> int:
        """Return the line of the path, or of the nearest ancestor that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1

    @property
    def root(self) -> Field:
        return Field(self, (), self.value)

    def place(self, path: Path) -> str:
        """Return ``line 4: nvidia.migs.0``, or ``m.yaml:4: cards[0]`` where the file is known."""
        if not self.file:
            return ": ".join(filter(None, (f"line {self.line(*path)}", ".".join(map(str, path)))))
        words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
        return ": ".join(filter(None, (f"{self.file}:{self.line(*path)}", words)))


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a document and where it stands. A key that is not there is a field of value None."""

    document: Document
    path: Path
    value: Any

    def __getitem__(self, key: str) -> Self:
        return type(self)(self.document, (*self.path, key), self.value.get(key))

    def __str__(self) -> str:
        return self.document.place(self.path)

    @property
    def given(self) -> bool:
        """True if it is there, and not null."""
        return self.value is not None

    def error(self, problem: str) -> BadInput:
        """Return the refusal of this value: its place, and what is wrong, on one line."""
        return BadInput(" ".join(f"{self}: {problem}".split()))

    def mapping(self, known: Collection[str] = (), *, wanted: str = "a mapping") -> dict[str, Self]:
        """Return the fields by key. Raises BadInput where it is none, or has a key that is not among ``known``."""
        if not isinstance(self.value, dict):
            raise self.error(f"expected {wanted}, not {self.value!r}")
        for key in self.unknown(known) if known else ():
            raise key.error(f"unknown key{nearest(str(key.path[-1]), known)}")
        return {key: self[key] for key in self.value}

    def unknown(self, known: Collection[str]) -> list[Self]:
        """Return the fields of a mapping whose keys nobody reads."""
        return [self[key] for key in self.value if key not in known]

    def items(self, *, wanted: str = "a list") -> list[Self]:
        """Return the fields of a list. Raises BadInput where it is none."""
        if not isinstance(self.value, list):
            raise self.error(f"expected {wanted}, not {self.value!r}")
        return [type(self)(self.document, (*self.path, at), value) for at, value in enumerate(self.value)]

    def flag(self) -> bool:
        """Return true or false. Raises BadInput on everything else."""
        if not isinstance(self.value, bool):
            raise self.error(f"expected true or false, not {self.value!r}")
        return self.value


def read_document(text: str | bytes, *, first_line: int = 1, file: str = "") -> Document:
    """Parse one document. ``first_line`` is where the text begins in its file. Raises BadInput with the line."""
    with refusals(f"{file}:" if file else "line ", first_line):
        return read(spaced(text), lambda loader: _document(loader, first_line, file))


def spaced(text: str | bytes) -> str | bytes:
    """JSON may be indented by tabs and YAML may not: blanks in their place, which are between words alone."""
    if isinstance(text, bytes):
        return text.replace(b"\t", b" ") if b"\t" in text and _is_json(text) else text
    return text.replace("\t", " ") if "\t" in text and _is_json(text) else text


def _is_json(text: str | bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_documents(text: str, *, file: str = "") -> list[Document]:
    """Parse every document of a stream, with lines counted from its beginning. Raises BadInput with the line."""
    documents: list[Document] = []
    start = 1
    chunk: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate([*lines, "---"], start=1):
        if line == "---" or line.startswith(("--- ", "---\t")):
            body = "\n".join(chunk)
            if body.strip():
                documents.append(read_document(body, first_line=start, file=file))
            chunk = [line[3:]] if line[3:].strip() else []
            start = number if chunk else number + 1
        else:
            chunk.append(line)
    return documents


@contextmanager
def refusals(before: str, first_line: int = 1) -> Iterator[None]:
    """Turn what is not YAML into BadInput, with its line behind ``before``."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadInput(f"{before}{first_line + (mark.line if mark else 0)}: {_plainly(error)}") from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
        raise BadInput(f"{before}{first_line}: not YAML: {str(error).splitlines()[0][:200]}") from None
    except RecursionError:
        raise BadInput(f"{before}{first_line}: nested too deeply") from None


_PLAIN = {
    "found character '\\t'": "a tab; YAML is indented with spaces only",
    "mapping values are not allowed here": "a second colon in one value, or the line above lacks its colon",
    "expected <block end>": "indented unlike the lines that it belongs to",
    "found undefined alias": "an asterisk begins an alias here; put the value in quotation marks",
    "found unexpected end of stream": "a quotation mark or bracket is never closed",
}
"""Beginnings of the parser's words, and what people call it."""


def _plainly(error: yaml.MarkedYAMLError) -> str:
    said = error.problem or error.context or ""
    plain = next((words for beginning, words in _PLAIN.items() if said.startswith(beginning)), "")
    return f"{plain} ({said})" if plain else f"not YAML: {said}"


def _document(loader: Loader, first_line: int, file: str) -> Document:
    result = Document(None, file=file)
    node = loader.get_single_node()
    if node is not None:
        result.value = _build(loader, node, (), result, first_line, ())
    return result


def _build(loader: Loader, node: yaml.Node, path: Path, result: Document, first: int, above: tuple[int, ...]) -> Any:
    """Return the value of a node. Raises BadInput where an alias stands inside of what it names, or aliases make
    too much of a small text."""
    if len(above) > DEEPEST:
        raise RecursionError
    result.lines.setdefault(path, first + node.start_mark.line)
    if id(node) in above:
        raise BadInput(f"{result.place(path)}: holds itself")
    if len(result.lines) > MOST_NODES:
        raise BadInput(f"{result.place(path)}: the document has more than {MOST_NODES} values")
    above = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise BadInput(f"{result.place(path)}: has a key that is no word")
            key = str(loader.construct_object(key_node, deep=True))
            here = (*path, key)
            if key in mapping:
                result.duplicates.append((here, first + key_node.start_mark.line))
            result.lines[here] = first + key_node.start_mark.line
            mapping[key] = _build(loader, value_node, here, result, first, above)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, item, (*path, i), result, first, above) for i, item in enumerate(node.value)]
    return loader.construct_object(node, deep=True)


# -- YAML as libyaml reads it, which takes a sixth of the time that PyYAML takes in Python ---------------------------

# What it refuses is read again in Python, whose words and lines are those that people are told.

T = TypeVar("T")
Loader = Any
"""A loader of PyYAML's, whichever parser it has."""


def _quick() -> Callable[[str | bytes], Loader]:
    if not yaml.__with_libyaml__:
        return yaml.SafeLoader
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class Quick(Composer, CParser, SafeConstructor, Resolver):
        """Nodes are composed in Python: what nests too deeply is a RecursionError there, where C would have no stack left."""

        def __init__(self, text: str | bytes) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    return Quick


_QUICK: Final = _quick()


def read(text: str | bytes, look: Callable[[Loader], T]) -> T:
    """Return the result of ``look`` on a loader. Raises YAMLError as the loader in Python does, and what ``look`` raises."""
    try:
        return _with(_QUICK, text, look)
    except (yaml.YAMLError, UnicodeEncodeError):  # half of a surrogate pair has no bytes that libyaml could read
        return _with(yaml.SafeLoader, text, look)


def has_key(text: str, *keys: str) -> bool:
    """Return whether a line begins with one of these keys, whatever else stands there."""
    return any(f"\n{key}:" in f"\n{text}" for key in keys)


def safe_load(text: str | bytes) -> Any:
    """One document, as ``yaml.safe_load`` reads it."""
    return read(text, lambda loader: loader.get_single_data())


def safe_load_all(text: str | bytes) -> list[Any]:
    """Every document, as ``yaml.safe_load_all`` reads them."""

    def all_of(loader: Loader) -> list[Any]:
        found = []
        while loader.check_data():
            found.append(loader.get_data())
        return found

    return read(text, all_of)


def _with(make: Callable[[str | bytes], Loader], text: str | bytes, look: Callable[[Loader], T]) -> T:
    loader = make(text)
    try:
        return look(loader)
    finally:
        loader.dispose()
