"""The slice of Kubernetes objects that we read, decoded by msgspec straight from the API server's bytes.

Only fields that some room reads are declared; everything else is skipped while decoding. The structs are not tracked
by the garbage collector (``gc=False``): they hold no cycles, and bulk decoding would otherwise be dominated by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from pumice.wire.kubernetes import MIRROR

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


def is_mirror(pod: Pod) -> bool:
    """Return whether it is the picture of a static pod; the API server lets nobody change that afterwards."""
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
