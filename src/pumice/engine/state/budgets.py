"""PodDisruptionBudgets: how many pods each lets go now, as their controller last reckoned it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice.engine.state.features import Features
from pumice.engine.state.jobs import Task
from pumice.engine.state.selectors import Requirements, match_all, parse_label_selector


@dataclass(frozen=True, slots=True)
class Budget:
    """``allowed``: status.disruptionsAllowed; what its controller has not reckoned yet allows none."""

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
