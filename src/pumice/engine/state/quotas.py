"""ResourceQuotas as the watch shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pumice.engine.state.agenda import Agenda
from pumice.engine.state.resources import PODS, Vector, amount
from pumice.wire.objects import Quantities
from pumice.wire.resource_quota import ResourceQuota, asked_for


@dataclass(frozen=True, slots=True)
class Quota:
    """One of them, by resources instead of the names in it."""

    name: str
    hard: Vector
    used: Vector


@dataclass(slots=True)
class Quotas:
    """Those that hold for all pods of a namespace."""

    agenda: Agenda
    _of: dict[str, dict[str, Quota]] = field(default_factory=dict)

    def put(self, quota: ResourceQuota) -> None:
        meta = quota.metadata
        if quota.scoped:
            self.drop(meta.namespace, meta.name)
            return
        found = Quota(meta.name, _amounts({**quota.spec.hard, **quota.status.hard}), _amounts(quota.status.used))
        known = self._of.setdefault(meta.namespace, {})
        if known.get(meta.name) != found:
            known[meta.name] = found
            self.agenda.wake_waiting()

    def drop(self, namespace: str, name: str) -> None:
        if self._of.get(namespace, {}).pop(name, None) is not None:
            self.agenda.wake_waiting()

    def of(self, namespace: str) -> Mapping[str, Quota]:
        return self._of.get(namespace, {})


def _amounts(quantities: Quantities) -> Vector:
    """Only of what a group says beforehand: requests, and how many pods. Of two names for one resource the last one counts."""
    found: Vector = {}
    for name, quantity in quantities.items():
        resource = PODS if name == f"count/{PODS}" else asked_for(name)
        if not resource.startswith(("limits.", "count/")):
            try:
                found[resource] = amount(resource, quantity)
            except ValueError:
                continue
    return found
