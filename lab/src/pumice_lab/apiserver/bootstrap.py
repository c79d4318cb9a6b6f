"""Objects that every cluster has from its first second."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from pumice_lab.apiserver.objects import Objects
from pumice_lab.apiserver.write_options import WriteOptions
from pumice_lab.network.services import SERVICES

Json = dict[str, Any]


_RBAC = "rbac.authorization.k8s.io"


NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
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


# -- The roles of Kubernetes' own components, read from ``component_roles.toml``, and who has them --------------------


_CONTROLLER = "system:controller:"


def component_roles() -> Iterator[tuple[str, list[Json], list[Json]]]:
    """Name, rules and subjects of each; nobody has some from the beginning."""
    table = dict(_component_table())
    bound: dict[str, list[str]] = table.pop("bound")
    for name, lines in table.items():
        own = [f"ServiceAccount kube-system/{name.removeprefix(_CONTROLLER)}"] if name.startswith(_CONTROLLER) else []
        yield name, [rule for line in lines for rule in _rules(line)], [_subject(text) for text in bound.get(name, own)]


@cache
def _component_table() -> Json:
    return tomllib.loads(files(__package__).joinpath("component_roles.toml").read_text("utf-8"))


def _rules(line: str) -> Iterator[Json]:
    verbs, _, rest = line.partition(": ")
    for what in rest.split():
        if what.startswith("/"):
            yield {"verbs": verbs.split(), "nonResourceURLs": [what]}
            continue
        resource, _, name = what.partition("=")
        group, _, plural = resource.partition("/")
        yield {"verbs": verbs.split(), "apiGroups": ["" if group == "core" else group], "resources": [plural],
               **({"resourceNames": [name]} if name else {})}  # fmt: skip


def _subject(text: str) -> Json:
    kind, _, name = text.partition(" ")
    if kind != "ServiceAccount":
        return {"apiGroup": _RBAC, "kind": kind, "name": name}
    namespace, _, name = name.partition("/")
    return {"kind": kind, "namespace": namespace, "name": name}


# -- default roles ----------------------------------------------------------------------------------------------------

# The roles that every cluster has (Kubernetes "Default roles and role bindings"), as far as its kinds are there.

_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_WORK = {
    "": ["configmaps", "endpoints", "persistentvolumeclaims", "pods", "replicationcontrollers", "replicationcontrollers/scale",
         "serviceaccounts", "services"],
    "apps": ["daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets",
             "statefulsets/scale"],
    "autoscaling": ["horizontalpodautoscalers"], "batch": ["cronjobs", "jobs"],
    "networking.k8s.io": ["ingresses", "networkpolicies"], "policy": ["poddisruptionbudgets"],
}  # fmt: skip
"""Resources that users of a namespace work with, by API group."""


def _rule(group: str, resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


VIEW = [*(_rule(group, resources, _READ) for group, resources in _WORK.items()),
        _rule("", ["bindings", "events", "limitranges", "namespaces", "pods/log", "pods/status", "resourcequotas"], _READ)]
EDIT = [*VIEW, *(_rule(group, resources, _WRITE) for group, resources in _WORK.items()),
        _rule("", ["secrets"], [*_READ, *_WRITE]), _rule("", ["events"], ["create", "patch", "update"]),
        _rule("", ["pods/attach", "pods/eviction", "pods/exec", "pods/portforward", "serviceaccounts/token"], ["create"])]
ADMIN = [*EDIT, _rule("rbac.authorization.k8s.io", ["rolebindings", "roles"], [*_READ, *_WRITE]),
         _rule("authorization.k8s.io", ["localsubjectaccessreviews"], ["create"])]
BASIC = [_rule("authorization.k8s.io", ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
         _rule("authentication.k8s.io", ["selfsubjectreviews"], ["create"])]
DISCOVERY = [{"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"], "verbs": ["get"]}]
ALL = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]

TOWARDS = "rbac.authorization.k8s.io/aggregate-to-"
"""Begins the label of a role whose rules another one has too."""
ROLES = {"cluster-admin": ALL, "admin": ADMIN, "edit": EDIT, "view": VIEW, "system:basic-user": BASIC,
         "system:discovery": DISCOVERY, "system:aggregate-to-admin": ADMIN, "system:aggregate-to-edit": EDIT,
         "system:aggregate-to-view": VIEW}  # fmt: skip
GATHERING = ("admin", "edit", "view")
GATHERED = {"edit": "admin", "view": "edit", **{f"system:aggregate-to-{role}": role for role in GATHERING}}
"""Role to the one that it is gathered into."""
BOUND_TO = {"cluster-admin": "system:masters", "system:basic-user": "system:authenticated",
            "system:discovery": "system:authenticated"}  # fmt: skip
"""Role to the group that has it in every cluster."""
