"""Printer columns of the kinds that hold a cluster's settings: network, storage, quotas, devices, certificates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.wire.kubectl_columns import human
from pumice_lab.apiserver.strategies.base import at
from pumice_lab.apiserver.tables.printer import (
    AGE,
    CREATED,
    Printer,
    age_of,
    joined,
    labels_text,
    name_of,
    printer,
    row,
    selector_text,
)

Json = dict[str, Any]


def _yes(value: Any) -> str:
    return str(bool(value)).lower()


def _ingress(value: Json, now: float) -> list[Any]:
    spec = value.get("spec") or {}
    hosts = [rule["host"] for rule in spec.get("rules") or [] if rule.get("host")]
    points = at(value, "status.loadBalancer.ingress") or []
    address = ",".join(p.get("ip") or p.get("hostname", "") for p in points)
    ports = "80, 443" if spec.get("tls") else "80"
    shown = ",".join(hosts[:3]) + (f" + {len(hosts) - 3} more..." if len(hosts) > 3 else "")
    return [name_of(value), spec.get("ingressClassName") or "<none>", shown or "*", address, ports, age_of(value, now)]


def _ingress_class(value: Json, now: float) -> list[Any]:
    spec = value.get("spec") or {}
    reference = spec.get("parameters") or {}
    group = f".{reference['apiGroup']}" if reference.get("apiGroup") else ""
    text = f"{reference.get('kind')}{group}/{reference.get('name')}" if reference else "<none>"
    return [name_of(value), spec.get("controller", ""), text, age_of(value, now)]


def _endpoint_slice(value: Json, now: float) -> list[Any]:
    ports = [str(p.get("port", "*")) for p in value.get("ports") or []]
    addresses = [a for e in value.get("endpoints") or [] for a in e.get("addresses") or []]
    shown = ",".join(addresses[:3]) + (f" + {len(addresses) - 3} more..." if len(addresses) > 3 else "")
    return [
        name_of(value),
        value.get("addressType", ""),
        ",".join(ports) or "<unset>",
        shown or "<unset>",
        age_of(value, now),
    ]


def _quota(value: Json, now: float) -> list[Any]:
    hard, used = at(value, "status.hard") or {}, at(value, "status.used") or {}
    texts = {key: f"{key}: {used.get(key, '0')}/{hard[key]}" for key in sorted(hard)}
    limits = [text for key, text in texts.items() if key.startswith("limits")]
    return [
        name_of(value),
        ", ".join(t for k, t in texts.items() if not k.startswith("limits")),
        ", ".join(limits),
        age_of(value, now),
    ]


def _autoscaler(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    metrics = [_metric(m) for m in spec.get("metrics") or []]
    return [name_of(value), f"{target.get('kind')}/{target.get('name')}", joined(metrics), spec.get("minReplicas", "<unset>"),
            spec.get("maxReplicas", 0), status.get("currentReplicas", 0), age_of(value, now)]  # fmt: skip


def _metric(metric: Json) -> str:
    """A metric's target; no current value, as nothing in the embedded cluster measures it."""
    source = metric.get("resource") or metric.get("containerResource") or {}
    goal = source.get("target") or {}
    wanted = f"{goal['averageUtilization']}%" if "averageUtilization" in goal else goal.get("averageValue", "<auto>")
    return f"{source.get('name', str(metric.get('type', '')).lower())}: <unknown>/{wanted}"


def _csi_driver(value: Json, now: float) -> list[Any]:
    spec = value.get("spec") or {}
    tokens = ",".join(t.get("audience", "") for t in spec.get("tokenRequests") or []) or "<unset>"
    flags = [spec.get("attachRequired", True), spec.get("podInfoOnMount"), spec.get("storageCapacity")]
    modes = ",".join(spec.get("volumeLifecycleModes") or ["Persistent"])
    return [name_of(value), *map(_yes, flags), tokens, _yes(spec.get("requiresRepublish")), modes, age_of(value, now)]


def _resource_claim(value: Json, now: float) -> list[Any]:
    status = value.get("status") or {}
    states = [] if not status.get("allocation") else ["allocated"]
    if status.get("reservedFor"):
        states.append("reserved")
    if value["metadata"].get("deletionTimestamp"):
        states.append("deleted")
    return [name_of(value), ",".join(states) or "pending", age_of(value, now)]


def _signing_request(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    said = [c.get("type", "") for c in status.get("conditions") or []]
    condition = "Denied" if "Denied" in said else "Approved" if "Approved" in said else "Pending"
    if "Failed" in said:
        condition += ",Failed"
    if status.get("certificate"):
        condition += ",Issued"
    asked = human(spec["expirationSeconds"]) if spec.get("expirationSeconds") else "<none>"
    return [name_of(value), age_of(value, now), spec.get("signerName", ""), spec.get("username", ""), asked, condition]


def _pod_template(value: Json, now: float) -> list[Any]:
    items = at(value, "template.spec.containers") or []
    return [name_of(value), ",".join(c.get("name", "") for c in items), ",".join(c.get("image", "") for c in items),
            labels_text(at(value, "template.metadata.labels"))]  # fmt: skip


PRINTERS: Mapping[tuple[str, str], Printer] = {
    ("", "LimitRange"): printer("Name Created_At", CREATED),
    ("", "PodTemplate"): printer("Name Containers Images Pod_Labels", _pod_template),
    ("", "ResourceQuota"): printer("Name Request Limit Age", _quota),
    ("autoscaling", "HorizontalPodAutoscaler"): printer(
        "Name Reference Targets MinPods MaxPods Replicas:i Age", _autoscaler
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): printer(
        "Name Age SignerName Requestor RequestedDuration Condition", _signing_request
    ),
    ("discovery.k8s.io", "EndpointSlice"): printer("Name AddressType Ports Endpoints Age", _endpoint_slice),
    ("networking.k8s.io", "Ingress"): printer("Name Class Hosts Address Ports Age", _ingress),
    ("networking.k8s.io", "IngressClass"): printer("Name Controller Parameters Age", _ingress_class),
    ("networking.k8s.io", "NetworkPolicy"): printer(
        "Name Pod-Selector Age", row(lambda value: selector_text(at(value, "spec.podSelector")), AGE)
    ),
    ("node.k8s.io", "RuntimeClass"): printer("Name Handler Age", row("handler", AGE)),
    ("resource.k8s.io", "ResourceClaim"): printer("Name State Age", _resource_claim),
    ("resource.k8s.io", "ResourceSlice"): printer(
        "Name Node Driver Pool Age",
        row(lambda value: at(value, "spec.nodeName") or "<unset>", "spec.driver", "spec.pool.name", AGE),
    ),
    ("storage.k8s.io", "CSIDriver"): printer(
        "Name AttachRequired PodInfoOnMount StorageCapacity TokenRequests RequiresRepublish Modes Age", _csi_driver
    ),
    ("storage.k8s.io", "CSINode"): printer("Name Drivers:i Age", row(lambda value: len(at(value, "spec.drivers") or ()), AGE)),
    ("storage.k8s.io", "VolumeAttachment"): printer(
        "Name Attacher PV Node Attached Age",
        row("spec.attacher", "spec.source.persistentVolumeName", "spec.nodeName",
            lambda value: _yes(at(value, "status.attached")), AGE),
    ),
}
