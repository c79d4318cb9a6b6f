"""The vocabulary of effects: what somebody who decides wants done to the world, as plain data.

``Create``, ``Patch``, ``Delete``, ``Event`` and ``Requeue`` are everybody's; then come the scheduler's own (``Bind`` and
below) and the node's own (``PatchPod`` and below).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pumice.model.cards import Allocation
from pumice.ports.cluster import Resource
from pumice.wire.objects import Meta
from pumice.wire.topology import Condition as HyperNodeCondition
from pumice.wire.volcano import PodGroupCondition

Severity = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Create:
    """Make an object, whose own metadata name its namespace."""

    resource: Resource
    obj: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch. With ``uid`` an object that has taken the name since is left alone."""

    resource: Resource
    namespace: str
    name: str
    body: dict[str, Any]
    uid: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object if it is there, and still that very one where ``uid`` is given. ``propagation`` empty: the API server's
    default for the kind."""

    resource: Resource
    namespace: str
    name: str
    uid: str = ""
    propagation: str = ""
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event about one object. ``field_path`` is the part of the object that is meant."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    type: Severity
    reason: str
    message: str
    field_path: str = ""

    @classmethod
    def on_pod(cls, pod: Meta, type_: Severity, reason: str, message: str) -> Event:
        return cls("Pod", "v1", pod.namespace, pod.name, pod.uid, type_, reason, message)

    @classmethod
    def on_node(cls, name: str, type_: Severity, reason: str, message: str) -> Event:
        """The kubelet's own events about a node have its name for a uid, and so have these."""
        return cls("Node", "v1", "", name, name, type_, reason, message)

    @classmethod
    def on(cls, obj: Mapping[str, Any], type_: Severity, reason: str, message: str, *, api_version: str = "", kind: str = "",
           field_path: str = "") -> Event:  # fmt: skip
        """An Event about an object as the API server gave it. ``api_version`` and ``kind`` are for objects of a list or a watch,
        which may not name theirs."""
        meta = obj["metadata"]
        about = (kind or obj.get("kind", ""), api_version or obj.get("apiVersion", ""), meta.get("namespace") or "")
        return cls(*about, meta["name"], meta.get("uid") or "", type_, reason, message, field_path)


@dataclass(frozen=True, slots=True)
class Requeue:
    """Look at the same object once more after so many seconds."""

    seconds: float


# -- of the scheduler --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReserveClaim:
    """Write on a ResourceClaim that a pod uses it. ``allocation`` is its status.allocation, where it was decided for it; None
    where the claim has devices."""

    namespace: str
    name: str
    uid: str
    allocation: dict[str, Any] | None = None
    made: dict[str, Any] | None = None
    """The claim as it is made first, for extended resources of the pod; its name is a fixed one."""
    mappings: tuple[dict[str, str], ...] = ()
    """The requests of it that serve containers' resources, for the pod's status."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Send a Binding; ``annotations`` travel in it."""

    uid: str
    namespace: str
    name: str
    node: str
    annotations: dict[str, str] = field(default_factory=dict)
    allocations: tuple[Allocation, ...] = ()
    gang: str = ""
    """Key of the job when all of its Bindings stand or fall together; else empty."""
    claims: tuple[tuple[str, str], ...] = ()
    """Claims of the pod that have no volume yet, each with the volume that it shall have; empty: one is made for that node."""
    attempt: str = ""
    """Tells the Bindings that were decided together from those of another try of the same gang."""
    lock: str = ""
    """The annotation that is the node's lock for these cards, where the cluster locks nodes at all; empty: they need none."""
    device_claims: tuple[ReserveClaim, ...] = ()
    """Claims of devices that are written before it is bound."""


@dataclass(frozen=True, slots=True)
class Deallocate:
    """Take back the reservation of a claim for a pod without a place, and its devices with the last one: no node that can use
    them takes the pod."""

    namespace: str
    name: str
    uid: str
    pod: str


@dataclass(frozen=True, slots=True)
class PodCondition:
    """Write PodScheduled=False and, when ``event``, a Warning event with the same text."""

    uid: str
    namespace: str
    name: str
    reason: str
    message: str
    event: bool = True


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Write a PodGroup's status."""

    namespace: str
    name: str
    phase: str
    conditions: tuple[PodGroupCondition, ...]
    running: int
    succeeded: int
    failed: int
    minor: bool = False
    """Only numbers are new: nobody waits for them."""


@dataclass(frozen=True, slots=True)
class QueueAllocated:
    """Write a queue's status.allocated."""

    name: str
    allocated: dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class HyperNodeStatus:
    """Write what became of a HyperNode's words. ``conditions`` are all that it has then."""

    name: str
    node_count: int
    conditions: tuple[HyperNodeCondition, ...]


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete a pod with the marks of an eviction. ``gently``: by the Eviction API instead, which asks its
    PodDisruptionBudgets."""

    uid: str
    namespace: str
    name: str
    reason: str
    gently: bool = False


@dataclass(frozen=True, slots=True)
class Nominate:
    """Write status.nominatedNodeName: the node on which room is made for the pod; empty: nowhere any more."""

    uid: str
    namespace: str
    name: str
    node: str


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Take the scheduling gate off a pod that its queue has room for."""

    uid: str
    namespace: str
    name: str


SchedulerEffect = (
    Bind | Deallocate | PodCondition | Event | GroupStatus | QueueAllocated | HyperNodeStatus | Evict | Nominate | OpenGate
)


# -- of a node ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PatchPod:
    """Set annotations on one pod; ``uid`` keeps a pod of the same name that came later from being touched."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str | None]

    @classmethod
    def of(cls, pod: Meta, annotations: Mapping[str, str | None]) -> PatchPod:
        return cls(pod.namespace, pod.name, pod.uid, annotations)


@dataclass(frozen=True, slots=True)
class EndPod:
    """Have the kubelet end a pod for good, whatever its restart policy, as it does past a deadline: a foreign status that says
    Failed it takes back, and starts the containers anew (seen with 1.36). ``annotation`` and ``message`` say why on the pod."""

    namespace: str
    name: str
    uid: str
    annotation: str
    message: str

    @classmethod
    def of(cls, pod: Meta, annotation: str, message: str) -> EndPod:
        return cls(pod.namespace, pod.name, pod.uid, annotation, message)


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Set or remove (None) annotations and labels of the own node; of that ``version`` alone, where one is given."""

    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Set or remove (None) extended resources in the own node's capacity and allocatable, and annotations with them."""

    resources: Mapping[str, str | None]
    annotations: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstallFile:
    """Write ``content`` under a name of its own in the same folder, sync it, and rename it to ``path``. ``keep``: not where
    something is there already. Not ``durable``: it is not synced, which takes longer than the kubelet should wait."""

    path: str
    content: bytes
    mode: int
    keep: bool = False
    durable: bool = True


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """A directory on the host. ``fresh``: what was there before goes away first."""

    path: str
    mode: int = 0o1777
    fresh: bool = False


NodeEffect = PatchPod | EndPod | PatchNode | PatchStatus | Event | MakeDirectory | InstallFile
