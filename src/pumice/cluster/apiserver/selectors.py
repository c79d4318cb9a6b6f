"""Label and field selectors as text (``app=web,tier in (a,b),!old``; ``spec.nodeName=n1,status.phase!=Failed``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from pumice.cluster.apiserver.errors import bad_request

Matcher = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(!?)\s*([^\s=!,()]+)\s+(in|notin)\s*\(([^()]*)\)$")
_PAIR = re.compile(r"^([^\s=!,()<>]+)\s*(==|=|!=|>|<)\s*([^\s=!,()]*)$")
_FIELD = re.compile(r"([^=!]+)(==|=|!=)(.*)", re.DOTALL)
_EXISTS = re.compile(r"^(!?)\s*([^\s=!,()<>]+)$")


@lru_cache(maxsize=1024)
def label_selector(text: str) -> Matcher | None:
    """A test on labels, or None when everything matches. Raises BadRequest when it does not parse."""
    tests = [_label_test(part) for part in _split(text)]
    return _all(tests) if tests else None


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


def _label_test(part: str) -> Matcher:
    if match := _SET.match(part):
        _, key, word, inside = match.groups()
        values = frozenset(value.strip() for value in inside.split(","))
        if word == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _PAIR.match(part):
        key, operator, value = match.groups()
        if operator in ("=", "=="):
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return _order_test(key, operator, value)
    if match := _EXISTS.match(part):
        no, key = match.groups()
        return (lambda labels: key not in labels) if no else (lambda labels: key in labels)
    raise bad_request(f"unable to parse requirement: found '{part}', expected: a label selector")


def _order_test(key: str, operator: str, value: str) -> Matcher:
    try:
        bound = int(value)
    except ValueError:
        raise bad_request(f"for '{operator}' operators, the value must be an integer, got '{value}'") from None

    def test(labels: Mapping[str, str]) -> bool:
        try:
            number = int(labels[key])
        except (KeyError, ValueError):
            return False
        return number > bound if operator == ">" else number < bound

    return test


def field_selector(text: str, known: frozenset[str]) -> Matcher | None:
    """A test on the selectable fields of a kind; a field that cannot be selected on is a BadRequest, as in Kubernetes."""
    tests: list[Matcher] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _FIELD.match(part)
        if not match:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        key, operator, value = match[1].rstrip(), match[2], match[3].lstrip()
        if key not in known:
            raise bad_request(f"field label not supported: {key}")
        tests.append(_field_test(key, operator == "!=", value))
    return _all(tests) if tests else None


def _field_test(key: str, negated: bool, value: str) -> Matcher:
    return lambda fields: (fields.get(key, "") == value) is not negated


def _all(tests: list[Matcher]) -> Matcher:
    if len(tests) == 1:
        return tests[0]
    return lambda values: all(test(values) for test in tests)
