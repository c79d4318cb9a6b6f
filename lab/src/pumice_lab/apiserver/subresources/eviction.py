"""pods/eviction: deletes a pod unless a disruption budget forbids it ("API-initiated eviction")."""

from __future__ import annotations

from typing import Any

from pumice.wire.objects import is_ready
from pumice_lab.apiserver.deletion import delete
from pumice_lab.apiserver.errors import ApiFailure, bad_request, method_not_allowed
from pumice_lab.apiserver.http_types import Response, reply
from pumice_lab.apiserver.verbs.context import Call
from pumice_lab.requirements import matches_selector

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
    delete(call.objects, call.kind, target.namespace, target.name, options, call.options)
    return reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _ask_budget(call: Call, pod: Json) -> None:
    """Books one disruption on the pod's budget, or raises what forbids it (pkg/registry/core/pod/storage/eviction.go)."""
    storage, meta = call.backend.storage, pod["metadata"]
    labels = meta.get("labels") or {}
    found = [(stored, budget) for stored in storage.objects("policy/poddisruptionbudgets", meta["namespace"])
             if matches_selector(((budget := stored.value()).get("spec") or {}).get("selector"), labels)]  # fmt: skip
    if len(found) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiFailure(500, "InternalError", why)
    for stored, budget in found:
        status = budget.setdefault("status", {})
        have, need = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        lenient = (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if not is_ready(pod) and (lenient or have >= need > 0):
            return  # one that is not healthy takes nothing from those who have to be
        _require(budget, stored.name, have, need)
        status["disruptionsAllowed"] -= 1
        status.setdefault("disruptedPods", {})[meta["name"]] = call.backend.now()
        if not call.options.dry_run:
            storage.put(stored.resource, meta["namespace"], stored.name, budget, expect=stored.revision)


def _require(budget: Json, name: str, have: int, need: int) -> None:
    status = budget["status"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _not_now(f"The disruption budget {name} is still being processed by the server.", retryAfterSeconds=10)
    failed = next((c for c in status.get("conditions") or () if c.get("reason") == "SyncFailed"), None)
    if failed and not status.get("disruptionsAllowed", 0):
        why = f"does not allow evicting pods currently because it failed sync: {failed.get('message', '')}"
        raise _not_now(f"The disruption budget {name} {why}")
    if status.get("disruptionsAllowed", 0) < 1:
        raise _not_now(f"The disruption budget {name} needs {need} healthy pods and has {have} currently")


def _not_now(cause: str, **details: int) -> ApiFailure:
    told = {"causes": [{"reason": "DisruptionBudget", "message": cause}], **details}
    return ApiFailure(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", told)
