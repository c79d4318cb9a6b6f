"""Kinds that are questions: reviews of tokens and access, and bindings without a pod in the path."""

from __future__ import annotations

from typing import Any

from pumice_lab.apiserver.auth import AUDIENCE
from pumice_lab.apiserver.errors import (
    UNSAID,
    FieldProblem,
    bad_request,
    invalid,
    invalid_value,
    method_not_allowed,
    not_acceptable,
    not_found,
)
from pumice_lab.apiserver.http_types import Response, User, reply
from pumice_lab.apiserver.rights import Act
from pumice_lab.apiserver.subresources.binding import bind
from pumice_lab.apiserver.verbs.context import Call, table_view, takes_objects

Json = dict[str, Any]


def answer(call: Call) -> Response:
    if call.kind.kind in _ITEMS and call.request.method == "GET":
        return _items(call)
    if call.kind.kind in _ITEMS or call.request.method != "POST":
        raise method_not_allowed(call.request.method)
    if call.kind.kind == "Binding":
        name = (call.asked("", "v1", "Binding").get("metadata") or {}).get("name", "")
        if not name:
            raise bad_request("metadata.name of the binding names the pod")
        return bind(call, name)
    if table_view(call.request) and not takes_objects(call.request):
        raise not_acceptable()
    value = call.asked(call.kind.group, call.kind.version, call.kind.kind)
    value |= {"kind": call.kind.kind, "apiVersion": call.kind.api_version}
    value.setdefault("metadata", {})
    value.setdefault("spec", {})
    value["status"] = _STATUS[call.kind.kind](call, value)
    return reply(value, 201)


def _user_info(user: User) -> Json:
    extra = {key: list(values) for key, values in user.extra.items()}
    found = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {key: value for key, value in found.items() if value}


def _may_i(call: Call, value: Json) -> Json:
    return {"allowed": call.rights.allows(call.request.user, _act(value["spec"]))}


def _may_he(call: Call, value: Json) -> Json:
    spec = value["spec"]
    return {"allowed": call.rights.allows(User(spec.get("user") or "", groups=tuple(spec.get("groups") or ())), _act(spec))}


def _may_he_here(call: Call, value: Json) -> Json:
    """Raises Invalid for a question about another namespace."""
    attributes, problems = value["spec"].get("resourceAttributes") or {}, list[FieldProblem]()
    if value["spec"].get("nonResourceAttributes") is not None:
        problems.append(invalid_value("spec.nonResourceAttributes", UNSAID, "disallowed on this kind of request"))
    elif (asked := attributes.get("namespace") or "") != call.target.namespace:
        problems.append(invalid_value("spec.resourceAttributes.namespace", asked, "must match metadata.namespace"))
    if problems:
        raise invalid(call.kind.group, "", "", problems)
    return _may_he(call, value)


def _act(spec: Json) -> Act:
    """The subject of a review."""
    if path := spec.get("nonResourceAttributes"):
        return Act(path.get("verb") or "", path=path.get("path") or "")
    asked = spec.get("resourceAttributes")
    if not asked:
        raise bad_request("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified")
    resource = "/".join(filter(None, (asked.get("resource"), asked.get("subresource"))))
    return Act(asked.get("verb") or "", asked.get("group") or "", resource, asked.get("namespace") or "", asked.get("name") or "")


def _rules(call: Call, value: Json) -> Json:
    rules = call.rights.rules(call.request.user, value["spec"].get("namespace") or "")
    fields = ("verbs", "apiGroups", "resources", "resourceNames")
    return {"resourceRules": [{key: rule[key] for key in fields if rule.get(key)} for rule in rules if rule.get("resources")],
            "nonResourceRules": [{"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
                                 for rule in rules if rule.get("nonResourceURLs")], "incomplete": False}  # fmt: skip


def _token(call: Call, value: Json) -> Json:
    """Of the audiences that are asked for those that the token is meant for, by which the asker knows that it is one of them."""
    token = (value.get("spec") or {}).get("token", "")
    asked = value["spec"].get("audiences") or [AUDIENCE]
    audiences = [one for one in asked if token and call.tokens.user(f"Bearer {token}", (one,))]
    user = call.tokens.user(f"Bearer {token}", audiences) if audiences else None
    if user is None:
        return {"authenticated": False, "error": "the token is not known, or not meant for these audiences"}
    return {"authenticated": True, "audiences": audiences, "user": _user_info(user)}


_STATUS = {
    "SelfSubjectAccessReview": _may_i,
    "SubjectAccessReview": _may_he,
    "LocalSubjectAccessReview": _may_he_here,
    "SelfSubjectRulesReview": _rules,
    "SelfSubjectReview": lambda call, value: {"userInfo": _user_info(call.request.user)},
    "TokenReview": _token,
}


def _component_statuses(call: Call) -> list[Json]:
    """The API server is the only component that it can speak for."""
    return [{"metadata": {"name": "storage"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}]


def _api_services(call: Call) -> list[Json]:
    """Every group's versions are served here; none is fetched from elsewhere."""
    versions = sorted({(kind.group, kind.version) for kind in call.backend.registry})
    available = {"type": "Available", "status": "True", "reason": "Local", "message": "Local APIServices are always available"}
    return [{"metadata": {"name": f"{version}.{group}"}, "status": {"conditions": [available]},
             "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15}}
            for group, version in versions]  # fmt: skip


_ITEMS = {"ComponentStatus": _component_statuses, "APIService": _api_services}


def _items(call: Call) -> Response:
    kind, name = call.kind, call.target.name
    found = _ITEMS[kind.kind](call)
    if not name:
        return reply({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": {}, "items": found})
    for item in found:
        if item["metadata"]["name"] == name:
            return reply({"kind": kind.kind, "apiVersion": kind.api_version, **item})
    raise not_found(kind.group, kind.plural, name)
