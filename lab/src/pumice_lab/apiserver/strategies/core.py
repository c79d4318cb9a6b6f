"""Rules of the smaller kinds of the core group and of the groups that hold cluster settings."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from pumice_lab.apiserver.errors import FieldProblem, forbidden_value, invalid_value, required, unsupported
from pumice_lab.apiserver.names import (
    bad_address,
    bad_label,
    bad_path_segment,
    bad_port_name,
    bad_qualified,
)
from pumice_lab.apiserver.strategies.base import Strategy, at

Json = dict[str, Any]


class NamespaceStrategy(Strategy):
    bad_name = staticmethod(bad_label)
    selectable = frozenset(("metadata.name", "status.phase", "name"))

    def default(self, value: Json) -> None:
        if name := value["metadata"].get("name"):
            value["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name

    def prepare_create(self, value: Json) -> None:
        value.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        value["status"] = {"phase": "Active"}

    def prepare_update(self, value: Json, old: Json) -> None:
        value["spec"] = old.get("spec", {})  # finalizers leave by the subresource finalize only

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"status.phase": at(value, "status.phase", ""), "name": value["metadata"]["name"]}


class ConfigMapStrategy(Strategy):
    def validate(self, value: Json) -> list[FieldProblem]:
        problems = _data_keys(value, ("data", "binaryData"))
        size = sum(len(text) for field in ("data", "binaryData") for text in (value.get(field) or {}).values())
        if size > 1 << 20:
            problems.append(FieldProblem("FieldValueTooLong", "", "may not be more than 1048576 bytes", ""))
        return problems

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        if not old.get("immutable"):
            return []
        return [
            forbidden_value(field, "field is immutable when `immutable` is set")
            for field in ("data", "binaryData", "immutable")
            if value.get(field) != old.get(field)
        ]


class SecretStrategy(ConfigMapStrategy):
    selectable = frozenset(("metadata.name", "metadata.namespace", "type"))

    def default(self, value: Json) -> None:
        value.setdefault("type", "Opaque")
        for key, text in (value.pop("stringData", None) or {}).items():
            value.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()

    def validate(self, value: Json) -> list[FieldProblem]:
        problems = [*_data_keys(value, ("data",)), *_of_its_type(value)]
        if sum(len(text) * 3 // 4 - text[-2:].count("=") for text in (value.get("data") or {}).values()) > 1 << 20:
            problems.append(FieldProblem("FieldValueTooLong", "data", "may not be more than 1048576 bytes", ""))
        return problems

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        problems = super().validate_update(value, old)
        if value.get("type") != old.get("type"):
            problems.append(invalid_value("type", value.get("type"), "field is immutable"))
        return problems

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"type": value.get("type", "")}


_KEYS_OF_TYPE = {
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _of_its_type(value: Json) -> Iterator[FieldProblem]:
    """Validate the keys of a secret of one of Kubernetes' types; of user and password one is enough."""
    kind, data = value.get("type", ""), value.get("data") or {}
    if kind == "kubernetes.io/service-account-token":
        key = "kubernetes.io/service-account.name"
        if not (value["metadata"].get("annotations") or {}).get(key):
            yield required(f"metadata.annotations[{key}]")
    missing = [key for key in _KEYS_OF_TYPE.get(kind, ()) if key not in data]
    if kind != "kubernetes.io/basic-auth" or len(missing) == 2:
        yield from (required(f"data[{key}]") for key in missing)


def _data_keys(value: Json, fields: tuple[str, ...]) -> list[FieldProblem]:
    return [
        invalid_value(
            f"{field}[{key}]", key, "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        )
        for field in fields
        for key in value.get(field) or {}
        if not key or len(key) > 253 or "/" in key or bad_qualified("x" + key[:60] + "x") or key in (".", "..")
    ]


class EventStrategy(Strategy):
    create_on_update = True
    selectable = frozenset(
        ("metadata.name", "metadata.namespace", "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
         "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
         "reason", "reportingComponent", "source", "type")
    )  # fmt: skip

    def validate(self, value: Json) -> list[FieldProblem]:
        namespace = at(value, "involvedObject.namespace") or "default"
        own = value["metadata"].get("namespace")
        if "involvedObject" in value and namespace != own:
            return [invalid_value("involvedObject.namespace", namespace, "does not match event.namespace")]
        return []

    def fields(self, value: Json) -> Mapping[str, str]:
        involved = value.get("involvedObject") or {}
        keys = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        return {
            **{f"involvedObject.{key}": involved.get(key, "") for key in keys},
            "reason": value.get("reason", ""),
            "reportingComponent": value.get("reportingComponent", ""),
            "reportingController": value.get("reportingComponent", ""),
            "source": at(value, "source.component", "") or value.get("reportingComponent", ""),
            "type": value.get("type", ""),
        }


class NewEventStrategy(EventStrategy):
    """As group events.k8s.io names what it selects by (kubernetes pkg/apis/events/v1/conversion.go)."""

    selectable = EventStrategy.selectable - {"reportingComponent", "source"} | {"reportingController"}


class ServiceStrategy(Strategy):
    bad_name = staticmethod(bad_label)
    returns_deleted = True

    def default(self, value: Json) -> None:
        spec = value.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in spec.get("ports") or []:
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))

    def prepare_create(self, value: Json) -> None:
        value["status"] = {"loadBalancer": {}}
        if value["spec"]["type"] != "ExternalName":
            value["spec"].setdefault("ipFamilyPolicy", "SingleStack")
            value["spec"].setdefault("ipFamilies", ["IPv4"])

    def prepare_update(self, value: Json, old: Json) -> None:
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not value["spec"].get(field) and old["spec"].get(field):
                value["spec"][field] = old["spec"][field]

    def validate(self, value: Json) -> list[FieldProblem]:
        spec, problems = value["spec"], []
        known = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
        if spec["type"] not in known:
            problems.append(unsupported("spec.type", spec["type"], known))
        ports = spec.get("ports") or []
        if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
            problems.append(required("spec.ports"))
        for i, port in enumerate(ports):
            if not 1 <= port.get("port", 0) <= 65535:
                detail = "must be between 1 and 65535, inclusive"
                problems.append(invalid_value(f"spec.ports[{i}].port", port.get("port", 0), detail))
            target = port.get("targetPort")
            if isinstance(target, int) and not 1 <= target <= 65535:
                detail = "must be between 1 and 65535, inclusive"
                problems.append(invalid_value(f"spec.ports[{i}].targetPort", target, detail))
            if isinstance(target, str) and (why := bad_port_name(target)):
                problems.append(invalid_value(f"spec.ports[{i}].targetPort", target, why))
            if port["protocol"] not in ("SCTP", "TCP", "UDP"):
                problems.append(unsupported(f"spec.ports[{i}].protocol", port["protocol"], ("SCTP", "TCP", "UDP")))
            if len(ports) > 1 and not port.get("name"):
                problems.append(required(f"spec.ports[{i}].name"))
        return problems


class PriorityClassStrategy(Strategy):
    counts_generation = True

    def default(self, value: Json) -> None:
        value.setdefault("preemptionPolicy", "PreemptLowerPriority")
        value.setdefault("value", 0)

    def validate(self, value: Json) -> list[FieldProblem]:
        name, number = value["metadata"].get("name", ""), value.get("value", 0)
        if name.startswith("system-") and name not in ("system-cluster-critical", "system-node-critical"):
            return [
                forbidden_value(
                    "metadata.name", "priority class names with 'system-' prefix are reserved for system use only"
                )
            ]
        if number > 1_000_000_000 and not name.startswith("system-"):
            detail = "maximum allowed value of a user defined priority is 1000000000"
            return [forbidden_value("value", detail)]
        return []

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        return [
            forbidden_value(field.capitalize(), "may not be changed in an update.")
            for field in ("value", "preemptionPolicy")
            if value.get(field) != old.get(field)
        ]


class LeaseStrategy(Strategy):
    create_on_update = True
    unconditional_update = False

    def validate(self, value: Json) -> list[FieldProblem]:
        seconds = at(value, "spec.leaseDurationSeconds")
        if seconds is not None and seconds <= 0:
            return [invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")]
        return []


class RbacStrategy(Strategy):
    bad_name = staticmethod(bad_path_segment)
    create_on_update = True

    def default(self, value: Json) -> None:
        reference = value.get("roleRef")
        if reference is not None:
            reference.setdefault("apiGroup", "rbac.authorization.k8s.io")
        for subject in value.get("subjects") or []:
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", "rbac.authorization.k8s.io")

    def validate(self, value: Json) -> list[FieldProblem]:
        problems = [required(f"rules[{i}].verbs", "verbs must contain at least one value")
                    for i, rule in enumerate(value.get("rules") or []) if not rule.get("verbs")]  # fmt: skip
        return problems + _role_problems(value) if value.get("kind", "").endswith("Binding") else problems

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        if old.get("roleRef") is not None and value.get("roleRef") != old["roleRef"]:
            return [invalid_value("roleRef", value.get("roleRef"), "cannot change roleRef")]
        return []


_SUBJECTS = ("ServiceAccount", "User", "Group")


def _role_problems(binding: Json) -> list[FieldProblem]:
    """Validate that a binding names what it must: a role, and who gets it."""
    reference = binding.get("roleRef") or {}
    roles = ("ClusterRole",) if binding["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
    problems: list[FieldProblem] = []
    if reference.get("apiGroup", _RBAC) != _RBAC:
        problems.append(unsupported("roleRef.apiGroup", reference["apiGroup"], (_RBAC,)))
    if reference.get("kind") not in roles:
        problems.append(unsupported("roleRef.kind", reference.get("kind", ""), roles))
    if not reference.get("name"):
        problems.append(required("roleRef.name"))
    for i, subject in enumerate(binding.get("subjects") or []):
        if not subject.get("name"):
            problems.append(required(f"subjects[{i}].name"))
        if subject.get("kind") not in _SUBJECTS:
            problems.append(unsupported(f"subjects[{i}].kind", subject.get("kind", ""), _SUBJECTS))
        elif subject["kind"] == "ServiceAccount" and binding["kind"] == "ClusterRoleBinding" and not subject.get("namespace"):
            problems.append(required(f"subjects[{i}].namespace"))
    return problems


class EndpointsStrategy(Strategy):
    create_on_update = True


class EndpointSliceStrategy(Strategy):
    def default(self, value: Json) -> None:
        for port in value.get("ports") or ():
            port.setdefault("name", "")  # clients follow the pointer: absence is no name to them
            port.setdefault("protocol", "TCP")


class ReturnedStrategy(Strategy):
    """Kinds whose deletion answers with the object."""

    returns_deleted = True


class SigningRequestStrategy(Strategy):
    selectable = Strategy.selectable | {"spec.signerName"}

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"spec.signerName": at(value, "spec.signerName", "")}


class AddressStrategy(Strategy):
    """IPAddress: its name is the address."""

    bad_name = staticmethod(bad_address)


_RBAC = "rbac.authorization.k8s.io"
STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("", "Namespace"): NamespaceStrategy(),
    ("", "ConfigMap"): ConfigMapStrategy(),
    ("", "Secret"): SecretStrategy(),
    ("", "Event"): EventStrategy(),
    ("events.k8s.io", "Event"): NewEventStrategy(),
    ("", "Service"): ServiceStrategy(),
    ("", "Endpoints"): EndpointsStrategy(),
    ("discovery.k8s.io", "EndpointSlice"): EndpointSliceStrategy(),
    ("", "ServiceAccount"): ReturnedStrategy(),
    ("", "PodTemplate"): ReturnedStrategy(),
    ("networking.k8s.io", "IPAddress"): AddressStrategy(),
    ("certificates.k8s.io", "CertificateSigningRequest"): SigningRequestStrategy(),
    ("scheduling.k8s.io", "PriorityClass"): PriorityClassStrategy(),
    ("coordination.k8s.io", "Lease"): LeaseStrategy(),
    **{(_RBAC, kind): RbacStrategy() for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")},
}
