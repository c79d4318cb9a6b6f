"""Kinds that are questions: reviews of tokens and access, and bindings without a pod in the path."""

from __future__ import annotations

from typing import Any

from pumice.cluster.apiserver.errors import bad_request, method_not_allowed
from pumice.cluster.apiserver.exchange import Response, reply
from pumice.cluster.apiserver.subresources.binding import bind
from pumice.cluster.apiserver.verbs.context import Call

Json = dict[str, Any]


def answer(call: Call) -> Response:
    if call.kind.kind == "ComponentStatus":
        return _component_statuses(call)
    if call.request.method != "POST":
        raise method_not_allowed(call.request.method)
    if call.kind.kind == "Binding":
        name = (call.request.value().get("metadata") or {}).get("name", "")
        if not name:
            raise bad_request("metadata.name of the binding names the pod")
        return bind(call, name)
    value = call.request.value()
    value |= {"kind": call.kind.kind, "apiVersion": call.kind.api_version}
    value.setdefault("metadata", {})
    value["status"] = _STATUS[call.kind.kind](call, value)
    return reply(value, 201)


def _user_info(call: Call) -> Json:
    user = call.request.user
    return {"username": user.name, **({"uid": user.uid} if user.uid else {}), "groups": list(user.groups)}


def _allowed(call: Call, value: Json) -> Json:
    return {"allowed": True, "reason": "everyone who is authenticated may do everything in the embedded cluster"}


def _rules(call: Call, value: Json) -> Json:
    everything = ["*"]
    return {"resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}], "incomplete": False}  # fmt: skip


def _token(call: Call, value: Json) -> Json:
    token = (value.get("spec") or {}).get("token", "")
    user = call.tokens.user(f"Bearer {token}") if token else None
    if user is None:
        return {"authenticated": False, "error": "the token is not known"}
    return {"authenticated": True, "user": {"username": user.name, "uid": user.uid, "groups": list(user.groups)}}


_STATUS = {
    "SelfSubjectAccessReview": _allowed,
    "SubjectAccessReview": _allowed,
    "LocalSubjectAccessReview": _allowed,
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": lambda call, value: {"userInfo": _user_info(call)},
    "TokenReview": _token,
}


def _component_statuses(call: Call) -> Response:
    """The API server is the only component that it can speak for."""
    item = {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": "storage"},
            "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}  # fmt: skip
    return reply({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": [item]})
