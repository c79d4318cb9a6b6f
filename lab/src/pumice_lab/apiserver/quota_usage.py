"""Usage of quotas by an object, and the quotas that it concerns. Pure.

Sources: Kubernetes "Resource Quotas"; pkg/quota/v1/evaluator/core of its source (pods.go, services.go and
persistent_volume_claims.go).
"""

from __future__ import annotations

from typing import Any, Final

from pumice_lab.apiserver.strategies.resources import Amounts, is_extended, quality, sum_of_pod, summed
from pumice_lab.requirements import matches_selector

Json = dict[str, Any]
PODS, SERVICES, CLAIMS = "v1/pods", "v1/services", "v1/persistentvolumeclaims"
_BY_NAME: Final = (PODS, SERVICES, CLAIMS, "v1/configmaps", "v1/replicationcontrollers", "v1/resourcequotas", "v1/secrets")
"""Resources that are counted by their plain name, too."""
_SPENT: Final = ("cpu", "memory", "ephemeral-storage")
_PER_CONTAINER: Final = frozenset(f"{way}{name}" for way in ("", "requests.", "limits.") for name in ("cpu", "memory"))
_CLASS: Final = ".storageclass.storage.k8s.io/"


def usage(store: str, value: Json) -> Amounts:
    """By the names that a quota gives them. Of a pod that is over nothing is counted but that it is there."""
    group, _, plural = store.partition("/")
    found = {f"count/{plural}" if group == "v1" else f"count/{plural}.{group}": "1"}
    if store == PODS:
        over = (value.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        return found if over else found | _of_pod(value["spec"])
    if store in _BY_NAME:
        found[plural] = "1"
    if store == SERVICES:
        found |= _of_service(value["spec"])
    elif store == CLAIMS:
        found |= _of_claim(value["spec"])
    return found


def stores(name: str) -> tuple[str, ...]:
    """Where the objects lie that use what a quota calls by this name."""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return (f"{group or 'v1'}/{plural}",)
    if name == "requests.storage" or _CLASS in name:
        return (CLAIMS,)
    return (f"v1/{name.partition('.')[0]}",) if f"v1/{name.partition('.')[0]}" in _BY_NAME else (PODS,)


def unsaid(store: str, value: Json, names: set[str]) -> str:
    """Which containers do not say what they need, where a quota wants that of each; empty when all do."""
    if store != PODS:
        return ""
    spec, missing = value["spec"], dict[str, set[str]]()
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        said = _spent(resources.get("requests") or {}, resources.get("limits") or {})
        for name in (names & _PER_CONTAINER) - said.keys():
            missing.setdefault(name, set()).add(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def in_scope(quota: Json, store: str, value: Json) -> bool:
    """Return True if a quota is about an object: one with scopes is about pods that are in all of them."""
    spec = quota["spec"]
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return not scopes or (store == PODS and all(_in(scope, value["spec"]) for scope in scopes))


def _in(scope: Json, pod: Json) -> bool:
    match scope["scopeName"]:
        case "Terminating":
            return pod.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return pod.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return quality(pod) == "BestEffort"
        case "NotBestEffort":
            return quality(pod) != "BestEffort"
        case "PriorityClass" as key:
            labels = {key: pod["priorityClassName"]} if pod.get("priorityClassName") else {}
            return matches_selector({"matchExpressions": [{**scope, "key": key}]}, labels)
        case "CrossNamespacePodAffinity":
            return any("namespaceSelector" in term or term.get("namespaces") for term in _terms(pod.get("affinity") or {}))
    return False


def _terms(affinity: Json) -> list[Json]:
    found: list[Json] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        found += rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        found += (term["podAffinityTerm"] for term in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ())
    return found


def _of_pod(spec: Json) -> Amounts:
    overhead = spec.get("overhead") or {}
    requests, limits = sum_of_pod(spec, "requests"), sum_of_pod(spec, "limits")
    bounded = {name: amount for name, amount in overhead.items() if name in limits}
    return {"pods": "1"} | _spent(summed(requests, overhead), summed(limits, bounded))


def _spent(requests: Amounts, limits: Amounts) -> Amounts:
    found = {f"limits.{name}": limits[name] for name in _SPENT if name in limits}
    for name, amount in requests.items():
        if name in _SPENT or name.startswith("hugepages-"):
            found |= {name: amount, f"requests.{name}": amount}
        elif is_extended(name):
            found[f"requests.{name}"] = amount
    return found


def _of_service(spec: Json) -> Amounts:
    ports = spec.get("ports") or ()
    balanced = spec.get("type") == "LoadBalancer"
    if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    opened = len(ports) if balanced or spec.get("type") == "NodePort" else 0
    return {"services.nodeports": str(opened), "services.loadbalancers": str(int(balanced))}


def _of_claim(spec: Json) -> Amounts:
    found = {"requests.storage": ((spec.get("resources") or {}).get("requests") or {}).get("storage", "0")}
    if name := spec.get("storageClassName"):
        found |= {f"{name}{_CLASS}persistentvolumeclaims": "1", f"{name}{_CLASS}requests.storage": found["requests.storage"]}
    return found
