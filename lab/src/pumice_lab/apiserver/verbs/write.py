"""create, update, patch, delete and deletecollection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from pumice_lab.apiserver import deletion
from pumice_lab.apiserver.backend import Backend, Waits
from pumice_lab.apiserver.bodies import check_size, encode
from pumice_lab.apiserver.errors import (
    ApiFailure,
    bad_request,
    invalid,
    invalid_value,
    required,
    unsupported_media_type,
)
from pumice_lab.apiserver.http_types import Request, Response, reply
from pumice_lab.apiserver.patch.apply import apply
from pumice_lab.apiserver.patch.json_patch import apply_json_patch, apply_merge_patch
from pumice_lab.apiserver.patch.strategic import apply_strategic_patch
from pumice_lab.apiserver.resource_store import Stored
from pumice_lab.apiserver.verbs.context import Call, from_version
from pumice_lab.apiserver.verbs.read import Filter, body_of

Json = dict[str, Any]
BURST = 100
"""Objects of a collection that are deleted without a pause."""
BURST_BYTES = 4 * 1024 * 1024
REST = 0.02
"""Seconds for others, after each such burst."""
_PATCHES = (
    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
    "application/merge-patch+json, application/apply-patch+yaml"
)


def create(call: Call) -> Response:
    kind, options = call.kind, call.options
    value = call.objects.parse(kind, call.request.value(), options)
    return call.show(call.objects.create(kind, call.target.namespace, from_version(kind, value), options), 201)


def update(call: Call, subresource: str = "") -> Response:
    kind, target, options = call.kind, call.target, call.options
    existed = call.backend.storage.get(kind.storage, target.namespace, target.name) is not None
    if not existed and call.backend.strategy(kind).create_on_update:
        call.require("create")
    value = from_version(kind, call.objects.parse(kind, call.request.value(), options))
    result = call.objects.update(kind, target.namespace, target.name, value, options, subresource)
    return call.show(result, 200 if existed else 201)


def patch(call: Call, subresource: str = "") -> Response:
    kind, target, options = call.kind, call.target, call.options
    content_type = call.request.content_type
    body = call.request.decoded()
    if content_type == "application/apply-patch+yaml":
        if not isinstance(body, dict):
            raise bad_request("the patch is not an object")
        if not call.request.param("fieldManager"):
            raise invalid("meta.k8s.io", "PatchOptions", "", [required("fieldManager", "is required for apply patch")])
        if call.backend.storage.get(kind.storage, target.namespace, target.name) is None:
            call.require("create")
        result, created = apply(call.objects, kind, target.namespace, target.name, body, options, subresource,
                                force=call.request.flag("force"))  # fmt: skip
        return call.show(result, 201 if created else 200)
    stored = call.objects.stored(kind, target.namespace, target.name)
    current = call.shown(stored.value())
    match content_type:
        case "application/json-patch+json":
            patched = apply_json_patch(current, body)
        case "application/merge-patch+json":
            patched = apply_merge_patch(current, _object(body))
        case "application/strategic-merge-patch+json":
            if kind.custom is not None:
                raise unsupported_media_type(_PATCHES)
            patched = apply_strategic_patch(current, _object(body), kind.shape)
        case other:
            raise unsupported_media_type(f"{_PATCHES}, application/strategic-merge-patch+json (got {other or 'none'})")
    if not isinstance(patched, dict):
        raise bad_request("the patch leaves no object")
    check_size(patched)
    value = from_version(kind, call.objects.parse(kind, patched, options))
    uid = value["metadata"].get("uid")
    if uid and uid != stored.value()["metadata"].get("uid"):  # an update of another object is a conflict instead
        raise invalid(kind.group, kind.kind, target.name, [invalid_value("metadata.uid", uid, "field is immutable")])
    if not value["metadata"].get("resourceVersion"):
        value["metadata"]["resourceVersion"] = str(stored.revision)
    return call.show(call.objects.update(kind, target.namespace, target.name, value, options, subresource))


def _object(body: Any) -> Json:
    if not isinstance(body, dict):
        raise bad_request("the patch is not an object")
    return body


def delete_options(call: Call) -> Json:
    """From the body, and from the query parameters of clients that send no body."""
    asked: Json = call.asked("", "v1", "DeleteOptions") if call.request.body else {}
    for key in ("propagationPolicy",):
        if call.request.param(key):
            asked[key] = call.request.param(key)
    if (grace := call.request.number("gracePeriodSeconds")) is not None:
        asked["gracePeriodSeconds"] = grace
    if "orphanDependents" in call.request.query:
        asked["orphanDependents"] = call.request.flag("orphanDependents")
    if (asked.get("gracePeriodSeconds") or 0) < 0:
        asked["gracePeriodSeconds"] = 1  # at once, says who says less than nothing
    if asked.get("dryRun"):
        call.request = _with_dry_run(call)
    return asked


def _with_dry_run(call: Call) -> Any:
    request = call.request
    request.query = {**request.query, "dryRun": ["All"]}
    return request


def delete(call: Call) -> Response:
    kind, target = call.kind, call.target
    asked = delete_options(call)
    call.request.conversion.need(kind, [call.objects.stored(kind, target.namespace, target.name).value()])
    value, gone = deletion.delete(call.objects, kind, target.namespace, target.name, asked, call.options)
    if gone and not call.backend.strategy(kind).returns_deleted:
        group = {"group": kind.group} if kind.group else {}
        details = {"name": target.name, **group, "kind": kind.plural, "uid": value["metadata"].get("uid", "")}
        return reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    return call.show(value)


class More(Waits):
    """The rest of a collection comes in the next try: others are served in between."""

    def __init__(self, done: int) -> None:
        super().__init__()
        self.done = done

    @property
    def about(self) -> tuple[str, ...]:
        return ("deletecollection", str(self.done))

    async def settle(self, backend: Backend, request: Request) -> None:
        await asyncio.sleep(REST)


def delete_collection(call: Call) -> Response:
    kind, wanted = call.kind, Filter(call)
    asked = delete_options(call)
    deleted = call.request.deleted
    chosen = [s for s in call.backend.storage.objects(kind.storage, call.target.namespace)
              if (s.namespace, s.name) not in deleted and wanted(s)]  # fmt: skip
    burst = _burst(chosen)
    call.request.conversion.need(kind, [stored.value() for stored in burst])  # while they are all there
    for stored in burst:
        deleted[stored.namespace, stored.name] = b""
        try:
            value, gone = deletion.delete(call.objects, kind, stored.namespace, stored.name, asked, call.options)
        except ApiFailure as problem:
            if problem.code == 404 or (problem.code == 403 and kind.kind == "Namespace"):
                continue
            raise
        deleted[stored.namespace, stored.name] = body_of(call, stored) if gone else encode(call.shown(value))
    if len(chosen) > len(burst):
        raise More(len(deleted))
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version,
            "metadata": {"resourceVersion": str(call.backend.storage.revision)}}  # fmt: skip
    return Response(200, parts=_listed(encode(head), [body for body in deleted.values() if body]))


def _burst(chosen: list[Stored]) -> list[Stored]:
    """The first of them: as many, or as large, as may go without a pause."""
    size = 0
    for place, stored in enumerate(chosen[:BURST]):
        size += len(stored.data)
        if size > BURST_BYTES:
            return chosen[: place + 1]
    return chosen[:BURST]


def _listed(head: bytes, items: list[bytes]) -> Iterator[bytes]:
    yield head[:-1] + b',"items":['
    for place, body in enumerate(items):
        yield b"," + body if place else body
    yield b"]}"
