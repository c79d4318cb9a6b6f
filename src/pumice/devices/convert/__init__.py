"""Manifests and ConfigMaps of HAMi's and Volcano's in our words, and back. Pure: text in, text and what was changed out.

Ours are Volcano's words, so that most ways lead from and to HAMi's. Nothing is dropped: what has no name on the other side stays,
and is named with what comes of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from pumice.devices.convert.claims import convert_to_claims
from pumice.devices.convert.config_maps import convert_config_map, convert_devices
from pumice.devices.convert.edits import Change, Draft, Left, child, documents, entries, items, mappings, word
from pumice.devices.convert.objects import HINTS, REQUESTED, WAYS, Way, convert_document, is_volcanos
from pumice.model.errors import BadInput
from pumice.wire.device_config_text import SECTIONS
from pumice.wire.hami_names import To
from pumice.wire.programs import HAMI_SCHEDULER

__all__ = ["Change", "Converted", "Left", "To", "convert"]


@dataclass(frozen=True, slots=True)
class Converted:
    """A file afterwards, with each change and each thing that was left by its line."""

    file: str
    text: str
    changes: tuple[Change, ...] = ()
    left: tuple[Left, ...] = ()


def convert(texts: Mapping[str, str], to: To = To.PUMICE, *, from_hami: bool = False) -> list[Converted]:
    """``from_hami``: what could be NVIDIA's own plugin's is HAMi's. Raises BadInput on a file that is no YAML, or that has names
    of both sides."""
    read = {file: documents(file, text) for file, text in texts.items()}
    way = WAYS[To.PUMICE if to is To.CLAIMS else to]
    sure = from_hami or to is To.HAMI
    for file, roots in read.items():
        sure |= _is_theirs(file, roots, way)
    if to is To.CLAIMS:
        return [_as_claims(file, texts[file], roots, sure=sure) for file, roots in read.items()]
    return [_file(file, texts[file], roots, way, sure=sure) for file, roots in read.items()]


def _as_claims(file: str, text: str, roots: list[yaml.Node], *, sure: bool) -> Converted:
    draft, taken = Draft(file, text), set[str]()
    for root in roots:
        for _, one in _objects(root):
            convert_to_claims(draft, one, taken, sure=sure)
    return _converted(draft, file)


def _file(file: str, text: str, roots: list[yaml.Node], way: Way, *, sure: bool) -> Converted:
    draft = Draft(file, text)
    for root in roots:
        for kind, one in _objects(root):
            if kind == "ConfigMap":
                convert_config_map(draft, one, way)
            elif child(one, "kind") is None and any(child(one, section) is not None for section in SECTIONS):
                convert_devices(draft, one, way)
            else:
                convert_document(draft, one, way, sure=sure)
    return _converted(draft, file)


def _converted(draft: Draft, file: str) -> Converted:
    order = sorted(dict.fromkeys(draft.changes), key=lambda change: change.line)
    return Converted(file, draft.result(), tuple(order), tuple(sorted(dict.fromkeys(draft.left), key=lambda left: left.line)))


def _objects(root: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    """With their kinds those of a List, of Lists in it, or of a PodList, else the document itself."""
    waiting, seen = [("", root)], set[int]()
    while waiting:
        of_list, one = waiting.pop()
        kind, listed = word(child(one, "kind")) or of_list, child(one, "items")
        if not kind.endswith("List") or not isinstance(listed, yaml.SequenceNode):
            yield kind, one
        elif id(one) not in seen:
            seen.add(id(one))
            waiting += [(kind.removesuffix("List"), each) for each in reversed(items(listed))]


def _is_theirs(file: str, roots: list[yaml.Node], way: Way) -> bool:
    """Return whether the file has a name that only the other side has. Raises BadInput where it has one of this side as well."""
    theirs: tuple[str, int] | None = None
    ours: tuple[str, int] | None = None
    hinted = False
    looked_at = [one for root in roots for _, one in _objects(root) if way.to is not To.HAMI or not is_volcanos(one)]
    for mapping in (mapping for one in looked_at for mapping in mappings(one)):
        for key, value in entries(mapping):
            line = int(key.start_mark.line) + 1
            name = key.value.removeprefix(REQUESTED)
            hinted |= name in HINTS
            if name in way.theirs:
                theirs = theirs or (key.value, line)
            elif (key.value, word(value)) == ("schedulerName", HAMI_SCHEDULER):
                hami = f"{key.value}: {HAMI_SCHEDULER}", line
                theirs, ours = (theirs, ours or hami) if way.to is To.HAMI else (theirs or hami, ours)
            elif name in way.ours:
                ours = ours or (key.value, line)
    if theirs and ours:
        both = f"{theirs[0]} (line {theirs[1]}) and {ours[0]} (line {ours[1]})"
        raise BadInput(f"{file}: names of HAMi's and of Volcano's in one file, {both}: nobody can tell which count; "
                       "make two files of it, or one of one side's names")  # fmt: skip
    return theirs is not None or (hinted and way.to is not To.HAMI)
