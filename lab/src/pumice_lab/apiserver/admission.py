"""Rules of a write that look at other objects: the namespace must be there, a priority class gives a priority, and so on.

The policies and webhooks of the cluster's users come after these (``policies``, ``webhooks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.errors import FieldProblem, forbidden, forbidden_value, invalid, invalid_value, not_found
from pumice_lab.apiserver.quota_usage import count
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.storage import Storage
from pumice_lab.apiserver.strategies.resources import sum_of_pod
from pumice_lab.network.services import SERVICES

Json = dict[str, Any]


_CLASSES = "scheduling.k8s.io/priorityclasses"
_FOREVER = ("default", "kube-system", "kube-public", "kube-node-lease")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_CLAIMS = (("resource.k8s.io", "ResourceClaim"), ("resource.k8s.io", "ResourceClaimTemplate"))
_ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_UNREADY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def on_create(backend: Backend, kind: Kind, value: Json) -> None:
    """Raises Forbidden or NotFound, or completes the object."""
    if kind.namespaced:
        _namespace(backend, kind, value)
    if kind.id == ("", "Pod"):
        _priority(backend, value)
        _tolerations(value["spec"])
        give_account(backend, value)
        _runtime_class(backend, value)
        limit(backend, kind.plural, value)
    elif kind.id == ("", "PersistentVolumeClaim"):
        limit(backend, kind.plural, value)
        _default_class(backend, value["spec"])
        _protect(value, "kubernetes.io/pvc-protection")
    elif kind.id == ("", "PersistentVolume"):
        _protect(value, "kubernetes.io/pv-protection")
    elif kind.id == ("", "Service"):
        if problems := give_addresses(backend.storage, value):
            raise invalid("", "Service", value["metadata"].get("name", ""), problems)
    elif kind.id in _CLAIMS:
        if problems := _admin_access(backend, value):
            raise invalid(*kind.id, value["metadata"].get("name", ""), problems)
    elif kind.id == ("scheduling.k8s.io", "PriorityClass"):
        _one_default(backend, value)
    elif kind.id == ("", "ResourceQuota"):
        count(backend.storage, value)


def _admin_access(backend: Backend, value: Json) -> list[FieldProblem]:
    """Whoever looks at devices that others have does so from a namespace that was labelled for it."""
    spec = value.get("spec") or {}
    requests = ((spec.get("spec") or spec).get("devices") or {}).get("requests") or ()
    asking = next((at for at, one in enumerate(requests) if (one.get("exactly") or {}).get("adminAccess")), None)
    if asking is None:
        return []
    namespace = backend.storage.get("v1/namespaces", "", value["metadata"]["namespace"])
    labels = (namespace.value()["metadata"].get("labels") or {}) if namespace is not None else {}
    if labels.get(_ADMIN_ACCESS) == "true":
        return []
    why = f"admin access to devices requires the `{_ADMIN_ACCESS}: true` label on the containing namespace"
    return [forbidden_value(f"spec.devices.requests[{asking}].adminAccess", why)]


def on_update(backend: Backend, kind: Kind, value: Json, subresource: str) -> None:
    """Completes what is about to replace an object."""
    if kind.id == ("", "ResourceQuota"):
        count(backend.storage, value, (value.get("status") or {}).get("hard") or None if subresource == "status" else None)


def on_delete(kind: Kind, name: str) -> None:
    if kind.id == ("", "Namespace") and name in _FOREVER:
        raise forbidden(kind.group, kind.plural, name, "this namespace may not be deleted")


def _namespace(backend: Backend, kind: Kind, value: Json) -> None:
    name = value["metadata"]["namespace"]
    namespace = backend.storage.get("v1/namespaces", "", name)
    if namespace is None:
        raise not_found("", "namespaces", name)
    if b'"phase":"Terminating"' in namespace.data and namespace.value()["status"].get("phase") == "Terminating":
        why = f"unable to create new content in namespace {name} because it is being terminated"
        problem = forbidden(kind.group, kind.plural, value["metadata"].get("name", ""), why)
        problem.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise problem


def _priority(backend: Backend, value: Json) -> None:
    """spec.priority and preemptionPolicy from the class named, or from the default class ("Pod Priority and Preemption")."""
    spec, name = value["spec"], value["spec"].get("priorityClassName", "")
    found: Json | None = None
    if name:
        found = backend.read(_CLASSES, "", name)
        if found is None:
            raise forbidden("", "pods", value["metadata"].get("name", ""), f"no PriorityClass with name {name} was found")
    else:
        defaults = [c.value() for c in backend.storage.objects(_CLASSES) if b'"globalDefault":true' in c.data]
        found = min(defaults, key=lambda c: c.get("value", 0), default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    priority = found.get("value", 0) if found else 0
    if spec.get("priority", priority) != priority:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden("", "pods", value["metadata"].get("name", ""), why)
    spec["priority"] = priority
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def _tolerations(spec: Json) -> None:
    """Five minutes of grace on a node that is not ready or not reachable (DefaultTolerationSeconds)."""
    have = spec.get("tolerations") or []
    for key in _UNREADY:
        if not any(t.get("key", key) in (key, "") and t.get("effect", "NoExecute") in ("NoExecute", "") for t in have):
            have.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = have


def _runtime_class(backend: Backend, value: Json) -> None:
    """The class that a pod names has to be there; what it costs and where it runs becomes the pod's ("Runtime Class")."""
    spec, name = value["spec"], value["spec"].get("runtimeClassName")
    own: Json = {}
    if name:
        found = backend.read("node.k8s.io/runtimeclasses", "", name)
        if found is None:
            raise forbidden("", "pods", value["metadata"].get("name", ""), f'pod rejected: RuntimeClass "{name}" not found')
        own = found
    overhead = (own.get("overhead") or {}).get("podFixed")
    if spec.get("overhead") and spec["overhead"] != overhead:
        why = "Pod's Overhead doesn't match RuntimeClass's defined Overhead" if overhead else \
              "Pod Overhead set without corresponding RuntimeClass defined Overhead"  # fmt: skip
        raise forbidden("", "pods", value["metadata"].get("name", ""), f"pod rejected: {why}")
    if overhead:
        spec["overhead"] = overhead
    scheduling = own.get("scheduling") or {}
    labels, wanted = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, label in labels.items():
        if wanted.get(key, label) != label:
            why = (f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {label}; "
                   f"pod.spec.nodeSelector[{key}] = {wanted[key]}")  # fmt: skip
            raise forbidden("", "pods", value["metadata"].get("name", ""), why)
    if labels:
        spec["nodeSelector"] = wanted | labels
    spec["tolerations"] += [t for t in scheduling.get("tolerations") or () if t not in spec["tolerations"]]


def _default_class(backend: Backend, spec: Json) -> None:
    """The newest of those that are marked so (DefaultStorageClass)."""
    if "storageClassName" not in spec:
        classes = [c.value()["metadata"] for c in backend.storage.objects("storage.k8s.io/storageclasses")]
        marked = [meta for meta in classes if (meta.get("annotations") or {}).get(_DEFAULT_CLASS) == "true"]
        by_name = sorted(marked, key=lambda meta: str(meta["name"]))
        if newest := max(by_name, key=lambda meta: str(meta["creationTimestamp"]), default=None):
            spec["storageClassName"] = newest["name"]


def _protect(value: Json, finalizer: str) -> None:
    """Add the finalizer that keeps an object as long as it is used (StorageObjectInUseProtection)."""
    have = value["metadata"].get("finalizers") or []
    if finalizer not in have:
        value["metadata"]["finalizers"] = [*have, finalizer]


def _one_default(backend: Backend, value: Json) -> None:
    if not value.get("globalDefault"):
        return
    for other in backend.storage.objects(_CLASSES):
        if other.value().get("globalDefault"):
            why = f"PriorityClass {other.name} is already marked as default. Only one default can exist"
            raise forbidden("scheduling.k8s.io", "priorityclasses", value["metadata"].get("name", ""), why)


# -- LimitRanges of a namespace, applied to a new pod or claim --------------------------------------------------------

# Defaults where it leaves them out, then bounds and ratios. Rules: Kubernetes "Limit Ranges"
# (plugin/pkg/admission/limitranger/admission.go).

Amounts = dict[str, str]
_NOTE = "kubernetes.io/limit-ranger"


def limit(backend: Backend, plural: str, value: Json) -> None:
    """Raises Forbidden, or completes a pod."""
    ranges = backend.storage.objects("v1/limitranges", value["metadata"]["namespace"])
    rows = [row for stored in ranges for row in (stored.value().get("spec") or {}).get("limits") or []]
    if not rows:
        return
    if plural == "pods":
        _complete(value, [row for row in rows if row.get("type") == "Container"])
    problems = [problem for row in rows for problem in _problems(row, plural, value["spec"])]
    if problems:
        why = problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
        raise forbidden("", plural, value["metadata"].get("name", ""), why)


def _complete(pod: Json, rows: list[Json]) -> None:
    said: list[str] = []
    for field, kind in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for target, source, word in (("requests", "defaultRequest", "request"), ("limits", "default", "limit")):
                have = resources.get(target) or {}
                new = {name: amount for row in rows for name, amount in (row.get(source) or {}).items() if name not in have}
                if new:
                    resources[target] = have | new
                    said.append(f"{', '.join(sorted(new))} {word} for {kind} {container.get('name', '')}")
    if said:
        pod["metadata"].setdefault("annotations", {})[_NOTE] = "LimitRanger plugin set: " + "; ".join(said)


def _problems(row: Json, plural: str, spec: Json) -> Iterator[str]:
    kind = row.get("type")
    if kind == "PersistentVolumeClaim" and plural == "persistentvolumeclaims":
        # What a claim asks for is all that counts, so it stands for its limit too.
        requests = (spec.get("resources") or {}).get("requests") or {}
        yield from _beyond({**row, "maxLimitRequestRatio": None}, requests, requests)
    elif kind == "Container" and plural == "pods":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            yield from _beyond(row, resources.get("requests") or {}, resources.get("limits") or {})
    elif kind == "Pod" and plural == "pods":
        yield from _beyond(row, sum_of_pod(spec, "requests"), sum_of_pod(spec, "limits"))


def _beyond(row: Json, requests: Amounts, limits: Amounts) -> Iterable[str]:
    kind = row["type"]
    for name, bound in (row.get("min") or {}).items():
        least = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{least}.  No request is specified"
        elif parse_quantity(requests[name]) < parse_quantity(bound):
            yield f"{least}, but request is {requests[name]}"
        elif name in limits and parse_quantity(limits[name]) < parse_quantity(bound):
            yield f"{least}, but limit is {limits[name]}"
    for name, bound in (row.get("max") or {}).items():
        most = f"maximum {name} usage per {kind} is {bound}"
        if name not in limits:
            yield f"{most}.  No {'request' if kind == 'PersistentVolumeClaim' else 'limit'} is specified"
        elif parse_quantity(limits[name]) > parse_quantity(bound):
            yield f"{most}, but {'request' if kind == 'PersistentVolumeClaim' else 'limit'} is {limits[name]}"
        elif name in requests and parse_quantity(requests[name]) > parse_quantity(bound):
            yield f"{most}, but request is {requests[name]}"
    for name, bound in (row.get("maxLimitRequestRatio") or {}).items():
        most = f"{name} max limit to request ratio per {kind} is {bound}"
        asked, at_most = parse_quantity(requests.get(name, "0")), parse_quantity(limits.get(name, "0"))
        if not asked or not at_most:
            word = "limit" if asked else "request"
            yield f"{most}, but no {word} is specified or {word} is 0"
        elif at_most / asked > parse_quantity(bound):
            yield f"{most}, but provided ratio is {float(at_most / asked):f}"


# -- A pod's share of its service account -----------------------------------------------------------------------------

# Pull secrets and, unless it is told not to, a token in a volume of its containers (Kubernetes "Configure Service Accounts for
# Pods"; plugin/pkg/admission/serviceaccount of its source).

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


# -- Cluster IPs and node ports of services --------------------------------------------------------------------------

# Where they lead is the service proxy's; nothing forwards node ports, which are given out because clients count on
# them.


NODE_PORTS = range(30000, 32768)


def give_addresses(storage: Storage, service: Json) -> list[FieldProblem]:
    """Fills in what the service's type calls for. Problems: an address or port that is taken, or none left."""
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return []
    others = [s.value()["spec"] for s in storage.objects("v1/services") if not _same(s.namespace, s.name, service)]
    problems = _cluster_ip(spec, {ip for other in others for ip in other.get("clusterIPs") or []})
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        problems += _node_ports(
            spec, {p["nodePort"] for o in others for p in o.get("ports") or [] if p.get("nodePort")}
        )
    return problems


def _same(namespace: str, name: str, service: Json) -> bool:
    return (namespace, name) == (service["metadata"].get("namespace"), service["metadata"].get("name"))


def _cluster_ip(spec: Json, taken: set[str]) -> list[FieldProblem]:
    asked = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or []), "")
    if asked and asked != "None" and asked in taken:
        detail = "failed to allocate IP: provided IP is already allocated"
        return [invalid_value("spec.clusterIPs", [asked], detail)]
    if not asked:
        asked = next((ip for ip in _free() if ip not in taken), "")
        if not asked:
            return [invalid_value("spec.clusterIPs", [], f"failed to allocate IP: range {SERVICES} is full")]
    spec["clusterIP"], spec["clusterIPs"] = asked, [asked]
    return []


def _free() -> Iterator[str]:
    hosts = SERVICES.hosts()
    for _ in range(10):  # the first few are for well-known services, as in Kubernetes
        next(hosts)
    return (str(ip) for ip in hosts)


def _node_ports(spec: Json, taken: set[int]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for i, port in enumerate(spec.get("ports") or []):
        asked = port.get("nodePort")
        if asked and (asked in taken or asked not in NODE_PORTS):
            why = "provided port is already allocated" if asked in taken else "provided port is not in the valid range"
            problems.append(invalid_value(f"spec.ports[{i}].nodePort", asked, why))
        port["nodePort"] = asked or next((p for p in NODE_PORTS if p not in taken), 0)
        taken.add(port["nodePort"])
    return problems
