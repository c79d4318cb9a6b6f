"""ClusterRoles that are put together of others by their labels (Kubernetes "Using RBAC Authorization")."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.effects.vocabulary import Patch
from pumice.wire.kinds import CLUSTER_ROLES
from pumice_lab.controllers.actions import Action, Json, View
from pumice_lab.requirements import matches_selector


def reconcile(role: View, roles: Iterable[View]) -> list[Action]:
    """``roles``: all of them."""
    selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    meta, rules = role["metadata"], list[Json]()
    for other in sorted(roles, key=lambda each: str(each["metadata"]["name"])):
        labels = other["metadata"].get("labels") or {}
        if other["metadata"]["uid"] != meta["uid"] and any(matches_selector(selector, labels) for selector in selectors):
            rules += [rule for rule in other.get("rules") or () if rule not in rules]
    if not selectors or rules == (role.get("rules") or []):
        return []
    return [Patch(CLUSTER_ROLES, "", meta["name"], {"rules": rules}, meta["uid"])]
