"""EndpointSlices and Endpoints: where the pods of a Service answer. Pure.

Sources: Kubernetes "EndpointSlices" (sections "Conditions", "Management", "Ownership") and "Service" (section "Endpoints").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from pumice.effects.vocabulary import Create, Delete, Patch
from pumice.ports.cluster import Resource
from pumice.wire.kinds import ENDPOINT_SLICES, ENDPOINTS
from pumice.wire.objects import is_ready
from pumice_lab.controllers.common import Action, Json, View, is_deleting, owner_reference, phase

_OF_SLICE, _OF_ENDPOINTS = 100, 1000
"""Pods in one."""
_MANAGED, _BY = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
_LEGACY, _BY_LEGACY = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
_HEADLESS = "service.kubernetes.io/headless"
_Groups = list[tuple[list[Json], list[View]]]


def selector_of(service: View) -> Json | None:
    """None where somebody else says where it answers."""
    spec = service["spec"]
    return {"matchLabels": spec["selector"]} if spec.get("selector") and spec.get("type") != "ExternalName" else None


def reconcile(service: View, pods: Iterable[View], slices: Sequence[View], endpoints: View | None) -> list[Action]:
    """``pods``: those that it selects; ``slices``: its own; ``endpoints``: what has its name, whoever made it."""
    if is_deleting(service) or selector_of(service) is None:
        return []
    ports = service["spec"].get("ports") or ()
    named = {_key(port, port["targetPort"]) for port in ports if isinstance(port.get("targetPort"), str)}
    groups: dict[frozenset[Any], tuple[list[Json], list[View]]] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        if (pod.get("status") or {}).get("podIP") and phase(pod) not in ("Succeeded", "Failed"):
            numbers = {key: number for key, number in _numbers(pod).items() if key in named} if named else {}
            of = frozenset(numbers.items())
            if of not in groups:  # a Service may have ten thousand ports, which are those of all its pods
                groups[of] = _ports(service, numbers), []
            groups[of][1].append(pod)
    found = list(groups.values())
    return [*_slices(service, found, slices), *_endpoints(service, found, endpoints)]


def _slices(service: View, groups: _Groups, slices: Sequence[View]) -> list[Action]:
    meta = service["metadata"]
    wanted = [{"ports": ports, "endpoints": [_endpoint(service, pod) for pod in pods[first : first + _OF_SLICE]]}
              for ports, pods in groups or [([], [])] for first in range(0, len(pods) or 1, _OF_SLICE)]  # fmt: skip
    labels = {"kubernetes.io/service-name": meta["name"], _MANAGED: _BY}
    actions: list[Action] = []
    for body, there in zip_longest(wanted, sorted(slices, key=lambda each: str(each["metadata"]["name"]))):
        if body is None:
            actions.append(Delete(ENDPOINT_SLICES, meta["namespace"], there["metadata"]["name"], there["metadata"]["uid"]))
        elif there is None:
            head = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
            actions.append(Create(ENDPOINT_SLICES, {**head, **body, "metadata": {
                **_metadata(service, labels), "generateName": f"{meta['name'][:57]}-"}}))  # fmt: skip
        else:
            actions += _brought_to(ENDPOINT_SLICES, there, body, _metadata(service, labels))
    return actions


def _endpoints(service: View, groups: _Groups, there: View | None) -> list[Action]:
    subsets: list[Json] = []
    left = _OF_ENDPOINTS
    for ports, pods in groups:
        subset: Json = {}
        for pod in pods:
            if (not is_deleting(pod) or _tolerant(service)) and left:
                left -= 1
                field = "addresses" if is_ready(pod) or _tolerant(service) else "notReadyAddresses"
                address = {**_hostname(service, pod), "ip": pod["status"]["podIP"], "nodeName": pod["spec"]["nodeName"]}
                subset.setdefault(field, []).append({**address, "targetRef": _target(pod)})
        if subset:
            named = [port if port["name"] else {key: port[key] for key in port.keys() - {"name"}} for port in ports]
            subsets.append({**subset, **({"ports": named} if ports else {})})
    metadata = _metadata(service, {_LEGACY: _BY_LEGACY})
    if there is not None:
        return _brought_to(ENDPOINTS, there, {"subsets": subsets}, metadata)
    metadata["name"] = service["metadata"]["name"]
    return [Create(ENDPOINTS, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})]


def _brought_to(resource: Resource, there: View, body: Json, metadata: Json) -> list[Action]:
    """Nothing where it says all that already."""
    meta = there["metadata"]
    same = all((there.get(key) or []) == value for key, value in body.items())
    if same and meta.get("labels") == metadata["labels"] and meta.get("ownerReferences") == metadata["ownerReferences"]:
        return []
    gone = dict.fromkeys((meta.get("labels") or {}).keys() - metadata["labels"].keys())
    metadata = {"labels": {**gone, **metadata["labels"]}, "ownerReferences": metadata["ownerReferences"]}
    return [Patch(resource, meta["namespace"], meta["name"], {**body, "metadata": metadata}, meta["uid"])]


def _metadata(service: View, labels: Mapping[str, str]) -> Json:
    meta = service["metadata"]
    headless = {_HEADLESS: ""} if service["spec"].get("clusterIP") == "None" else {}
    return {"namespace": meta["namespace"], "labels": {**(meta.get("labels") or {}), **headless, **labels},
            "ownerReferences": [owner_reference(service, "v1", "Service")]}  # fmt: skip


def _key(port: View, name: Any) -> tuple[Any, str]:
    return name, port.get("protocol", "TCP")


def _numbers(pod: View) -> dict[tuple[Any, str], int]:
    """Return the ports of a pod by name and protocol."""
    return {_key(port, port.get("name")): port["containerPort"]
            for container in pod["spec"]["containers"] for port in container.get("ports") or ()}  # fmt: skip


def _ports(service: View, numbers: Mapping[tuple[Any, str], int]) -> list[Json]:
    """Those of the Service that a pod has; a port that is meant by name may be another number in each pod."""
    found: list[Json] = []
    for port in service["spec"].get("ports") or ():
        target, protocol = port.get("targetPort", port["port"]), port.get("protocol", "TCP")
        number = numbers.get((target, protocol)) if isinstance(target, str) else target or port["port"]
        if number is not None:
            said = {"appProtocol": port["appProtocol"]} if port.get("appProtocol") else {}
            found.append({"name": port.get("name") or "", **said, "port": number, "protocol": protocol})
    return found


def _endpoint(service: View, pod: View) -> Json:
    ready, ending = is_ready(pod), is_deleting(pod)
    conditions = {"ready": _tolerant(service) or (ready and not ending), "serving": ready, "terminating": ending}
    return {"addresses": [pod["status"]["podIP"]], "conditions": conditions, **_hostname(service, pod),
            "nodeName": pod["spec"]["nodeName"], "targetRef": _target(pod)}  # fmt: skip


def _tolerant(service: View) -> bool:
    return bool(service["spec"].get("publishNotReadyAddresses"))


def _hostname(service: View, pod: View) -> Json:
    spec = pod["spec"]
    named = spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]
    return {"hostname": spec["hostname"]} if named else {}


def _target(pod: View) -> Json:
    meta = pod["metadata"]
    return {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
