"""serviceaccounts/token: TokenRequest."""

from __future__ import annotations

from datetime import UTC, datetime

from pumice.cluster.apiserver.errors import invalid, invalid_value, method_not_allowed
from pumice.cluster.apiserver.http_types import Response, reply
from pumice.cluster.apiserver.verbs.context import Call


def answer(call: Call) -> Response:
    if call.request.method != "POST":
        raise method_not_allowed(call.request.method)
    target, request = call.target, call.request.value()
    account = call.objects.stored(call.kind, target.namespace, target.name).value()
    spec = request.setdefault("spec", {})
    seconds = spec.setdefault("expirationSeconds", 3600)
    if not isinstance(seconds, int) or seconds < 600:
        problem = invalid_value("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        raise invalid("authentication.k8s.io", "TokenRequest", "", [problem])
    audiences = spec.get("audiences") or ["https://kubernetes.default.svc"]
    spec["audiences"] = audiences
    token, expires = call.tokens.issue(target.namespace, target.name, account["metadata"]["uid"], audiences, seconds)
    when = datetime.fromtimestamp(int(expires), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"name": target.name, "namespace": target.namespace, "creationTimestamp": call.backend.now()}
    return reply({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": metadata, "spec": spec,
                  "status": {"token": token, "expirationTimestamp": when}}, 201)  # fmt: skip
