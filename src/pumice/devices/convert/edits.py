"""Words of a YAML text replaced where they stand, so that comments, order and quotation marks stay (ADR 89)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from pumice.model.errors import BadInput
from pumice.wire.document import DEEPEST, MOST_NODES, refusals, spaced

MERGE = "tag:yaml.org,2002:merge"
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
"""Anchor and tag before a node."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is called otherwise now: where it stood, and why."""

    file: str
    line: int
    before: str
    after: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {f'{self.before} -> ' if self.before else '+ '}{self.after}: {self.why}"


@dataclass(frozen=True, slots=True)
class Left:
    """One thing that stays as it is, and what comes of that."""

    file: str
    line: int
    name: str
    consequence: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name} is not converted: {self.consequence}"


@dataclass(slots=True)
class Draft:
    """A text and what is to be changed in it. ``first_line``: where it begins in its file."""

    file: str
    text: str
    first_line: int = 1
    changes: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    _edits: dict[tuple[int, int], str] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)

    @property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def line(self, node: yaml.Node) -> int:
        return self.first_line + int(node.start_mark.line)

    def rename_key(self, mapping: yaml.MappingNode, key: yaml.ScalarNode, after: str, why: str) -> None:
        """The same of a mapping's key, where it has not the other one as well."""
        if any(other.value == after for other, _ in entries(mapping)):
            self.keep(key, key.value, f"{after} stands beside it; take one of the two out")
        else:
            self.rename(key, after, why)

    def rename(self, node: yaml.ScalarNode, after: str, why: str) -> None:
        """Another word in the place of a scalar, in its quotation marks, behind its tag."""
        place = node.start_mark.index, node.end_mark.index
        raw = self.text[place[0] : place[1]]
        before, found, end = raw.rpartition(node.value) if node.value else (raw, "", "")
        words = f"{before}{after}{end}" if found else f"{'' if raw else ' '}{_properties(raw)}{json.dumps(after)}"
        self._note(place, words, Change(self.file, self.line(node), node.value or '""', after, why))

    def replace(self, node: yaml.ScalarNode, text: str) -> None:
        """A whole text in the place of another, written as that one was: as a block of lines, or in quotation marks."""
        start, end = node.start_mark.index, node.end_mark.index
        raw = self.text[start:end]
        header, newline, body = raw.partition("\n")
        tail = raw[len(raw.rstrip("\r\n \t")) :] if node.style in ("|", ">") else ""
        if node.style == "|" and newline:
            indent = " " * (len(_first_line(body)) - len(_first_line(node.value)))
            lines = [f"{indent}{line}" if line.strip() else "" for line in text.rstrip("\n").split("\n")]
            self._edits[start, end] = header + newline + self.newline.join(lines) + tail
        else:
            self._edits[start, end] = f"{_properties(raw)}{json.dumps(text)}{tail}"

    def add(self, mapping: yaml.MappingNode, before: yaml.Node, key: str, value: str, why: str) -> None:
        """One more key, before another one of that mapping."""
        at = before.start_mark.index
        if mapping.flow_style:
            words = f"{json.dumps(key)}: {value if value.isdigit() else json.dumps(value)}, "
        elif self.text[:at].rstrip(" ").endswith("?"):
            self.keep(before, f"{key}: {value}", f"it cannot be written in this mapping by a program ({why})")
            return
        else:
            words = f"{key}: {value}{self.newline}{' ' * before.start_mark.column}"
        self._note((at, at), words, Change(self.file, self.line(before), "", f"{key}: {value}", why))

    def take_out(self, mapping: yaml.MappingNode, key: yaml.ScalarNode, after: str, why: str) -> bool:
        """A key of a mapping with its value, and what is written in its place, elsewhere; whether it could be."""
        places = [(key.start_mark.index, value.end_mark.index) for key, value in mapping.value]
        here = next(number for number, (one, _) in enumerate(mapping.value) if one is key)
        start, end = places[here]
        line, behind = self.text.rfind("\n", 0, start) + 1, self.text.find("\n", end)
        words = ""
        if len(places) == 1:
            words = "" if mapping.flow_style else "{}"
        elif mapping.flow_style:
            start, end = (start, places[1][0]) if here == 0 else (places[here - 1][1], end)
        elif self.text[line:start].strip() or not isinstance(mapping.value[here][1], yaml.ScalarNode):
            return False
        else:
            start, end = line, behind + 1 if behind >= 0 else len(self.text)
        self._note((start, end), words, Change(self.file, self.line(key), key.value, after, why))
        self._taken.add(key.start_mark.index)
        return True

    def has_taken_out(self, key: yaml.ScalarNode) -> bool:
        return key.start_mark.index in self._taken

    def put_first(self, of: yaml.MappingNode, name: str, item: Mapping[str, str], before: yaml.Node) -> None:
        """One more item of a list of that mapping; before another key, where there is no such list."""
        self.put_all(of, name, [item], before)

    def put_all(self, of: yaml.MappingNode, name: str, more: Sequence[Mapping[str, str]], before: yaml.Node) -> None:
        """The same of several items."""
        listed, text = child(of, name), ", ".join(json.dumps(item) for item in more)
        if isinstance(listed, yaml.SequenceNode) and listed.flow_style:
            at, words = listed.start_mark.index + 1, f"{text}{', ' if listed.value else ''}"
        elif isinstance(listed, yaml.SequenceNode):
            at = listed.start_mark.index
            words = "".join(f"- {json.dumps(item)}{self.newline}{' ' * listed.start_mark.column}" for item in more)
        elif listed is not None:
            at, words = listed.end_mark.index, f" [{text}]"
        elif of.flow_style:
            at, words = before.start_mark.index, f"{json.dumps(name)}: [{text}], "
        else:
            at, words = before.start_mark.index, f"{name}: [{text}]{self.newline}{' ' * before.start_mark.column}"
        self._edits[at, at] = words

    def drop(self, of: yaml.MappingNode, name: str, keys: Collection[str]) -> None:
        """These keys of the mapping under a name, whose values are words: of a block their lines, of braces the rest is written
        anew. Where nothing is left, empty braces stand behind the name."""
        named, mapping = next(((key, value) for key, value in entries(of) if key.value == name), (None, None))
        if named is None or not isinstance(mapping, yaml.MappingNode):
            return
        pairs = [(key, value) for key, value in entries(mapping) if key.value in keys]
        if not pairs:
            return
        if mapping.flow_style:
            rest = [self.text[key.start_mark.index : value.end_mark.index] for key, value in mapping.value
                    if word(key) not in keys]  # fmt: skip
            self._edits[mapping.start_mark.index, mapping.end_mark.index] = f"{{{', '.join(rest)}}}"
            return
        if len(pairs) == len(mapping.value):
            last = mapping.value[-1][1].end_mark.index
            line = self.text.find("\n", last)
            line = len(self.text) if line < 0 else line
            self._edits[self.text.index(":", named.end_mark.index) + 1, line] = " {}" + ("\r" if self.newline == "\r\n" else "")
            return
        for key, value in pairs:
            begin, end = self.text.rfind("\n", 0, key.start_mark.index) + 1, self.text.find("\n", value.end_mark.index)
            at_key = bool(self.text[begin : key.start_mark.index].strip())
            if at_key:  # behind another word of its line: the next key comes in its place
                following = [one.start_mark.index for one, _ in mapping.value if one.start_mark.index > key.start_mark.index]
                self._edits[key.start_mark.index, min(following)] = ""
            else:
                self._edits[begin, end + 1 if end >= 0 else len(self.text)] = ""

    def append(self, more: Sequence[str]) -> None:
        """Documents behind the last one."""
        if more:
            end = "" if self.text.endswith("\n") else self.newline
            here = len(self.text), len(self.text)
            self._edits[here] = (self._edits.get(here) or end) + "".join(
                f"---\n{text}".replace("\n", self.newline) for text in more)  # fmt: skip

    def keep(self, node: yaml.Node, name: str, consequence: str) -> None:
        left = Left(self.file, self.line(node), name, consequence)
        if left not in self.left:
            self.left.append(left)

    def result(self) -> str:
        """The text with everything changed. Raises BadInput where that would no longer be YAML."""
        parts: list[str] = []
        at = 0
        for (start, end), words in sorted(self._edits.items()):
            parts += [self.text[at:start], words]
            at = end
        text = "".join(parts) + self.text[at:]
        if self._edits:
            documents(self.file, text)
        return text

    def _note(self, place: tuple[int, int], words: str, change: Change) -> None:
        if place not in self._edits:  # an alias leads here a second time
            self.changes.append(change)
        self._edits[place] = words


def documents(file: str, text: str, first_line: int = 1) -> list[yaml.Node]:
    """The documents of a stream. Raises BadInput with the line."""
    with refusals(f"{file}:", first_line):
        return [node for node in yaml.compose_all(spaced(text), Loader=yaml.SafeLoader) if node is not None]


def _properties(raw: str) -> str:
    found = _PROPERTIES.match(raw)
    return found[0] if found else ""


def _first_line(text: str) -> str:
    return next((line.rstrip() for line in text.split("\n") if line.strip()), "")


def mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Every mapping at or below, once each, parents first. Raises BadInput where there is no end to them."""
    seen: set[int] = set()
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if depth > DEEPEST or len(seen) > MOST_NODES:
            raise BadInput("nested too deeply, or too large")
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting += [(value, depth + 1) for _, value in reversed(node.value)]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(item, depth + 1) for item in reversed(node.value)]


def entries(node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Of a mapping, those whose keys are words."""
    listed = node.value if isinstance(node, yaml.MappingNode) else ()
    return [(key, value) for key, value in listed if isinstance(key, yaml.ScalarNode)]


def merged(node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """Return what a mapping has from others by ``<<``, the nearest first."""
    found: list[tuple[yaml.ScalarNode, yaml.Node]] = []
    waiting, seen = [node], set[int]()
    while waiting and len(seen) < DEEPEST:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            own = entries(one)
            found += (each for each in own if one is not node and each[0].tag != MERGE)
            waiting += reversed(items(one))
            waiting += (value for key, value in own if key.tag == MERGE)
    return found


def child(node: yaml.Node | None, *path: str) -> yaml.Node | None:
    for name in path:
        node = next((value for key, value in (*reversed(entries(node)), *merged(node)) if key.value == name), None)
    return node


def word(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def items(node: yaml.Node | None) -> list[yaml.Node]:
    """Of a list, each once, however many aliases lead to it."""
    return list({id(item): item for item in node.value}.values()) if isinstance(node, yaml.SequenceNode) else []
