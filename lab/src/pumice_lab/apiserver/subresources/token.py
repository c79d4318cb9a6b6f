"""serviceaccounts/token, which is TokenRequest, and namespaces/finalize."""

from __future__ import annotations

from typing import Any

from pumice.wire.times import stamp
from pumice_lab.apiserver.auth import AUDIENCE, BOUND
from pumice_lab.apiserver.errors import (
    FieldProblem,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    method_not_allowed,
    unsupported,
)
from pumice_lab.apiserver.http_types import Response, reply
from pumice_lab.apiserver.verbs.context import Call

Json = dict[str, Any]
_GROUP, _KIND = "authentication.k8s.io", "TokenRequest"


def answer(call: Call) -> Response:
    if call.request.method != "POST":
        raise method_not_allowed(call.request.method)
    target, spec = call.target, call.asked(_GROUP, "v1", _KIND).get("spec") or {}
    account = call.objects.stored(call.kind, target.namespace, target.name).value()
    seconds, reference = spec.get("expirationSeconds", 3600), spec.get("boundObjectRef") or {}
    if problems := _problems(seconds, reference):
        raise invalid(_GROUP, _KIND, target.name, problems)
    audiences = spec.get("audiences") or [AUDIENCE]
    bound = _bound(call, reference) if reference else {}
    token, expires = call.tokens.issue(target.namespace, target.name, account["metadata"]["uid"], audiences, seconds, bound)
    metadata = {"name": target.name, "namespace": target.namespace, "creationTimestamp": call.backend.now()}
    return reply({"kind": _KIND, "apiVersion": f"{_GROUP}/v1", "metadata": metadata,
                  "spec": {**spec, "expirationSeconds": seconds, "audiences": audiences},
                  "status": {"token": token, "expirationTimestamp": stamp(expires)}}, 201)  # fmt: skip


def _problems(seconds: int, reference: Json) -> list[FieldProblem]:
    problems = []
    if seconds < 600:
        problems.append(invalid_value("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        problems.append(invalid_value("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds"))
    kinds = [kind.capitalize() for kind in BOUND]
    if reference and reference.get("kind") not in kinds:
        problems.append(unsupported("spec.boundObjectRef.kind", reference.get("kind", ""), kinds))
    return problems


def _bound(call: Call, reference: Json) -> dict[str, dict[str, str]]:
    """The object that the token dies with, as its claims name it. Raises NotFound, Conflict, or BadRequest for a pod of
    another account, whose node the token would name as its own."""
    kind = call.backend.registry.find("", "v1", f"{reference['kind'].lower()}s")
    assert kind is not None
    name = reference.get("name", "")
    there = call.objects.stored(kind, call.target.namespace, name).value()
    account = call.target.name
    if kind.plural == "pods" and there["spec"].get("serviceAccountName") != account:
        raise bad_request(f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.')
    uid = there["metadata"]["uid"]
    if reference.get("uid", uid) != uid:
        raise conflict("", kind.plural, name, f"the UID in the bound object reference ({reference['uid']}) does not match the "
                       "UID in record. The object might have been deleted and then recreated")  # fmt: skip
    node = (there.get("spec") or {}).get("nodeName") if kind.plural == "pods" else ""
    return {reference["kind"].lower(): {"name": name, "uid": uid}, **({"node": {"name": node}} if node else {})}


# -- namespaces/finalize: the door through which spec.finalizers leave; without any ----------------------------------

# A namespace in deletion is gone.


def finalize(call: Call) -> Response:
    if call.request.method != "PUT":
        raise method_not_allowed(call.request.method)
    kind, name, options = call.kind, call.target.name, call.options
    value = call.objects.parse(kind, call.request.value(), options)
    stored = call.objects.stored(kind, "", name)
    old = stored.value()
    finalizers = (value.get("spec") or {}).get("finalizers")
    new = stored.value()
    new["spec"] = {"finalizers": finalizers} if finalizers else {}
    return call.show(call.objects.replace(kind, stored, old, new, options, "finalize"))
