"""The kinds that the controllers look at, as tables: whose objects they want whole, whose owners, whose selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pumice.cluster.controllers import endpoints, replicaset, storage, unserved
from pumice.ports.cluster import Resource
from pumice.wire.kinds import (
    CLUSTER_ROLES,
    CRDS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
)

NODE_LEASES = "kube-node-lease"
RECONCILED = (DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, DAEMON_SETS, JOBS, CRON_JOBS, NAMESPACES, CLUSTER_ROLES,
              *unserved.KINDS)  # fmt: skip
"""Looked at whenever they change."""
FULL = (*RECONCILED, PODS, NODES, CRDS, LEASES, SERVICES, ENDPOINT_SLICES, ENDPOINTS, DISRUPTION_BUDGETS, *storage.KINDS)
_RBAC, _HOOKS = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_CORE = ("configmaps", "secrets", "serviceaccounts", "podtemplates", "limitranges", "resourcequotas", "events")
COLLECTED = (
    *(Resource("", "v1", plural) for plural in _CORE), Resource("apps", "v1", "controllerrevisions"),
    Resource(_RBAC, "v1", "roles"), Resource(_RBAC, "v1", "rolebindings"),
    *(Resource(group, "v1", plural, namespaced=False) for group, plural in (
        (_RBAC, "clusterrolebindings"), (_HOOKS, "mutatingwebhookconfigurations"),
        (_HOOKS, "validatingwebhookconfigurations"))),
)  # fmt: skip
"""Beside those: collected with their owners, and emptied with their namespace."""
OWNER_KINDS = {
    "ReplicaSet": REPLICA_SETS, "DaemonSet": DAEMON_SETS, "Job": JOBS, "Deployment": DEPLOYMENTS, "Service": SERVICES,
    "ReplicationController": REPLICATION_CONTROLLERS, "CronJob": CRON_JOBS,
}  # fmt: skip
SELECTORS: Mapping[Resource, Callable[[Mapping[str, Any]], dict[str, Any] | None]] = {
    SERVICES: endpoints.selector_of, DISRUPTION_BUDGETS: lambda budget: (budget.get("spec") or {}).get("selector"),
    REPLICA_SETS: replicaset.selector_of, REPLICATION_CONTROLLERS: replicaset.selector_of,
}  # fmt: skip
"""Who follows the pods that it selects."""
