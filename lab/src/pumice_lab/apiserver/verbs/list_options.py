"""Options of a list and of a watch that go together: the rules of Kubernetes' ListOptions."""

from __future__ import annotations

from collections.abc import Iterator

from pumice_lab.apiserver.errors import FieldProblem, forbidden_value, invalid, unsupported
from pumice_lab.apiserver.http_types import Request

MATCH = "resourceVersionMatch"
INITIAL = "sendInitialEvents"


def check_list(request: Request) -> None:
    _refuse(_of_a_list(request))


def check_watch(request: Request) -> None:
    _refuse(_of_a_watch(request))


def _refuse(problems: Iterator[FieldProblem]) -> None:
    if found := list(problems):
        raise invalid("meta.k8s.io", "ListOptions", "", found)


def _of_a_list(request: Request) -> Iterator[FieldProblem]:
    match, asked = request.param(MATCH), request.param("resourceVersion")
    if INITIAL in request.query:
        yield forbidden_value(INITIAL, f"{INITIAL} is forbidden for list")
    if not match:
        return
    if not asked:
        yield forbidden_value(MATCH, f"{MATCH} is forbidden unless resourceVersion is provided")
    if request.param("continue"):
        yield forbidden_value(MATCH, f"{MATCH} is forbidden when continue is provided")
    if match not in ("Exact", "NotOlderThan"):
        yield unsupported(MATCH, match, ("Exact", "NotOlderThan", ""))
    if match == "Exact" and asked == "0":
        yield forbidden_value(MATCH, f'{MATCH} "exact" is forbidden for resourceVersion "0"')


def _of_a_watch(request: Request) -> Iterator[FieldProblem]:
    match = request.param(MATCH)
    if INITIAL in request.query:
        if match != "NotOlderThan":
            yield forbidden_value(MATCH, f"{INITIAL} requires setting {MATCH} to NotOlderThan")
    elif match:
        yield forbidden_value(MATCH, f"{MATCH} is forbidden for watch unless {INITIAL} is provided")
    if match and match != "NotOlderThan":
        yield unsupported(MATCH, match, ("NotOlderThan",))
    if request.param("continue"):
        yield forbidden_value(MATCH, f"{MATCH} is forbidden when continue is provided")
