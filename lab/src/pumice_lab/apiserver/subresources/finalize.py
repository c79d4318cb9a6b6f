"""namespaces/finalize: the door through which spec.finalizers leave; without any, a namespace in deletion is gone."""

from __future__ import annotations

from pumice_lab.apiserver.errors import method_not_allowed
from pumice_lab.apiserver.http_types import Response
from pumice_lab.apiserver.verbs.context import Call


def answer(call: Call) -> Response:
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
