"""Services and the controllers of pods, by which Kubernetes spreads pods that do not say how (kubernetes.io docs "Pod Topology
Spread Constraints", cluster-level default constraints)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pumice.engine.state.constraints import SpreadRule
from pumice.engine.state.features import PodTerm
from pumice.engine.state.selectors import Requirement, Requirements, match_all, parse_label_selector
from pumice.wire import kubernetes
from pumice.wire.objects import Pod

DEFAULTS: Final = ((kubernetes.HOSTNAME, 3), (kubernetes.ZONE, 5))
"""Label and skew of the rules that hold where a cluster's administrator gives none."""
SERVICE: Final = "Service"
CONTROLLERS: Final[Mapping[str, str]] = {
    "ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1",
}  # fmt: skip


@dataclass(slots=True)
class Workloads:
    """Selectors by namespace and name."""

    counted: bool = False
    """Whether some plugin spreads pods."""
    stale: set[str] = field(default_factory=set)
    """Namespaces whose waiting pods may be spread by other selectors now."""
    _services: dict[str, dict[str, Requirements]] = field(default_factory=dict)
    _controllers: dict[tuple[str, str, str], Requirements] = field(default_factory=dict)

    def put(self, kind: str, namespace: str, name: str, selector: Any) -> None:
        """One is there, or has another selector: a map of labels, or a label selector. None: it is gone, or selects nothing."""
        if kind in (SERVICE, "ReplicationController") and selector is not None:
            selector = {"matchLabels": selector}
        found = parse_label_selector(selector)
        table: dict[Any, Requirements] = self._services.setdefault(namespace, {}) if kind == SERVICE else self._controllers
        key = name if kind == SERVICE else (kind, namespace, name)
        if table.get(key) == found:
            return
        if found is None:
            table.pop(key, None)
        else:
            table[key] = found
        self.stale.add(namespace)

    def rules(self, pod: Pod) -> tuple[SpreadRule, ...]:
        """The default rules for a pod that waits and has none of its own."""
        if not self.counted or pod.spec.topology_spread_constraints or pod.spec.node_name:
            return ()
        selector, namespace = self._selector(pod), pod.metadata.namespace
        if not selector:
            return ()
        here = frozenset({namespace})
        return tuple(
            SpreadRule(PodTerm(selector, here, label), skew, hard=False, everywhere=True) for label, skew in DEFAULTS
        )  # fmt: skip

    def _selector(self, pod: Pod) -> Requirements:
        meta = pod.metadata
        found: dict[Requirement, None] = {}
        for selector in self._services.get(meta.namespace, {}).values():
            if match_all(selector, meta.labels):
                found.update(dict.fromkeys(selector))
        owner = next((owner for owner in meta.owner_references if owner.controller), None)
        if owner is not None and CONTROLLERS.get(owner.kind) == owner.api_version:
            found.update(dict.fromkeys(self._controllers.get((owner.kind, meta.namespace, owner.name), ())))
        return tuple(sorted(found, key=lambda one: (one.key, one.operator, one.values)))
