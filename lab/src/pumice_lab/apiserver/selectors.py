"""Label and field selectors as text (``app=web,tier in (a,b),!old``; ``spec.nodeName=n1,status.phase!=Failed``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from pumice_lab.apiserver.errors import bad_request

Matcher = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(!?)\s*([^\s=!,()]+)\s+(in|notin)\s*\(([^()]*)\)$")
_PAIR = re.compile(r"^([^\s=!,()<>]+)\s*(==|=|!=|>|<)\s*([^\s=!,()]*)$")
_FIELD = re.compile(r"([^=!]+)(==|=|!=)(.*)", re.DOTALL)
_EXISTS = re.compile(r"^(!?)\s*([^\s=!,()<>]+)$")


class _Terms:
    """Requirements gathered by key, so that a test takes as long as there are labels, however many requirements there are."""

    def __init__(self) -> None:
        self.wanted: dict[str, frozenset[str] | None] = {}  # one of these values; None: any
        self.banned: dict[str, frozenset[str]] = {}
        self.absent: set[str] = set()
        self.above: dict[str, int] = {}
        self.below: dict[str, int] = {}

    def want(self, key: str, values: frozenset[str] | None = None) -> None:
        before = self.wanted.get(key)
        self.wanted[key] = values if before is None else before if values is None else before & values

    def ban(self, key: str, values: frozenset[str]) -> None:
        self.banned[key] = self.banned.get(key, frozenset()) | values

    def __call__(self, labels: Mapping[str, str]) -> bool:
        if not (self.wanted.keys() <= labels.keys() and self.absent.isdisjoint(labels)):
            return False
        if any(values is not None and labels[key] not in values for key, values in self.wanted.items()):
            return False
        if self.banned and any(value in self.banned.get(key, ()) for key, value in labels.items()):
            return False
        return all((number := _number(labels[key])) is not None and number > bound for key, bound in self.above.items()) and all(
            (number := _number(labels[key])) is not None and number < bound for key, bound in self.below.items())


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def label_selector(text: str) -> Matcher | None:
    """A test on labels, or None when everything matches. Raises BadRequest when it does not parse."""
    parts, terms = _split(text), _Terms()
    for part in parts:
        _take_label_term(terms, part)
    return terms if parts else None


def _split(text: str) -> list[str]:
    """At commas outside of parentheses."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    parts.append(current.strip())
    return [part for part in parts if part]


def _take_label_term(terms: _Terms, part: str) -> None:
    if match := _SET.match(part):
        _, key, word, inside = match.groups()
        values = frozenset(value.strip() for value in inside.split(","))
        (terms.want if word == "in" else terms.ban)(key, values)
    elif match := _PAIR.match(part):
        key, operator, value = match.groups()
        if operator in ("=", "=="):
            terms.want(key, frozenset((value,)))
        elif operator == "!=":
            terms.ban(key, frozenset((value,)))
        else:
            _take_bound(terms, key, operator, value)
    elif match := _EXISTS.match(part):
        no, key = match.groups()
        if no:
            terms.absent.add(key)
        else:
            terms.want(key)
    else:
        raise bad_request(f"unable to parse requirement: found '{part}', expected: a label selector")


def _take_bound(terms: _Terms, key: str, operator: str, value: str) -> None:
    bound = _number(value)
    if bound is None:
        raise bad_request(f"for '{operator}' operators, the value must be an integer, got '{value}'")
    terms.want(key)
    if operator == ">":
        terms.above[key] = max(bound, terms.above.get(key, bound))
    else:
        terms.below[key] = min(bound, terms.below.get(key, bound))


def field_selector(text: str, known: frozenset[str]) -> Matcher | None:
    """A test on the selectable fields of a kind; a field that cannot be selected on is a BadRequest, as in Kubernetes."""
    terms, parts = _Terms(), [part for part in (p.strip() for p in text.split(",")) if part]
    for part in parts:
        match = _FIELD.match(part)
        if not match:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        key, operator, value = match[1].rstrip(), match[2], match[3].lstrip()
        if key not in known:
            raise bad_request(f"field label not supported: {key}")
        (terms.ban if operator == "!=" else terms.want)(key, frozenset((value,)))
    if not parts:
        return None
    nothing = dict.fromkeys((*terms.wanted, *terms.banned), "")  # a field that is not there is an empty one
    return lambda fields: terms({**nothing, **fields})
