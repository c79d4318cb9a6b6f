"""pods/binding: gives a pod its node, once, together with the annotations and labels that the scheduler sends along."""

from __future__ import annotations

from typing import Any

from pumice_lab.apiserver.errors import conflict, invalid, method_not_allowed, required, unsupported
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
