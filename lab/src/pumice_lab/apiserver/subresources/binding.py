"""pods/binding and pods/eviction. A Binding gives a pod its node, once, with the annotations and labels that are sent along."""

from __future__ import annotations

from typing import Any

from pumice.wire.objects import is_ready, selects
from pumice_lab.apiserver.deletion import delete
from pumice_lab.apiserver.errors import (
    ApiFailure,
    bad_request,
    conflict,
    invalid,
    method_not_allowed,
    required,
    unsupported,
)
from pumice_lab.apiserver.http_types import Response, reply
from pumice_lab.apiserver.verbs.context import Call

Json = dict[str, Any]


def answer(call: Call) -> Response:
    if call.request.method != "POST":
        raise method_not_allowed(call.request.method)
    return bind(call, call.target.name)


def bind(call: Call, name: str) -> Response:
    """Raises Conflict when the pod is bound or being deleted, or when uid or resourceVersion of the binding do not match."""
    registry, backend = call.backend.registry, call.backend
    kind = registry.find("", "v1", "pods")
    assert kind is not None
    binding = call.asked("", "v1", "Binding")
    target = binding.get("target") or {}
    if target.get("kind", "Node") not in ("Node", ""):
        raise invalid("", "Binding", name, [unsupported("target.kind", target["kind"], ("Node", "<empty>"))])
    if not target.get("name"):
        raise invalid("", "Binding", name, [required("target.name")])
    stored = call.objects.stored(kind, call.target.namespace, name)
    pod = stored.value()
    metadata, spec, wanted = pod["metadata"], pod["spec"], binding.get("metadata") or {}
    if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
        raise conflict("", "pods/binding", name, f"Precondition failed: UID in precondition: {wanted['uid']}, "
                       f"UID in object meta: {metadata['uid']}")  # fmt: skip
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != metadata["resourceVersion"]:
        raise conflict("", "pods/binding", name, f"Precondition failed: ResourceVersion in precondition: "
                       f"{wanted['resourceVersion']}, ResourceVersion in object meta: {metadata['resourceVersion']}")  # fmt: skip
    if metadata.get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    sent = {"apiVersion": "v1", "kind": "Binding", **binding}
    call.objects.let_in(call.kind, call.target.namespace, name, sent, call.options, call.target.subresource)
    old = stored.value()
    spec["nodeName"] = target["name"]
    for key in ("annotations", "labels"):
        if wanted.get(key):
            metadata[key] = {**(metadata.get(key) or {}), **wanted[key]}
    _scheduled(pod, backend.now())
    call.objects.replace(kind, stored, old, pod, call.options, "binding")
    return reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)


def _scheduled(pod: Json, now: str) -> None:
    """Condition PodScheduled=True; its time of transition changes only with its status."""
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    for condition in conditions:
        if condition.get("type") == "PodScheduled":
            if condition.get("status") != "True":
                condition["lastTransitionTime"] = now
            condition["status"] = "True"
            for key in ("reason", "message"):
                condition.pop(key, None)
            return
    conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now})


# -- pods/eviction: deletes a pod unless a disruption budget forbids it ("API-initiated eviction") -------------------



def evict(call: Call) -> Response:
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
             if selects(((budget := stored.value()).get("spec") or {}).get("selector"), labels)]  # fmt: skip
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
    reported = {"causes": [{"reason": "DisruptionBudget", "message": cause}], **details}
    return ApiFailure(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", reported)
