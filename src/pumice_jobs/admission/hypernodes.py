"""HyperNodes: members that can be meant. What overlaps is told on the objects, by who reads them all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pumice.wire.topology import HYPER_NODE, NODE
from pumice_jobs.admission.review import Answer, Request, Settings, View

SELECTORS = ("exactMatch", "regexMatch", "labelMatch")


def validate(request: Request, view: View, settings: Settings) -> Answer:
    members = (request.object.get("spec") or {}).get("members") or ()
    if not members:
        return Answer("spec.members: Invalid value: []: member must have at least one member")
    found = [text for number, member in enumerate(members) for text in _member(member, f"spec.members[{number}]", request.name)]
    return Answer("; ".join(found))


def _member(member: Mapping[str, Any], path: str, own: str) -> Iterator[str]:
    kind, selector = member.get("type"), member.get("selector") or {}
    if kind not in (NODE, HYPER_NODE):
        yield f'{path}.type: Unsupported value: "{kind}": supported values: "{NODE}", "{HYPER_NODE}"'
    given = [key for key in SELECTORS if selector.get(key) is not None]
    if len(given) != 1:
        yield f"{path}.selector: Invalid value: exactly one of {', '.join(SELECTORS)} must be specified"
        return
    if given == ["labelMatch"] and kind == HYPER_NODE:
        yield f"{path}.selector.labelMatch: Invalid value: only nodes are chosen by labels"
    if given == ["exactMatch"]:
        name = selector["exactMatch"].get("name")
        if not name:
            yield f"{path}.selector.exactMatch.name: Required value"
        elif kind == HYPER_NODE and name == own:
            yield f'{path}.selector.exactMatch.name: Invalid value: "{name}": a HyperNode is no member of itself'
    if given == ["regexMatch"]:
        pattern = selector["regexMatch"].get("pattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            yield f'{path}.selector.regexMatch.pattern: Invalid value: "{pattern}": {error}'
