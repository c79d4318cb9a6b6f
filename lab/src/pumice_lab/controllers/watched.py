"""The kinds that the controllers look at, as tables: whose objects they want whole, whose owners, whose selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pumice.ports.cluster import Resource
from pumice.wire import kinds
from pumice_lab.controllers import endpoints, job, policies, replicaset, revisions, statefulset, storage, unserved

NODE_LEASES = "kube-node-lease"
RECONCILED = (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.REPLICATION_CONTROLLERS, kinds.DAEMON_SETS, kinds.JOBS,
              kinds.CRON_JOBS, kinds.STATEFUL_SETS, kinds.NAMESPACES, kinds.CLUSTER_ROLES, policies.POLICIES,
              kinds.RESOURCE_QUOTAS, *unserved.KINDS)  # fmt: skip
"""Looked at whenever they change."""
FULL = (*RECONCILED, kinds.PODS, kinds.NODES, kinds.CRDS, kinds.LEASES, kinds.SERVICES, kinds.ENDPOINT_SLICES, kinds.ENDPOINTS,
        kinds.DISRUPTION_BUDGETS, revisions.REVISIONS, *storage.KINDS)  # fmt: skip
_RBAC, _HOOKS = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_CORE = ("configmaps", "secrets", "serviceaccounts", "podtemplates", "limitranges", "events")
COLLECTED = (
    *(Resource("", "v1", plural) for plural in _CORE), Resource(_RBAC, "v1", "roles"), Resource(_RBAC, "v1", "rolebindings"),
    *(Resource(group, "v1", plural, namespaced=False) for group, plural in (
        (_RBAC, "clusterrolebindings"), (_HOOKS, "mutatingwebhookconfigurations"),
        (_HOOKS, "validatingwebhookconfigurations"))),
)  # fmt: skip
"""Beside those: collected with their owners, and emptied with their namespace."""
OWNER_KINDS = {
    "ReplicaSet": kinds.REPLICA_SETS, "DaemonSet": kinds.DAEMON_SETS, "Job": kinds.JOBS, "Deployment": kinds.DEPLOYMENTS,
    "Service": kinds.SERVICES, "ReplicationController": kinds.REPLICATION_CONTROLLERS, "CronJob": kinds.CRON_JOBS,
    "StatefulSet": kinds.STATEFUL_SETS,
}  # fmt: skip
SELECTORS: Mapping[Resource, Callable[[Mapping[str, Any]], dict[str, Any] | None]] = {
    kinds.SERVICES: endpoints.selector_of, kinds.DISRUPTION_BUDGETS: lambda budget: (budget.get("spec") or {}).get("selector"),
    kinds.REPLICA_SETS: replicaset.selector_of, kinds.REPLICATION_CONTROLLERS: replicaset.selector_of,
    kinds.STATEFUL_SETS: statefulset.selector_of, kinds.JOBS: job.selector_of,
}  # fmt: skip
"""Kinds whose controllers follow the pods that they select."""
