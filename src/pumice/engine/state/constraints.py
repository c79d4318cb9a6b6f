"""Where a pod may and would rather run, parsed from its object; malformed parts select nothing.

Services and the controllers of pods belong here too: by them Kubernetes spreads pods that do not say how ("Pod Topology Spread
Constraints", cluster-level default constraints).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

from pumice.engine.state.selectors import Requirement, Requirements, match_all, parse_label_selector, parse_node_term
from pumice.engine.state.terms import PodTerm, WeightedTerm
from pumice.wire import kubernetes
from pumice.wire.objects import Container, Pod, Toleration

Port = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """One topologySpreadConstraint."""

    term: PodTerm
    max_skew: int
    hard: bool
    min_domains: int = 1
    node_affinity: bool = True
    node_taints: bool = False
    everywhere: bool = False
    """Nodes without the label take part, too: it says nothing of them."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where the pod may and would rather run, parsed. All of it is part of the class."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    selector: Requirements = ()
    required: tuple[Requirements | None, ...] | None = None
    preferred: tuple[tuple[int, Requirements | None], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[Port, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pods: tuple[WeightedTerm, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def claim_keys(self) -> list[str]:
        """The pod's claims as namespace/name."""
        return [f"{self.namespace}/{name}" for name in self.claims]

    @property
    def alone(self) -> Constraints:
        """Without all that other pods' places have to do with."""
        space = self.namespace if self.claims else ""
        return replace(self, namespace=space, labels=(), affinity=(), anti_affinity=(), preferred_pods=(), spread=())

    @property
    def topological(self) -> bool:
        """Return whether placing another pod somewhere can change the verdict of many nodes."""
        return bool(self.affinity or self.anti_affinity or self.preferred_pods or self.spread)

    @property
    def prefers(self) -> bool:
        """Return whether some score of the pod is relative to the other nodes that fit, for what it says itself."""
        return bool(self.preferred or self.preferred_pods) or any(not rule.hard for rule in self.spread)

    @property
    def awaits_pods(self) -> bool:
        """Return whether another pod's coming can let this one in: one to be near, or one that evens out the spread."""
        return bool(self.affinity) or any(rule.hard for rule in self.spread)


def read_constraints(
    pod: Pod, labels: tuple[tuple[str, str], ...], ports: tuple[Port, ...], claims: tuple[str, ...]
) -> Constraints:
    """Parse the scheduling constraints of a pod; malformed parts select nothing."""
    spec, namespace = pod.spec, pod.metadata.namespace
    affinity = spec.affinity or {}
    node = _mapping(affinity.get("nodeAffinity"))
    required = _mapping(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    pods = _mapping(affinity.get("podAffinity"))
    anti = _mapping(affinity.get("podAntiAffinity"))
    return Constraints(
        namespace=namespace,
        labels=labels,
        selector=tuple(Requirement(k, "In", (v,)) for k, v in sorted(spec.node_selector.items())),
        required=tuple(parse_node_term(t) for t in required.get("nodeSelectorTerms") or ()) if required else None,
        preferred=tuple(
            (int(entry.get("weight", 0)), parse_node_term(entry.get("preference")))
            for entry in _mappings(node.get("preferredDuringSchedulingIgnoredDuringExecution"))
        ),
        tolerations=tuple(spec.tolerations),
        ports=ports,
        affinity=_pod_terms(pods, namespace, pod.metadata.labels),
        anti_affinity=_pod_terms(anti, namespace, pod.metadata.labels),
        preferred_pods=(
            *_weighted(pods, namespace, pod.metadata.labels, 1), *_weighted(anti, namespace, pod.metadata.labels, -1)
        ),
        spread=tuple(_spread_rule(r, namespace, pod.metadata.labels) for r in spec.topology_spread_constraints),
        claims=claims,
    )  # fmt: skip


_ports = attrgetter("ports")


def host_ports(containers: Sequence[Container], inits: Sequence[Container] = ()) -> tuple[Port, ...]:
    """(address, protocol, port) of every host port, sorted. Of the init containers those count that run on beside the others."""
    if not any(map(_ports, containers)) and not inits:
        return ()
    return tuple(
        sorted(
            (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
            for container in (*containers, *[c for c in inits if c.restart_policy == "Always"])
            for port in container.ports
            if port.host_port > 0
        )
    )


def _pod_terms(affinity: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> tuple[PodTerm, ...]:
    return tuple(
        _pod_term(term, namespace, labels)
        for term in _mappings(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    )


def _weighted(
    affinity: Mapping[str, Any], namespace: str, labels: Mapping[str, str], sign: int
) -> tuple[WeightedTerm, ...]:
    return tuple(
        WeightedTerm(_pod_term(_mapping(entry.get("podAffinityTerm")), namespace, labels),
                     sign * int(entry.get("weight", 0)))
        for entry in _mappings(affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))
    )  # fmt: skip


def _pod_term(term: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> PodTerm:
    selector = parse_label_selector(term.get("labelSelector"))
    if selector is not None:
        for key in term.get("matchLabelKeys") or ():
            if key in labels:
                selector = (*selector, Requirement(key, "In", (labels[key],)))
        for key in term.get("mismatchLabelKeys") or ():
            if key in labels:
                selector = (*selector, Requirement(key, "NotIn", (labels[key],)))
    named = frozenset(str(n) for n in term.get("namespaces") or ())
    chosen = term.get("namespaceSelector")
    spaces = parse_label_selector(chosen) if isinstance(chosen, Mapping) else None
    if not named and spaces is None:
        named = frozenset({namespace})  # neither given: the pod's own namespace
    return PodTerm(selector, named, str(term.get("topologyKey", "")), spaces)


def _spread_rule(rule: Mapping[str, Any], namespace: str, labels: Mapping[str, str]) -> SpreadRule:
    selector = parse_label_selector(rule.get("labelSelector"))
    for key in rule.get("matchLabelKeys") or ():
        if selector is not None and key in labels:
            selector = (*selector, Requirement(key, "In", (labels[key],)))
    return SpreadRule(
        PodTerm(selector, frozenset({namespace}), str(rule.get("topologyKey", ""))),
        max_skew=int(rule.get("maxSkew") or 1),
        hard=rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        min_domains=int(rule.get("minDomains") or 1),
        node_affinity=rule.get("nodeAffinityPolicy", "Honor") == "Honor",
        node_taints=rule.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def pod_claims(pod: str, volumes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names of the claims that the pod of that name uses, sorted; the claim of an ephemeral volume is named after both."""
    names = []
    for volume in volumes:
        claim = volume.get("persistentVolumeClaim")
        if isinstance(claim, Mapping) and claim.get("claimName"):
            names.append(str(claim["claimName"]))
        elif isinstance(volume.get("ephemeral"), Mapping):
            names.append(f"{pod}-{volume.get('name', '')}")
    return tuple(sorted(names))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value or () if isinstance(v, Mapping)]


# -- default spreading by Services and controllers ---------------------------------------------------------------------


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
