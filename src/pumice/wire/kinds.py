"""Kubernetes' own kinds, and where the API server has them."""

from __future__ import annotations

from typing import Any, Final

from pumice.ports.cluster import Resource
from pumice.wire.kubernetes import DEVICES, EXTENSIONS, RIGHTS, STORAGE
from pumice.wire.names import SCHEDULING_GROUP

PODS: Final = Resource("", "v1", "pods")
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False)
EVENTS: Final = Resource("", "v1", "events")
CONFIGMAPS: Final = Resource("", "v1", "configmaps")
SECRETS: Final = Resource("", "v1", "secrets")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts")
SERVICES: Final = Resource("", "v1", "services")
ENDPOINTS: Final = Resource("", "v1", "endpoints")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices")
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas")
REPLICATION_CONTROLLERS: Final = Resource("", "v1", "replicationcontrollers")
PERSISTENT_VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims")
PERSISTENT_VOLUMES: Final = Resource("", "v1", "persistentvolumes", namespaced=False)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets")
JOBS: Final = Resource("batch", "v1", "jobs")
CRON_JOBS: Final = Resource("batch", "v1", "cronjobs")
STORAGE_CLASSES: Final = Resource(STORAGE, "v1", "storageclasses", namespaced=False)
CSI_NODES: Final = Resource(STORAGE, "v1", "csinodes", namespaced=False)
CSI_DRIVERS: Final = Resource(STORAGE, "v1", "csidrivers", namespaced=False)
CSI_STORAGE_CAPACITIES: Final = Resource(STORAGE, "v1", "csistoragecapacities")
VOLUME_ATTACHMENTS: Final = Resource(STORAGE, "v1", "volumeattachments", namespaced=False)
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets")
PRIORITY_CLASSES: Final = Resource(SCHEDULING_GROUP, "v1", "priorityclasses", namespaced=False)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
CLUSTER_ROLES: Final = Resource(RIGHTS, "v1", "clusterroles", namespaced=False)
CRDS: Final = Resource(EXTENSIONS, "v1", "customresourcedefinitions", namespaced=False)
RESOURCE_CLAIMS: Final = Resource(DEVICES, "v1", "resourceclaims")
RESOURCE_CLAIM_TEMPLATES: Final = Resource(DEVICES, "v1", "resourceclaimtemplates")
RESOURCE_SLICES: Final = Resource(DEVICES, "v1", "resourceslices", namespaced=False)
DEVICE_CLASSES: Final = Resource(DEVICES, "v1", "deviceclasses", namespaced=False)


def eviction(namespace: str, name: str, uid: str) -> dict[str, Any]:
    """Return what asks the Eviction API to delete that very pod."""
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}}}  # fmt: skip
