"""scale: the number of replicas of anything that has one, as autoscaling/v1 Scale."""

from __future__ import annotations

from typing import Any

from pumice_lab.apiserver.bodies import decode_body, encode
from pumice_lab.apiserver.errors import STALE, bad_request, conflict, invalid, invalid_value, method_not_allowed
from pumice_lab.apiserver.http_types import Response
from pumice_lab.apiserver.patch.json_patch import apply_json_patch, apply_merge_patch
from pumice_lab.apiserver.strategies.base import at
from pumice_lab.apiserver.tables.printer import selector_text
from pumice_lab.apiserver.verbs.context import Call

Json = dict[str, Any]


def answer(call: Call) -> Response:
    stored = call.objects.stored(call.kind, call.target.namespace, call.target.name)
    scale = _scale(call, call.shown(stored.value()))
    match call.request.method:
        case "GET":
            return Response(200, encode(scale))
        case "PUT":
            wanted = call.request.value()
        case "PATCH":
            body = decode_body(call.request.body, call.request.content_type)
            patch = (
                apply_json_patch if call.request.content_type == "application/json-patch+json" else apply_merge_patch
            )
            wanted = patch(scale, body)
        case method:
            raise method_not_allowed(method)
    return Response(200, encode(_set(call, scale, wanted)))


def _set(call: Call, scale: Json, wanted: Json) -> Json:
    kind, target = call.kind, call.target
    assert kind.scale is not None
    replicas = at(wanted, "spec.replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("spec.replicas must be a number")
    if replicas < 0:
        problem = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", target.name, [problem])
    seen = at(wanted, "metadata.resourceVersion")
    if seen and seen != scale["metadata"]["resourceVersion"]:
        raise conflict(kind.group, kind.plural, target.name, STALE)
    stored = call.objects.stored(kind, target.namespace, target.name)
    value = call.shown(stored.value())
    *parents, last = kind.scale.spec.split(".")
    place = value
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = replicas
    return _scale(call, call.objects.replace(kind, stored, call.shown(stored.value()), value, call.options, "scale"))


def _scale(call: Call, value: Json) -> Json:
    paths = call.kind.scale
    assert paths is not None
    metadata = {
        k: v
        for k, v in value["metadata"].items()
        if k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    selector = at(value, paths.selector) if paths.selector else at(value, "spec.selector")
    if isinstance(selector, dict):
        # ReplicationController has a plain map, the others a LabelSelector.
        plain = selector if "matchLabels" in selector or "matchExpressions" in selector else {"matchLabels": selector}
        selector = selector_text(plain)
    status: Json = {"replicas": at(value, paths.status, 0)}
    if selector:
        status["selector"] = selector
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": {"replicas": at(value, paths.spec, 0)}, "status": status}  # fmt: skip
