"""Namespaces: emptied before they go; each living one has the service account and the CA that pods expect."""

from __future__ import annotations

from collections.abc import Iterable

from pumice.cluster.controllers.actions import Action, Create, Delete, Finalize, LookAgain, View
from pumice.cluster.controllers.common import is_deleting
from pumice.cluster.controllers.garbage import Vertex
from pumice.ports.cluster import Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
CONFIG_MAPS = Resource("", "v1", "configmaps")
ROOT_CA = "kube-root-ca.crt"
RETRY = 0.2


def reconcile(namespace: View, content: Iterable[Vertex], root_ca: str) -> list[Action]:
    """``content``: every object in it; ``root_ca``: PEM, empty when pods get none."""
    name = namespace["metadata"]["name"]
    if is_deleting(namespace):
        if not (namespace.get("spec") or {}).get("finalizers"):
            return []
        left = list(content)
        if not left:
            return [Finalize({**namespace, "spec": {"finalizers": []}})]
        return [*(Delete(v.resource, name, v.meta.name, v.meta.uid, "Background") for v in left if not v.deleting),
                LookAgain(RETRY)]
    present = {(v.resource.plural, v.meta.name) for v in content if v.resource in (SERVICE_ACCOUNTS, CONFIG_MAPS)}
    actions: list[Action] = []
    if ("serviceaccounts", "default") not in present:
        actions.append(Create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount",
                                                 "metadata": {"name": "default", "namespace": name}}))
    if root_ca and ("configmaps", ROOT_CA) not in present:
        actions.append(Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": root_ca},
                                            "metadata": {"name": ROOT_CA, "namespace": name}}))
    return actions
