"""Objects that every cluster has from its first second."""

from __future__ import annotations

import copy
from typing import Any

from pumice_lab.apiserver.component_roles import component_roles
from pumice_lab.apiserver.default_roles import BOUND_TO, GATHERED, GATHERING, ROLES, TOWARDS
from pumice_lab.apiserver.objects import Objects
from pumice_lab.apiserver.write_options import WriteOptions
from pumice_lab.network.services import SERVICES

Json = dict[str, Any]

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_RBAC = "rbac.authorization.k8s.io"
KUBERNETES: Json = {  # clients and test suites take a cluster without it for one that has not started
    "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
    "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]},
}
_OPTIONS = WriteOptions(manager="kube-apiserver")


def ensure(objects: Objects) -> None:
    """Creates what is missing; what is there stays as it is, but for what can only be there by a fault."""
    _drop_misplaced(objects)
    for name in NAMESPACES:
        _make(objects, "", "v1", "namespaces", {"metadata": {"name": name}})
    _make(objects, "", "v1", "services", KUBERNETES, "default")
    _make(objects, "networking.k8s.io", "v1", "servicecidrs", {
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": [str(SERVICES)]},
    })  # fmt: skip
    for name, priority in _SYSTEM.items():
        _make(objects, "scheduling.k8s.io", "v1", "priorityclasses", {
            "metadata": {"name": name}, "value": priority,
            "description": "Used for system critical pods.",
        })  # fmt: skip
    for name, rules in ROLES.items():
        metadata = {"name": name, **({"labels": {TOWARDS + GATHERED[name]: "true"}} if name in GATHERED else {})}
        selector = {"matchLabels": {TOWARDS + name: "true"}}
        gathers = {"aggregationRule": {"clusterRoleSelectors": [selector]}} if name in GATHERING else {}
        _make(objects, _RBAC, "v1", "clusterroles", {"metadata": metadata, "rules": rules, **gathers})
    for role, group in BOUND_TO.items():
        _bind(objects, role, [{"apiGroup": _RBAC, "kind": "Group", "name": group}])
    for name, rules, subjects in component_roles():
        _make(objects, _RBAC, "v1", "clusterroles", {"metadata": {"name": name}, "rules": rules})
        if subjects:
            _bind(objects, name, subjects)


def _drop_misplaced(objects: Objects) -> None:
    """Removes objects of cluster-scoped kinds that lie in a namespace, where earlier versions let its editors write them."""
    for kind in objects.backend.registry:
        if not kind.namespaced and not kind.virtual:
            for stored in objects.storage.objects(kind.storage):
                if stored.namespace:
                    objects.storage.remove(kind.storage, stored.namespace, stored.name, stored.value())


def _bind(objects: Objects, role: str, subjects: list[Json]) -> None:
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    _make(objects, _RBAC, "v1", "clusterrolebindings", {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects})


def _make(objects: Objects, group: str, version: str, plural: str, value: Json, namespace: str = "") -> None:
    kind = objects.backend.registry.find(group, version, plural)
    assert kind is not None
    if objects.storage.get(kind.storage, namespace, value["metadata"]["name"]) is None:
        new = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(value)}
        objects.create(kind, namespace, new, _OPTIONS)
