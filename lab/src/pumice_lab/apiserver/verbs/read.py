"""get and list, with paging and the meanings of resourceVersion (Kubernetes "API concepts")."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from pumice_lab.apiserver.bodies import encode
from pumice_lab.apiserver.errors import FieldProblem, bad_request, expired, forbidden_value, invalid, unsupported
from pumice_lab.apiserver.http_types import Request, Response
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.resource_store import Stored
from pumice_lab.apiserver.selectors import Matcher, field_selector, label_selector
from pumice_lab.apiserver.storage import Gone
from pumice_lab.apiserver.verbs.context import Call, metadata_view, table_view

Json = dict[str, Any]
_SHORT = 100  # objects of a list that is made in one go


def get(call: Call) -> Response:
    stored = call.objects.stored(call.kind, call.target.namespace, call.target.name)
    if table_view(call.request):
        return call.show(stored.value())
    return Response(200, encode(metadata_only(stored)) if metadata_view(call.request) else body_of(call, stored))


def metadata_only(stored: Stored) -> dict[str, object]:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored.value()["metadata"]}


def _metadata_item(request: Request, stored: Stored) -> dict[str, object]:
    """One of a list. Who would rather have protobuf, in which items say no kind, is told none."""
    whole = metadata_only(stored)
    return {"metadata": whole["metadata"]} if "protobuf" in request.headers.get("accept", "").partition(",")[0] else whole


class Filter:
    """The selectors of a list or watch."""

    def __init__(self, call: Call) -> None:
        request, strategy = call.request, call.backend.strategy(call.kind)
        self.labels: Matcher | None = label_selector(request.param("labelSelector"))
        text = request.param("fieldSelector")
        if call.kind.group == "events.k8s.io":
            text = text.replace("regarding.", "involvedObject.")
        known = strategy.selectable if call.kind.custom is None else strategy.selectable | call.kind.custom.selectable
        self.fields: Matcher | None = field_selector(text, known) if text else None
        self.name = call.target.name  # a watch on one object
        self.namespace = call.target.namespace

    @property
    def empty(self) -> bool:
        return self.labels is None and self.fields is None and not self.name

    def __call__(self, stored: Stored) -> bool:
        if self.namespace and stored.namespace != self.namespace:
            return False
        if self.name and stored.name != self.name:
            return False
        if self.labels is None and self.fields is None:
            return True
        labels, fields = stored.index
        return (self.labels is None or self.labels(labels)) and (self.fields is None or self.fields(fields))


def list_(call: Call) -> Response:
    request, storage = call.request, call.backend.storage
    wanted = Filter(call)
    limit = max(0, request.number("limit") or 0)
    check_list(request)
    asked = request.param("resourceVersion")
    if request.param("continue"):
        at, after = _resume(request.param("continue"))
        if asked not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        items = [s for s in _snapshot(call, at) if (s.namespace, s.name) > after]
        revision = at
    else:
        revision = storage.revision
        if request.param("resourceVersionMatch") == "Exact":
            revision = _number(asked)
            items = _snapshot(call, revision)
        else:
            if asked and _number(asked) > revision:
                raise _too_large(asked, revision)
            items = storage.objects(call.kind.storage, call.target.namespace)
    token, remaining = "", 0
    if limit:
        chosen = list(islice(filter(wanted, items), limit + 1))
        if len(chosen) > limit:
            remaining = len(items) - limit if wanted.empty else 0
            token = _token(revision, chosen[limit - 1])
        items = chosen[:limit]
    return _respond(call, items, wanted, revision, token, remaining)


def _snapshot(call: Call, revision: int) -> list[Stored]:
    try:
        return call.backend.storage.objects_at(call.kind.storage, call.target.namespace, revision)
    except Gone:
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
            "the continue parameter, or list at a newer resourceVersion."
        ) from None


def _number(text: str) -> int:
    try:
        return int(text or 0)
    except ValueError:
        raise bad_request(f"resourceVersion: Invalid value: {text!r}: must be a number") from None


def _too_large(asked: str, revision: int) -> Exception:
    from pumice_lab.apiserver.errors import ApiFailure

    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
               "retryAfterSeconds": 1}  # fmt: skip
    return ApiFailure(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {revision}", details)


def _token(revision: int, last: Stored) -> str:
    inside = encode({"v": 1, "rv": revision, "after": [last.namespace, last.name]})
    return base64.urlsafe_b64encode(inside).decode().rstrip("=")


def _resume(token: str) -> tuple[int, tuple[str, str]]:
    try:
        value = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(value["rv"]), (str(value["after"][0]), str(value["after"][1]))
    except (binascii.Error, msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError, UnicodeDecodeError):
        raise bad_request("invalid continue token: continue key is not valid: it was not made by this server") from None


def _respond(call: Call, items: list[Stored], wanted: Filter, revision: int, token: str, remaining: int) -> Response:
    kind, metadata = call.kind, {"resourceVersion": str(revision)}
    if token:
        metadata["continue"] = token
    if not metadata_view(call.request):
        call.request.conversion.need(kind, (s.value() for s in items if wanted(s)))
    if view := table_view(call.request):
        return _long(items, wanted, call.tables.head(kind, metadata, view), b"rows",
                     lambda stored: call.tables.row(kind, call.shown(stored.value()), view))
    head: dict[str, object] = {**metadata}
    if token and remaining:
        head["remainingItemCount"] = remaining
    api_version, list_kind = kind.api_version, kind.list_kind
    if metadata_view(call.request):
        api_version, list_kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
        made: Callable[[Stored], bytes] = lambda stored: encode(_metadata_item(call.request, stored))  # noqa: E731
    else:
        made = partial(body_of if kind.custom else _item_of, call)
    return _long(items, wanted, {"kind": list_kind, "apiVersion": api_version, "metadata": head}, b"items", made)


def _long(items: list[Stored], wanted: Filter, head: Json, key: bytes, made: Callable[[Stored], bytes]) -> Response:
    """``head`` with a list behind it, looked through and made while it is sent when it is long: others are served between its
    slices."""

    def parts() -> Iterator[bytes]:
        before = encode(head)[:-1] + b',"' + key + b'":['
        for stored in items:
            if wanted(stored):
                yield before
                yield made(stored)
                before = b","
            else:
                yield b""
        yield b"]}" if before == b"," else before + b"]}"

    return Response(200, parts=parts()) if len(items) > _SHORT else Response(200, b"".join(parts()))


def _item_of(call: Call, stored: Stored) -> bytes:
    """One of a list of a built-in kind: the list says the kind for all of them."""
    body, head = body_of(call, stored), _head(call.kind)
    if body.startswith(head):
        return b"{" + body[len(head) :]
    return encode({key: part for key, part in msgspec.json.decode(body).items() if key not in ("kind", "apiVersion")})


def body_of(call: Call, stored: Stored) -> bytes:
    """The object's bytes in this version of the kind; those of storage, untouched, whenever they fit. Raises Unconverted."""
    if not (call.kind.custom and call.kind.custom.older) and stored.data.startswith(_head(call.kind)):
        return stored.data
    return encode(call.shown(stored.value()))


def _head(kind: Kind) -> bytes:
    """Return the first fields of every object that is stored in this version of the kind."""
    return b'{"kind":"%s","apiVersion":"%s",' % (kind.kind.encode(), kind.api_version.encode())


# -- Options of a list and of a watch that go together: the rules of Kubernetes' ListOptions -------------------------

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
