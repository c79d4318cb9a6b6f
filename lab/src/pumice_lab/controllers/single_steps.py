"""Kinds whose controllers take a single step: policies, quotas, aggregated roles, and kinds that nobody acts by."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.effects.vocabulary import Event, Patch
from pumice.ports.cluster import Resource
from pumice.wire import kinds
from pumice.wire.kinds import CLUSTER_ROLES, RESOURCE_QUOTAS
from pumice.wire.objects import selects
from pumice_lab.controllers.common import Action, Json, View, is_deleting, status_patch

# -- ValidatingAdmissionPolicy: its status says that it was looked at. Its expressions were checked when it was written

POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False)


def reconcile_policy(policy: View) -> list[Action]:
    status = {"observedGeneration": policy["metadata"].get("generation", 0), "typeChecking": {}}
    return [*status_patch(POLICIES, policy, status)]


# -- ResourceQuota: its status names the limits of its spec. What is used the API server itself counts ---------------


def reconcile_quota(quota: View) -> list[Action]:
    hard = quota["spec"].get("hard") or {}
    there = (quota.get("status") or {}).get("hard") or {}
    if is_deleting(quota) or hard == there:
        return []
    return [*status_patch(RESOURCE_QUOTAS, quota, {"hard": dict.fromkeys(there) | hard})]


# -- ClusterRoles that are put together of others by their labels (Kubernetes "Using RBAC Authorization") ------------


def reconcile_role(role: View, roles: Iterable[View]) -> list[Action]:
    """``roles``: all of them."""
    selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    meta, rules = role["metadata"], list[Json]()
    for other in sorted(roles, key=lambda each: str(each["metadata"]["name"])):
        labels = other["metadata"].get("labels") or {}
        if other["metadata"]["uid"] != meta["uid"] and any(selects(selector, labels) for selector in selectors):
            rules += [rule for rule in other.get("rules") or () if rule not in rules]
    if not selectors or rules == (role.get("rules") or []):
        return []
    return [Patch(CLUSTER_ROLES, "", meta["name"], {"rules": rules}, meta["uid"])]


# -- Kinds that are stored and that no controller acts by: an event on the object says so ----------------------------

UNSERVED = {
    Resource("autoscaling", "v2", "horizontalpodautoscalers"): ("HorizontalPodAutoscaler", "nothing is scaled by it"),
    Resource("networking.k8s.io", "v1", "ingresses"): ("Ingress", "nothing is let in by it"),
    kinds.NETWORK_POLICIES: ("NetworkPolicy", "nobody is kept from any pod by it"),
}


def reconcile_unserved(resource: Resource, obj: View) -> list[Action]:
    kind, consequence = UNSERVED[resource]
    about = {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind, "metadata": obj["metadata"]}
    return [Event.on(about, "Warning", "WithoutEffect", f"{kind}s have no effect in this cluster: {consequence}")]
