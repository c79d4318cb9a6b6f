"""YAML read together with the line of every key, so that a finding can say where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from pumice.model.errors import BadInput
from pumice.wire import yaml_text
from pumice.wire.yaml_text import Loader

Path = tuple[str | int, ...]
DEEPEST = 64
MOST_NODES = 200_000


@dataclass(slots=True)
class Lined:
    """A document and, per path of keys and list positions, the line (from 1) where it stands."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    duplicates: list[tuple[Path, int]] = field(default_factory=list)

    def line(self, *path: str | int) -> int:
        """The line of the path, or of the nearest ancestor that has one."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


def load_lined(text: str, *, first_line: int = 1) -> Lined:
    """Parse one document. ``first_line`` is where the text begins in its file. Raises BadInput with the line."""
    with refusals("line ", first_line):
        return yaml_text.read(text, lambda loader: _lined(loader, first_line))


@contextmanager
def refusals(before: str, first_line: int) -> Iterator[None]:
    """What is no YAML as BadInput, with its line behind ``before``."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadInput(f"{before}{first_line + (mark.line if mark else 0)}: {_plainly(error)}") from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
        raise BadInput(f"{before}{first_line}: no YAML: {str(error).splitlines()[0][:200]}") from None
    except RecursionError:
        raise BadInput(f"{before}{first_line}: nested too deeply") from None


def _lined(loader: Loader, first_line: int) -> Lined:
    result = Lined(None)
    node = loader.get_single_node()
    if node is not None:
        result.value = _build(loader, node, (), result, first_line, 0)
    return result


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
    return f"{plain} ({said})" if plain else f"no YAML: {said}"


def _build(loader: Loader, node: yaml.Node, path: Path, result: Lined, first: int, depth: int) -> Any:
    if depth > DEEPEST or len(result.lines) > MOST_NODES:
        raise RecursionError
    result.lines.setdefault(path, first + node.start_mark.line)
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node, deep=True))
            here = (*path, key)
            if key in mapping:
                result.duplicates.append((here, first + key_node.start_mark.line))
            result.lines[here] = first + key_node.start_mark.line
            mapping[key] = _build(loader, value_node, here, result, first, depth + 1)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, item, (*path, i), result, first, depth + 1) for i, item in enumerate(node.value)]
    return loader.construct_object(node, deep=True)


def load_all_lined(text: str) -> list[Lined]:
    """Every document of a stream, with lines counted from its beginning. Raises BadInput with the line."""
    documents: list[Lined] = []
    start = 1
    chunk: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate([*lines, "---"], start=1):
        if line == "---" or line.startswith(("--- ", "---\t")):
            body = "\n".join(chunk)
            if body.strip():
                documents.append(load_lined(body, first_line=start))
            chunk = [line[3:]] if line[3:].strip() else []
            start = number if chunk else number + 1
        else:
            chunk.append(line)
    return documents
