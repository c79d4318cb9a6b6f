"""The slice of Kubernetes objects that we read, decoded by msgspec straight from the API server's bytes.

Only fields that some room reads are declared; everything else is skipped while decoding. The structs are not tracked
by the garbage collector (``gc=False``): they hold no cycles, and bulk decoding would otherwise be dominated by it.

Label selectors of Kubernetes: of pods (matchLabels, matchExpressions) and of nodes (nodeSelector, node affinity).

Parsed once into requirements, matched one set of labels at a time. Rules: kubernetes.io docs "Labels and Selectors" and
"Assigning Pods to Nodes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from pumice.wire.kubernetes import MIRROR
from pumice.wire.names import DOMAINS

Quantities = dict[str, str | int | float]


class OwnerReference(Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Meta(Struct, rename="camel", gc=False, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []


class Resources(Struct, rename="camel", gc=False, omit_defaults=True):
    limits: Quantities = {}
    requests: Quantities = {}


class ContainerPort(Struct, rename="camel", gc=False, omit_defaults=True):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Struct, rename="camel", gc=False, omit_defaults=True):
    name: str = ""
    image: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)
    ports: list[ContainerPort] = []
    restart_policy: str = ""  # "Always" on an init container makes it a sidecar


class Toleration(Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SchedulingGate(Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    name: str = ""


class PodSpec(Struct, rename="camel", gc=False, omit_defaults=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Quantities = {}
    node_selector: dict[str, str] = {}
    affinity: dict[str, Any] | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    scheduling_gates: list[SchedulingGate] = []
    host_network: bool = False
    resources: Resources | None = None
    resource_claims: list[dict[str, Any]] = []
    active_deadline_seconds: int | None = None


class PodCondition(Struct, rename="camel", gc=False, omit_defaults=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerStatus(Struct, rename="camel", gc=False, omit_defaults=True):
    name: str = ""
    resources: Resources | None = None
    allocated_resources: Quantities = {}


class ClaimStatus(Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    """The ResourceClaim that was made of a template for one entry of a pod's claims; None: it needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Struct, rename="camel", gc=False, omit_defaults=True):
    phase: str = ""
    conditions: list[PodCondition] = []
    nominated_node_name: str = ""
    start_time: str | None = None
    reason: str = ""
    message: str = ""
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: Resources | None = None
    allocated_resources: Quantities = {}
    resource_claim_statuses: list[ClaimStatus] = []


class Pod(Struct, rename="camel", gc=False, omit_defaults=True):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


def is_admitted(pod: Pod) -> bool:
    """Return whether the kubelet has taken it on, its devices given to it: it then tells a start time (ADR 120)."""
    return pod.status.phase == "Running" or bool(pod.status.start_time)


def is_read(annotation: str) -> bool:
    """Return whether a scheduler may read the annotation of that key. Others may hold whole manifests, environment included
    (kubectl's last-applied-configuration does): journals and dumps leave them out."""
    domain, slash, _ = annotation.partition("/")
    return not slash or annotation == MIRROR or any(domain == known or domain.endswith(f".{known}") for known in DOMAINS)


def is_mirror(pod: Pod) -> bool:
    """Return whether it is the mirror pod of a static pod; the API server lets nobody change that afterwards."""
    return MIRROR in pod.metadata.annotations


class Taint(Struct, rename="camel", gc=False, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, rename="camel", gc=False):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeCondition(Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""


class NodeImage(Struct, rename="camel", gc=False):
    names: list[str] | None = None
    size_bytes: int = 0


class NodeInfo(Struct, rename="camel", gc=False, frozen=True):
    container_runtime_version: str = ""
    kubelet_version: str = ""


class NodeStatus(Struct, rename="camel", gc=False):
    allocatable: Quantities = {}
    capacity: Quantities = {}
    conditions: list[NodeCondition] = []
    images: list[NodeImage] | None = None
    node_info: NodeInfo = NodeInfo()


class Node(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
    reports: dict[str, str] = {}
    """No field of the object: what ConfigMaps of others say of the node."""


class WorkloadSpec(Struct, gc=False):
    selector: dict[str, Any] | None = None


class Workload(Struct, rename="camel", gc=False):
    """A Service, or what makes pods: whom it selects, by a map of labels or a label selector."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


class ConfigMap(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    data: dict[str, str] = {}


T = TypeVar("T")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(kind: type[T], raw: bytes) -> T:
    """Decode one object. Raises msgspec.ValidationError or msgspec.DecodeError, whose text names the field."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    value: T = decoder.decode(raw)
    return value


def convert(kind: type[T], obj: Any) -> T:
    """The same from a plain dict (tests, files of ``pumice dump``)."""
    return msgspec.convert(obj, kind, strict=False)


# -- The conditions in an object's status, which every kind of Kubernetes writes alike -------------------------------


def condition(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Empty while the object has none of this kind."""
    entries = (obj.get("status") or {}).get("conditions") or ()
    return next((entry for entry in entries if entry.get("type") == kind), {})


def holds(obj: Mapping[str, Any], kind: str) -> bool:
    return condition(obj, kind).get("status") == "True"


def is_ready(pod: Mapping[str, Any]) -> bool:
    return holds(pod, "Ready")


# -- ResourceQuotas: what the pods of a namespace may ask for together -----------------------------------------------


class ResourceQuotaSpec(Struct, rename="camel", gc=False):
    hard: Quantities = {}
    scopes: list[str] = []
    scope_selector: dict[str, object] = {}


class ResourceQuotaStatus(Struct, rename="camel", gc=False):
    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)

    @property
    def scoped(self) -> bool:
        """True if it holds for some pods only: which ones a group will have is not known before they are made."""
        return bool(self.spec.scopes or self.spec.scope_selector)


PREFIX = "requests."


def asked_for(hard_name: str) -> str:
    """The resource that a name in a quota is about: ``requests.cpu`` and ``cpu`` are one."""
    return hard_name.removeprefix(PREFIX)


NAME_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression; ``field`` tells a matchFields entry from a label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.accepts(labels.get(self.key))

    def accepts(self, value: str | None) -> bool:
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False  # an unknown operator selects nothing

    def _compares(self, value: str | None) -> bool:
        try:
            left, right = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return left > right if self.operator == "Gt" else left < right


Requirements = tuple[Requirement, ...]


def parse_label_selector(selector: Any) -> Requirements | None:
    """A LabelSelector of pods. None matches nothing (the selector is absent), an empty one matches everything."""
    if not isinstance(selector, Mapping):
        return None
    found = [Requirement(str(k), "In", (str(v),)) for k, v in sorted((selector.get("matchLabels") or {}).items())]
    found += [_requirement(e) for e in selector.get("matchExpressions") or () if isinstance(e, Mapping)]
    return tuple(found)


def parse_node_term(term: Any) -> Requirements | None:
    """One NodeSelectorTerm; an empty or absent term matches no node."""
    if not isinstance(term, Mapping):
        return None
    found = [_requirement(e) for e in term.get("matchExpressions") or () if isinstance(e, Mapping)]
    found += [_requirement(e, field=True) for e in term.get("matchFields") or () if isinstance(e, Mapping)]
    return tuple(found) or None


def match_all(requirements: Requirements | None, labels: Mapping[str, str]) -> bool:
    return requirements is not None and all(r.matches(labels) for r in requirements)


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector takes these labels."""
    return match_all(parse_label_selector(selector), labels)


def _requirement(expression: Mapping[str, Any], *, field: bool = False) -> Requirement:
    values = expression.get("values") or ()
    return Requirement(str(expression.get("key", "")), str(expression.get("operator", "")),
                       tuple(str(v) for v in values), field)  # fmt: skip
