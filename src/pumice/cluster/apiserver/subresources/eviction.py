"""pods/eviction: deletes a pod unless a disruption budget forbids it ("API-initiated eviction")."""

from __future__ import annotations

from typing import Any

from pumice.cluster.apiserver.errors import bad_request, method_not_allowed, too_many_requests
from pumice.cluster.apiserver.http_types import Response, reply
from pumice.cluster.apiserver.verbs.context import Call
from pumice.cluster.requirements import matches_selector

Json = dict[str, Any]


def answer(call: Call) -> Response:
    if call.request.method != "POST":
        raise method_not_allowed(call.request.method)
    eviction, target = call.asked("policy", "v1", "Eviction"), call.target
    stored = call.objects.stored(call.kind, target.namespace, target.name)
    pod = stored.value()
    running = (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed", "Pending")
    if running and not pod["metadata"].get("deletionTimestamp"):
        _ask_budget(call, pod)
    options = dict(eviction.get("deleteOptions") or {})
    if options.get("gracePeriodSeconds", 0) < 0:
        raise bad_request("deleteOptions.gracePeriodSeconds: Invalid value: must be zero or more")
    call.objects.delete(call.kind, target.namespace, target.name, options, call.options)
    return reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _ask_budget(call: Call, pod: Json) -> None:
    """Books one disruption on the pod's budget, or raises TooManyRequests."""
    storage, namespace = call.backend.storage, pod["metadata"]["namespace"]
    for stored in storage.objects("policy/poddisruptionbudgets", namespace):
        budget = stored.value()
        if not matches_selector((budget.get("spec") or {}).get("selector"), pod["metadata"].get("labels") or {}):
            continue
        status = budget.setdefault("status", {})
        if status.get("disruptionsAllowed", 0) < 1:
            problem = too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
            cause = (
                f"The disruption budget {stored.name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                f"{status.get('currentHealthy', 0)} currently"
            )
            problem.details["causes"] = [{"reason": "DisruptionBudget", "message": cause}]
            raise problem
        status["disruptionsAllowed"] -= 1
        status.setdefault("disruptedPods", {})[pod["metadata"]["name"]] = call.backend.now()
        if not call.options.dry_run:
            storage.put(stored.resource, namespace, stored.name, budget, expect=stored.revision)
