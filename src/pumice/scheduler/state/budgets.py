"""ResourceQuotas and PodDisruptionBudgets: what a namespace may still ask for, and how many of its pods may be evicted now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.resources import PODS, Vector, amount
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.scheduler.state.terms import Features
from pumice.wire.objects import Quantities, Requirements, ResourceQuota, asked_for, match_all, parse_label_selector

# -- ResourceQuotas ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quota:
    """One of them, by resources instead of the names in it."""

    name: str
    hard: Vector
    used: Vector


@dataclass(slots=True)
class Quotas:
    """Those that hold for all pods of a namespace."""

    scheduling_queue: SchedulingQueue
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
            self.scheduling_queue.released()

    def drop(self, namespace: str, name: str) -> None:
        if self._of.get(namespace, {}).pop(name, None) is not None:
            self.scheduling_queue.released()

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


# -- PodDisruptionBudgets, as their controller last counted them -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget. ``allowed``: status.disruptionsAllowed; what its controller has not reckoned yet allows none."""

    name: str
    namespace: str
    selector: Requirements | None
    allowed: int

    def guards(self, features: Features) -> bool:
        return features.namespace == self.namespace and match_all(self.selector, dict(features.labels))


@dataclass(slots=True)
class Budgets:
    """By namespace and name."""

    leaving: Callable[[], Iterable[Task]] = tuple
    """Pods that go already: the controller may not have counted them yet. Where it has, a budget allows less for as long as they
    take to go."""
    known: dict[str, Budget] = field(default_factory=dict)
    _guarding: dict[Features, tuple[Budget, ...]] = field(default_factory=dict)

    def put(self, obj: Mapping[str, Any]) -> None:
        meta, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
        namespace, name = str(meta.get("namespace", "")), str(meta.get("name", ""))
        allowed = status.get("disruptionsAllowed")
        found = Budget(name, namespace, parse_label_selector(spec.get("selector")), allowed if isinstance(allowed, int) else 0)
        self.known[f"{namespace}/{name}"] = found
        self._guarding.clear()

    def drop(self, obj: Mapping[str, Any]) -> None:
        meta = obj.get("metadata") or {}
        self.known.pop(f"{meta.get('namespace', '')}/{meta.get('name', '')}", None)
        self._guarding.clear()

    def guarding(self, pod: Task) -> tuple[Budget, ...]:
        """The budgets that count the pod."""
        if pod.features is None:
            return ()
        found = self._guarding.get(pod.features)
        if found is None:
            found = tuple(budget for budget in self.known.values() if budget.guards(pod.features))
            self._guarding[pod.features] = found
        return found

    def spared(self, pods: Sequence[Task]) -> dict[str, str]:
        """Those of them that go beyond a budget, counted down in their order, and the budget."""
        left: dict[Budget, int] = {}
        for pod in self.leaving() if self.known else ():
            for budget in self.guarding(pod):
                left[budget] = left.get(budget, budget.allowed) - 1
        found = {}
        for pod in pods:
            budgets = self.guarding(pod)
            broken = next((budget for budget in budgets if left.get(budget, budget.allowed) <= 0), None)
            if broken is not None:
                found[pod.uid] = broken.name
            for budget in budgets:
                left[budget] = left.get(budget, budget.allowed) - 1
        return found
