"""Namespaces: emptied before they go, pods before what they use; each living one has the service account and the CA that pods
expect. What is left is told in the status (Kubernetes "Namespaces", and pkg/controller/namespace/deletion of its source).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pumice.effects.vocabulary import Create, Delete, Patch, Requeue
from pumice.wire.kinds import CONFIGMAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from pumice_lab.controllers.common import BURST, Action, Finalize, Json, View, is_deleting, status_patch, with_condition
from pumice_lab.controllers.garbage import Vertex

ROOT_CA = "kube-root-ca.crt"
RETRY = 0.2


def reconcile(namespace: View, content: Iterable[Vertex], root_ca: str, now: float) -> list[Action]:
    """``content``: every object in it; ``root_ca``: PEM, empty when pods get none."""
    name = namespace["metadata"]["name"]
    if is_deleting(namespace):
        if not (namespace.get("spec") or {}).get("finalizers"):
            return []
        left = list(content)
        if not left:
            return [Finalize({**namespace, "spec": {"finalizers": []}})]
        first = [v for v in [v for v in left if v.resource == PODS] or left if not v.deleting][:BURST]
        return [*(Delete(v.resource, name, v.metadata.name, v.metadata.uid, "Background") for v in first),
                *status_patch(NAMESPACES, namespace, {"conditions": _conditions(namespace, left, now)}), Requeue(RETRY)]
    present = {(v.resource.plural, v.metadata.name) for v in content if v.resource in (SERVICE_ACCOUNTS, CONFIGMAPS)}
    actions: list[Action] = []
    if ("serviceaccounts", "default") not in present:
        actions.append(Create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount",
                                                 "metadata": {"name": "default", "namespace": name}}))
    if root_ca and ("configmaps", ROOT_CA) not in present:
        actions.append(Create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": root_ca},
                                           "metadata": {"name": ROOT_CA, "namespace": name}}))
    return actions


def published(namespace: str, root_ca: str) -> list[Action]:
    """The certificate as it was given to the namespace: whoever changed it there finds it as before."""
    return [Patch(CONFIGMAPS, namespace, ROOT_CA, {"data": {"ca.crt": root_ca}})] if root_ca else []


def _conditions(namespace: View, left: list[Vertex], now: float) -> list[Json]:
    kinds = Counter(f"{v.resource.plural}.{v.resource.group}" for v in left)
    held = Counter(finalizer for v in left for finalizer in v.metadata.finalizers)
    remaining = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(kinds.items()))
    finalizers = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(held.items()))
    reported = (
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions",
         "All legacy kube types successfully parsed"),
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted",
         "All content successfully deleted, may be waiting on finalization"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {remaining}"),
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain",
         f"Some content in the namespace has finalizers remaining: {finalizers}") if held else
        ("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    )  # fmt: skip
    for kind, status, reason, message in reported:
        namespace = {**namespace, "status": {"conditions": with_condition(namespace, kind, status, reason, message, now)}}
    found: list[Json] = namespace["status"]["conditions"]
    return sorted(found, key=lambda each: str(each["type"]))
