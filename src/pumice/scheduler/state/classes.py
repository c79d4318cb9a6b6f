"""Classes: pods that every filter and every score treats alike, and the constraints that make them so.

A class holds what was read of such a pod once: its request, its requests of the device types, its constraints. The placer
keeps per class which nodes fit and how good they are. Before that comes the ``Kind``: pods that are written alike but for
names and annotations, which is most of them; whatever follows from what is written is worked out once per kind.
Malformed parts of a constraint select nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import structs

from pumice.devices.card_policies import policies_in
from pumice.devices.disabled_types import requests_of_disabled_types
from pumice.devices.fragmentation import Shape
from pumice.devices.protocol import NO_MARKS, DeviceRequest, DeviceSharing, Marks
from pumice.model.refusal import Refusal
from pumice.scheduler.state.claim_charges import least_for
from pumice.scheduler.state.known_claims import Wanted
from pumice.scheduler.state.nodes import Images, images_of
from pumice.scheduler.state.resources import (
    CPU,
    MEMORY,
    NOTHING,
    Request,
    Vector,
    add,
    pod_request,
    shared,
    while_resized,
)
from pumice.scheduler.state.seen_shapes import SeenShapes
from pumice.scheduler.state.terms import Features, PodTerm, WeightedTerm
from pumice.wire import kubernetes
from pumice.wire.objects import (
    Container,
    Pod,
    PodSpec,
    Requirement,
    Requirements,
    Toleration,
    match_all,
    parse_label_selector,
    parse_node_term,
)
from pumice.wire.without_effect import Shown, asked_by_pod

# -- constraints -------------------------------------------------------------------------------------------------------


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
    """The constraints and preferences of a pod, parsed. All of it is part of the class."""

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
    """True where some plugin spreads pods."""
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


# -- classes -----------------------------------------------------------------------------------------------------------


KINDS_KEPT = 1024
"""Kinds remembered; workloads whose labels never repeat must not fill our memory."""
CLASSES_KEPT = 8192
"""Classes remembered beyond those in use."""
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, eq=False)
class PodClass:
    """One class. ``number`` is its place in the order of appearance, ``key`` its identity."""

    number: int
    key: Hashable
    request: Request
    device_requests: tuple[DeviceRequest, ...]
    refusals: tuple[Refusal, ...]
    constraints: Constraints
    demand: tuple[tuple[str, int], ...] = ()
    """The charge for its queue, in the vector's units: the request, with cards counted as many as they are (D-39)."""
    amounts: Vector = field(default_factory=dict)
    """``demand`` as a vector; shared, never changed in place."""
    quota_known_late: tuple[DeviceRequest, ...] = ()
    """Asks of which ``demand`` leaves out what only the cards can tell (``LateQuota``)."""
    images: tuple[str, ...] = ()
    """Its images, where some node has one of them."""
    shape: Shape | None = None
    """By which nodes are judged for pods that come later; None where it asks for no cards, or for such that nobody judges so."""
    device_claims: tuple[Wanted, ...] = ()
    """Claims of devices (``resource.k8s.io``), in the pod's order."""
    policy: str = ""
    """The card policy of its device type by which it chooses between nodes."""
    users: int = 0
    prefers: bool = field(init=False)
    """True where it would rather go to some nodes than to others that fit, by its own constraints."""
    base: PodClass = field(init=False)
    """The class of such a pod if no other pod mattered to it: what is remembered per node is remembered there, for all
    applications of that shape together. The class itself where no other pod matters."""

    def __post_init__(self) -> None:
        self.base = self
        self.prefers = self.constraints.prefers

    @property
    def best_effort(self) -> bool:
        return self.request.best_effort and not self.device_requests


@dataclass(slots=True, eq=False)
class Kind:
    """All that follows from containers, labels, namespace and constraints alone. ``cls`` is the class of those pods whose
    annotations ask nothing further of any device type."""

    containers: Hashable
    """The containers' resources, by which equal ones are known."""
    request: Request
    constraints: Constraints
    key: tuple[Hashable, ...]
    """The constraints as they are written."""
    features: Features
    images: tuple[str, ...]
    requests_cards: bool
    """True where some container names an extended resource at all; without one a pod holds no card."""
    cls: PodClass | None = None


@dataclass(slots=True)
class Classes:
    """All classes by key. ``device_types`` decide what an ask is."""

    device_types: Sequence[DeviceSharing] = ()
    seen: SeenShapes = field(default_factory=SeenShapes)
    images: Images = field(default_factory=Images)
    workloads: Workloads = field(default_factory=Workloads)
    wanted: Callable[[Pod], tuple[Wanted, ...] | Refusal] = lambda pod: ()
    had_by_claim: Callable[[str], bool] = lambda resource: False
    policies: Callable[[Pod], Mapping[str, str]] = lambda pod: NOTHING
    """The annotations of card policies that a pod's queue has for it."""
    by_name: Callable[[Pod], bool] = lambda pod: False
    """Say whether a pod asks for extended resources that are had by claim."""
    """The requests of a pod's claims, or the refusal where they are not known."""
    labels_matter: bool = False
    """Set once some pod has an anti-affinity or a preference about other pods: then labels tell classes apart."""
    _known: dict[Hashable, PodClass] = field(default_factory=dict)
    _next: int = 0
    _room: int = CLASSES_KEPT
    _kinds: dict[Hashable, Kind] = field(default_factory=dict)
    _requests: dict[Hashable, Request] = field(default_factory=dict)
    _features: dict[Features, Features] = field(default_factory=dict)
    _parameters: frozenset[str] = frozenset()

    def set_device_types(self, device_types: Sequence[DeviceSharing]) -> None:
        self.device_types = device_types
        self._parameters = frozenset().union(*(f.parameters() for f in device_types)) if device_types else frozenset()
        self._known.clear()
        self._kinds.clear()
        self._requests.clear()

    def mind_labels(self) -> None:
        """From now on labels tell classes apart."""
        self.labels_matter = True
        for kind in self._kinds.values():
            kind.cls = None

    def mind_images(self, names: set[str]) -> None:
        """From now on these images tell classes apart."""
        for kind in self._kinds.values():
            if not names.isdisjoint(kind.images):
                kind.cls = None

    # -- kinds ----------------------------------------------------------------------------------------------------

    def kind(self, pod: Pod) -> Kind:
        """The kind of a pod; equal pods share one value."""
        pod = while_resized(pod)
        meta, spec = pod.metadata, pod.spec
        containers = _containers_key(spec)
        ports = host_ports(spec.containers, spec.init_containers)
        claims = pod_claims(meta.name, spec.volumes) if spec.volumes else ()
        labels = tuple(meta.labels.items() if len(meta.labels) < 2 else sorted(meta.labels.items()))
        written: Hashable = None
        if spec.node_selector or spec.affinity or spec.tolerations or spec.topology_spread_constraints:
            written = _encode(
                (spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
            )
        images = images_of(spec)
        spread = self.workloads.rules(pod)
        key = (containers, meta.namespace, labels, written, ports, claims, spread, images)
        found = self._kinds.get(key)
        if found is None:
            if len(self._kinds) >= KINDS_KEPT:
                self._kinds.clear()
                self._features.clear()
            constraints = read_constraints(pod, labels, ports, claims)
            if spread:
                constraints = replace(constraints, spread=spread)
            request = self._request(pod, containers)
            requests_cards = any(
                "/" in name and not self.had_by_claim(name)
                for c in (*spec.containers, *spec.init_containers) for name in c.resources.limits
            )  # fmt: skip
            features = self._feature(constraints)
            found = self._kinds[key] = Kind(containers, request, constraints, key[1:-1], features, images, requests_cards)
        return found

    def _request(self, pod: Pod, containers: Hashable) -> Request:
        found = self._requests.get(containers)
        if found is None:
            if len(self._requests) >= KINDS_KEPT:
                self._requests.clear()
            found = self._requests[containers] = pod_request(pod, self._parameters)
        return found

    def _feature(self, constraints: Constraints) -> Features:
        hints = (*constraints.preferred_pods, *(WeightedTerm(term, 1, hard=True) for term in constraints.affinity))
        found = Features(constraints.namespace, constraints.labels, constraints.ports, constraints.anti_affinity, hints,
                         tuple(f"{constraints.namespace}/{name}" for name in constraints.claims))  # fmt: skip
        return self._features.setdefault(found, found)

    # -- classes --------------------------------------------------------------------------------------------------

    def of(self, pod: Pod, kind: Kind | None = None) -> PodClass:
        """The class of a pod, made when it is the first of its kind."""
        kind, of_queue = kind or self.kind(pod), self.policies(pod)
        if of_queue:
            pod = with_policies(pod, of_queue)
        plain = self._plain(pod)
        if plain and kind.cls is not None:
            return kind.cls
        constraints_key = kind.key
        by_claim = bool(pod.spec.resource_claims) or self.by_name(pod)
        if not (kind.constraints.topological or kind.constraints.claims or by_claim or self.labels_matter):
            constraints_key = constraints_key[2:]  # labels and namespace decide nothing for this pod
        device_requests, refusals = self._device_requests(pod)
        device_claims: tuple[Wanted, ...] = ()
        if by_claim:
            wanted = self.wanted(pod)
            if isinstance(wanted, Refusal):
                refusals += (wanted,)
            else:
                device_claims = wanted
        images = kind.images if self.images.matters(kind.images) else ()
        key = (
            kind.request, constraints_key, tuple((a.device_type, a.key) for a in device_requests), refusals, images,
            device_claims,
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._new_class(key, kind.request, kind.constraints, device_requests, refusals, images, device_claims)
        if found.base is found and (kind.constraints.topological or self.labels_matter):  # labels may matter since it was made
            found.base = self._base(found, kind, images)
        if plain and not refusals:  # a refusal names the container
            kind.cls = found
        return found

    def _plain(self, pod: Pod) -> bool:
        """Return whether its containers say all that it asks for."""
        for device_type in self.device_types:
            if not device_type.resources_only(pod):
                return False
        return not (pod.spec.resource_claims or asked_by_pod(pod) or self.by_name(pod))

    def again(self, cls: PodClass, pod: Pod, known: dict[Hashable, PodClass]) -> PodClass:
        """The class under today's device types of a placed pod of that class: of its object only what tells of cards is kept, its
        containers together with all that are equal. ``known``: what was found for others before."""
        key = (cls, id(pod.spec.containers)) if self._plain(pod) else None
        found = known.get(key)
        if found is None:
            found = self._again(cls, pod)
            if key is not None:
                known[key] = found
        return found

    def _again(self, cls: PodClass, pod: Pod) -> PodClass:
        items = tuple(item for item in cls.request.items if item[0] not in self._parameters)
        request = Request(items, cls.request.spread, cls.request.refused)
        device_requests, refusals = self._device_requests(pod)
        key = ("placed", request, cls.constraints, tuple((a.device_type, a.key) for a in device_requests), refusals)
        return self._known.get(key) or self._new_class(key, request, cls.constraints, device_requests, refusals, cls.images)

    def _base(self, cls: PodClass, kind: Kind, images: tuple[str, ...]) -> PodClass:
        alone = cls.constraints.alone
        key = (
            cls.request, alone, tuple((a.device_type, a.key) for a in cls.device_requests), cls.refusals, images,
            cls.device_claims,
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._new_class(key, kind.request, alone, cls.device_requests, cls.refusals, images, cls.device_claims)
        return found

    def _new_class(
        self, key: Hashable, request: Request, constraints: Constraints, device_requests: tuple[DeviceRequest, ...],
        refusals: tuple[Refusal, ...], images: tuple[str, ...], device_claims: tuple[Wanted, ...] = (),
    ) -> PodClass:  # fmt: skip
        if len(self._known) >= self._room:
            used = {c for c in self._known.values() if c.users}
            used |= {c.base for c in used}
            self._known = {k: c for k, c in self._known.items() if c in used}
            self._room = len(self._known) + CLASSES_KEPT
            self._kinds.clear()
        demand = dict(request.items)
        for device_type in self.device_types:
            for device_request in device_requests:
                if device_request.device_type == device_type.name:
                    demand.update((name, amount * 1000) for name, amount in device_type.quota(device_request).items() if amount)
        for one in device_claims:
            if not one.key:  # it is one pod's alone, and has no devices yet
                add(demand, least_for(one.spec.devices).items())
        amounts = shared(demand)
        late = {
            device_type.name: device_type.late_quota
            for device_type in self.device_types
            if device_type.late_quota is not None
        }
        quota_known_late = tuple(
            device_request
            for device_request in device_requests
            if device_request.device_type in late and late[device_request.device_type].known_late(device_request)
        )
        found = PodClass(
            self._next, key, request, device_requests, refusals, constraints, tuple(amounts.items()), amounts, quota_known_late,
            images, device_claims=device_claims,
        )
        found.shape, found.policy = self._shape(request, constraints, device_requests)
        self._known[key] = found
        self._next += 1
        return found

    def _shape(
        self, request: Request, constraints: Constraints, device_requests: tuple[DeviceRequest, ...]
    ) -> tuple[Shape | None, str]:
        """The shape, and the policy between nodes."""
        for device_type in self.device_types:
            for device_request in device_requests:
                if device_request.device_type == device_type.name and device_type.ranking is not None:
                    part, policy = device_type.ranking.part(device_request)
                    if part is not None:
                        where = Constraints(selector=constraints.selector, required=constraints.required)
                        requested = request.amounts()
                        free = None if where == Constraints() else where
                        return Shape(device_type.name, part, requested.get(CPU, 0), requested.get(MEMORY, 0), free), policy
        return None, ""

    def _device_requests(self, pod: Pod) -> tuple[tuple[DeviceRequest, ...], tuple[Refusal, ...]]:
        device_requests: list[DeviceRequest] = []
        unserved = [row for row in asked_by_pod(pod) if row.reported is Shown.WAITS]
        refusals = [Refusal(row.name, f"has no effect yet: {row.consequence}") for row in unserved]
        refusals += requests_of_disabled_types(pod, self.device_types)
        for device_type in self.device_types:
            device_request = device_type.device_request(pod)
            if isinstance(device_request, Refusal):
                refusals.append(device_request)
            elif device_request is not None:
                device_requests.append(device_request)
        return tuple(device_requests), tuple(refusals)

    def marks(self, pod: Pod) -> Marks:
        """Return what the pod means for later pods on its cards."""
        for device_type in self.device_types:
            marks = device_type.marks(pod)
            if marks.group or marks.rules:
                return marks
        return NO_MARKS


def with_policies(pod: Pod, of_queue: Mapping[str, str]) -> Pod:
    """The pod as if it named the card policies of its queue, where it names none itself."""
    notes = pod.metadata.annotations
    return structs.replace(pod, metadata=structs.replace(pod.metadata, annotations={**notes, **of_queue, **policies_in(notes)}))


def _containers_key(spec: PodSpec) -> Hashable:
    """The resources of a pod's containers; equal keys mean equal requests and equal asks, names in refusals apart."""
    if spec.init_containers or spec.overhead or spec.resources:
        return _encode((
            [c.resources for c in spec.containers],
            [(c.resources, c.restart_policy) for c in spec.init_containers],
            spec.overhead,
            spec.resources,
        ))  # fmt: skip
    return tuple([(*c.resources.requests.items(), None, *c.resources.limits.items()) for c in spec.containers])
