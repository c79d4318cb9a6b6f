"""The roles that every cluster has (Kubernetes "Default roles and role bindings"), as far as its kinds are there."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

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
