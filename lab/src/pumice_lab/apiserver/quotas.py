"""ResourceQuotas: what a namespace may hold is counted with every write, and what would be too much is refused.

Source: Kubernetes "Resource Quotas" (plugin/pkg/admission/resourcequota of its source). There a controller counts a moment later;
here what a write uses is staged with it, so the two are stored together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.wire.quantity import parse_quantity
from pumice_lab.apiserver.errors import forbidden
from pumice_lab.apiserver.quota_usage import in_scope, stores, unsaid, usage
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.resource_store import Stored, StoreEvent
from pumice_lab.apiserver.schema.quantity import combined
from pumice_lab.apiserver.storage import Storage
from pumice_lab.apiserver.strategies.resources import Amounts, summed

Json = dict[str, Any]
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
