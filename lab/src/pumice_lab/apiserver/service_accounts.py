"""A pod's share of its service account: pull secrets and, unless it is told not to, a token in a volume of its containers
(Kubernetes "Configure Service Accounts for Pods"; plugin/pkg/admission/serviceaccount of its source).
"""

from __future__ import annotations

from typing import Any

from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.errors import forbidden

Json = dict[str, Any]
_VOLUME = "kube-api-access-"
_PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
_WARNED_SECONDS = 3607  # an hour, and seven seconds by which such tokens are told from those that somebody asked for


def give_account(backend: Backend, pod: Json) -> None:
    """Names the account and mounts its token. Raises Forbidden where it is not there; the default one may come a moment later."""
    spec, meta = pod["spec"], pod["metadata"]
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    name, namespace = spec["serviceAccountName"], meta["namespace"]
    account = backend.read("v1/serviceaccounts", namespace, name)
    if account is None and name != "default":
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden("", "pods", meta.get("name", ""), why)
    if "kubernetes.io/config.mirror" in (meta.get("annotations") or {}) or not backend.mounts_tokens:
        return
    account = account or {}
    if spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True)):
        _mount_token(backend, spec)
    if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = account["imagePullSecrets"]


def _mount_token(backend: Backend, spec: Json) -> None:
    """A mount at the usual place, in each container that has none there of its own; a volume that is named as ours is taken."""
    own = next((v["name"] for v in spec.get("volumes") or () if v.get("name", "").startswith(_VOLUME)), "")
    name, mounted = own or backend.name_from(_VOLUME), False
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        mounts = container.get("volumeMounts") or []
        if not any(mount.get("mountPath") == _PLACE for mount in mounts):
            container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": _PLACE}]
            mounted = True
    if mounted and not own:
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, "projected": {"defaultMode": 0o644, "sources": [
            {"serviceAccountToken": {"expirationSeconds": _WARNED_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}]  # fmt: skip
