"""Classes: pods that every filter and every score treats alike (decision 6).

A class holds what was read of such a pod once: its request, its asks of the device families, its constraints. The placer
keeps per class which nodes fit and how good they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumice.engine.ledger import Features
from pumice.engine.node_book import NO_MARKS
from pumice.engine.resources import Request, Vector, pod_request, shared
from pumice.engine.selectors import Requirement, Requirements, parse_label_selector, parse_node_term
from pumice.engine.terms import PodTerm, WeightedTerm
from pumice.families.seam import Ask, Family, Marks
from pumice.model.refusal import Refusal
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
    def topological(self) -> bool:
        """Whether placing another pod somewhere can change the verdict of many nodes."""
        return bool(self.affinity or self.anti_affinity or self.preferred_pods or self.spread)

    @property
    def awaits_pods(self) -> bool:
        """Whether another pod's coming can let this one in: one to be near, or one that evens out the spread."""
        return bool(self.affinity) or any(rule.hard for rule in self.spread)


@dataclass(slots=True, eq=False)
class PodClass:
    """One class. ``number`` is its place in the order of appearance, ``key`` its identity."""

    number: int
    key: Hashable
    request: Request
    asks: tuple[Ask, ...]
    refusals: tuple[Refusal, ...]
    constraints: Constraints
    demand: tuple[tuple[str, int], ...] = ()
    """What its queue is charged, in the vector's units: the request, with cards counted as many as they are (D-39)."""
    amounts: Vector = field(default_factory=dict)
    """``demand`` as a vector; shared, never changed in place."""
    users: int = 0
    state: Any = None
    """What the placer remembers of this class (its own type); None when it was never asked or is asleep."""

    @property
    def best_effort(self) -> bool:
        return self.request.best_effort and not self.asks


@dataclass(slots=True)
class Classes:
    """All classes by key. ``families`` decide what an ask is."""

    families: Sequence[Family] = ()
    labels_matter: bool = False
    """Set once some pod has an anti-affinity or a preference about other pods: then labels tell classes apart."""
    _known: dict[Hashable, PodClass] = field(default_factory=dict)
    _next: int = 0
    _encoder: msgspec.json.Encoder = field(default_factory=msgspec.json.Encoder)
    _parsed: dict[Hashable, Constraints] = field(default_factory=dict)
    _features: dict[Hashable, Features] = field(default_factory=dict)
    _requests: dict[Hashable, Request] = field(default_factory=dict)
    _parameters: frozenset[str] = frozenset()

    def set_families(self, families: Sequence[Family]) -> None:
        self.families = families
        self._parameters = frozenset().union(*(f.parameters() for f in families)) if families else frozenset()
        self._known.clear()
        self._requests.clear()

    def of(self, pod: Pod) -> PodClass:
        """The class of a pod, made when it is the first of its kind."""
        request = self.request(pod)
        constraints, constraints_key = self._constraints(pod)
        asks, refusals = self._asks(pod)
        if not (constraints.topological or constraints.claims or self.labels_matter):
            constraints_key = constraints_key[2:]  # labels and namespace decide nothing for this pod
        key = (request, constraints_key, tuple((a.family, a.key) for a in asks), refusals)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 50_000:
                self._known = {k: c for k, c in self._known.items() if c.users}
            demand = dict(request.items)
            for family in self.families:
                for ask in asks:
                    if ask.family == family.name:
                        demand.update((name, amount * 1000) for name, amount in family.quota(ask).items() if amount)
            found = PodClass(self._next, key, request, asks, refusals, constraints, tuple(demand.items()), shared(demand))
            self._known[key] = found
            self._next += 1
        return found

    def request(self, pod: Pod) -> Request:
        """What the pod takes from its node; equal pods share one value."""
        spec = pod.spec
        plain = not (spec.init_containers or spec.overhead or spec.resources)
        key: Hashable = None
        if plain:
            key = tuple(
                (tuple(c.resources.requests.items()), tuple(c.resources.limits.items())) for c in spec.containers
            )
            found = self._requests.get(key)
            if found is not None:
                return found
        request = pod_request(pod, self._parameters)
        if plain:
            if len(self._requests) > 50_000:
                self._requests.clear()
            self._requests[key] = request
        return request

    def _asks(self, pod: Pod) -> tuple[tuple[Ask, ...], tuple[Refusal, ...]]:
        asks: list[Ask] = []
        refusals: list[Refusal] = []
        for family in self.families:
            ask = family.ask(pod)
            if isinstance(ask, Refusal):
                refusals.append(ask)
            elif ask is not None:
                asks.append(ask)
        return tuple(asks), tuple(refusals)

    def marks(self, pod: Pod) -> Marks:
        """What the pod means for later pods on its cards."""
        for family in self.families:
            marks = family.marks(pod)
            if marks.group or marks.rules:
                return marks if marks.rules else Marks(marks.group, NO_MARKS.rules)
        return NO_MARKS

    def _constraints(self, pod: Pod) -> tuple[Constraints, tuple[Hashable, ...]]:
        spec = pod.spec
        ports = host_ports(spec.containers) if any(c.ports for c in spec.containers) else ()
        claims = _claims(spec.volumes)
        labels = tuple(sorted(pod.metadata.labels.items()))
        written: Hashable = None
        if spec.node_selector or spec.affinity or spec.tolerations or spec.topology_spread_constraints:
            written = self._encoder.encode(
                (spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
            )
        key: tuple[Hashable, ...] = (pod.metadata.namespace, labels, written, ports, claims)
        found = self._parsed.get(key)
        if found is None:
            if len(self._parsed) > 50_000:
                self._parsed.clear()
            found = self._parsed[key] = read_constraints(pod, labels, ports, claims)
        return found, key

    def _feature(self, constraints: Constraints) -> Features:
        key = (constraints.namespace, constraints.labels, constraints.ports, constraints.anti_affinity,
               constraints.preferred_pods, constraints.claims)  # fmt: skip
        found = self._features.get(key)
        if found is None:
            found = self._features[key] = Features(*key)
        return found

    def features(self, pod: Pod) -> Features:
        """Features of a pod that is already placed (its class does not matter)."""
        return self._feature(self._constraints(pod)[0])


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


def host_ports(containers: Sequence[Container]) -> tuple[Port, ...]:
    """(address, protocol, port) of every host port, sorted."""
    return tuple(
        sorted(
            (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
            for container in containers
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


def _claims(volumes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    names = []
    for volume in volumes:
        claim = volume.get("persistentVolumeClaim")
        if isinstance(claim, Mapping) and claim.get("claimName"):
            names.append(str(claim["claimName"]))
    return tuple(sorted(names))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value or () if isinstance(v, Mapping)]
