"""Usage of quotas by an object, and the quotas that it concerns. Pure.

Sources: Kubernetes "Resource Quotas"; pkg/quota/v1/evaluator/core of its source (pods.go, services.go and
persistent_volume_claims.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pumice.wire.objects import selects
from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import forbidden
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.resource_store import Stored, StoreEvent
from pumice_lab.apiserver.schema.quantity import combined
from pumice_lab.apiserver.storage import Storage
from pumice_lab.apiserver.strategies.resources import Amounts, is_extended, quality, sum_of_pod, summed

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
    """Return where the objects lie that use what a quota calls by this name."""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return (f"{group or 'v1'}/{plural}",)
    if name == "requests.storage" or _CLASS in name:
        return (CLAIMS,)
    return (f"v1/{name.partition('.')[0]}",) if f"v1/{name.partition('.')[0]}" in _BY_NAME else (PODS,)


def unsaid(store: str, value: Json, names: set[str]) -> str:
    """Return which containers do not say what they need, where a quota wants that of each; empty when all do."""
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
            return selects({"matchExpressions": [{**scope, "key": key}]}, labels)
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


# -- ResourceQuotas: what a namespace may hold is counted with every write, and what would be too much is refused ---


QUOTAS = "v1/resourcequotas"
_UNCOUNTED = ("v1/events",)


def check(storage: Storage, kind: Kind, value: Json, old: Json | None) -> None:
    """Raises Forbidden for an object that is to be made, or changed, beyond what a quota of its namespace leaves."""
    for _, quota in _quotas(storage, kind.storage, value["metadata"].get("namespace", "")):
        if not in_scope(quota, kind.storage, value):
            continue
        if "used" not in (quota.get("status") or {}):
            count(storage, quota)
        before = usage(kind.storage, old) if old else {}
        asked = {name: amount for name, amount in summed(usage(kind.storage, value), before, -1).items()
                 if _more(amount, "0")}  # fmt: skip
        status, name = quota["status"], quota["metadata"]["name"]
        if not old and (why := unsaid(kind.storage, value, set(status["hard"]))):
            raise _forbidden(kind, value, f"failed quota: {name}: must specify {why}")
        asked = {each: amount for each, amount in asked.items() if each in status["hard"]}
        used, hard = status["used"], status["hard"]
        if beyond := sorted(each for each in asked if _more(combined(used.get(each, "0"), asked[each]), hard[each])):
            said = [",".join(f"{each}={amounts.get(each, '0')}" for each in beyond) for amounts in (asked, used, hard)]
            why = f"exceeded quota: {name}, requested: {said[0]}, used: {said[1]}, limited: {said[2]}"
            raise _forbidden(kind, value, why)


def count(storage: Storage, quota: Json, hard: Amounts | None = None) -> None:
    """Writes the status of a quota that is new or has changed: its bounds (``hard``: as somebody wrote them into the status), and
    what is used of them now."""
    hard, used = (quota["spec"].get("hard") or {}) if hard is None else hard, dict[str, str]()
    for store in sorted({store for name in hard for store in stores(name)}):
        for stored in storage.objects(store, quota["metadata"]["namespace"]):
            value = stored.value()
            if in_scope(quota, store, value):
                used = summed(used, usage(store, value))
    quota["status"] = {"hard": hard, "used": {name: used.get(name, "0") for name in hard}}


class Account:
    """Follows what is staged. Of no use to a namespace without quotas, and of no cost."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        storage.staged = self._follow

    def _follow(self, event: StoreEvent) -> None:
        now = None if event.change == "DELETED" else event.stored
        for stored, quota in _quotas(self._storage, event.stored.resource, event.stored.namespace):
            used: Amounts | None = (quota.get("status") or {}).get("used")
            if used is None:
                count(self._storage, quota)
            else:
                changed = summed(summed(used, _used(quota, now)), _used(quota, event.previous), -1)
                quota["status"]["used"] = {name: changed[name] for name in used}
            if quota["status"]["used"] != used:
                self._storage.put(QUOTAS, stored.namespace, stored.name, quota)


def _used(quota: Json, stored: Stored | None) -> Amounts:
    if stored is None:
        return {}
    value = stored.value()
    return usage(stored.resource, value) if in_scope(quota, stored.resource, value) else {}


def _quotas(storage: Storage, store: str, namespace: str) -> Iterator[tuple[Stored, Json]]:
    """Those that could be about an object. One from before they were counted has no status."""
    if not namespace or store in _UNCOUNTED:
        return
    for stored in storage.objects(QUOTAS, namespace):
        quota = stored.value()
        status = quota.get("status") or {}
        if any(store in stores(name) for name in status.get("hard", quota["spec"].get("hard") or {})):
            yield stored, quota


def _more(one: str, other: str) -> bool:
    return parse_quantity(one) > parse_quantity(other)


def _forbidden(kind: Kind, value: Json, why: str) -> Exception:
    return forbidden(kind.group, kind.plural, value["metadata"].get("name", ""), why)
