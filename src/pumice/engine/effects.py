"""What a cycle wants done in the world, as plain data. ``apps/scheduler`` performs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pumice.model.cards import Grant
from pumice.wire.topology import Condition as HyperNodeCondition
from pumice.wire.volcano import PodGroupCondition


@dataclass(frozen=True, slots=True)
class Bind:
    """Send a Binding; ``annotations`` travel in it (decision 4)."""

    uid: str
    namespace: str
    name: str
    node: str
    annotations: dict[str, str] = field(default_factory=dict)
    grants: tuple[Grant, ...] = ()
    gang: str = ""
    """Key of the job when all of its Bindings stand or fall together; else empty."""
    claims: tuple[tuple[str, str], ...] = ()
    """Claims of the pod that have no volume yet, each with the volume that it shall have; empty: one is made for that node."""
    attempt: str = ""
    """Tells the Bindings that were decided together from those of another try of the same gang."""
    lock: str = ""
    """The annotation that is the node's lock for these cards, where the cluster locks nodes at all; empty: they need none."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """Write PodScheduled=False and, when ``event``, a Warning event with the same text (spec 13.4)."""

    uid: str
    namespace: str
    name: str
    reason: str
    message: str
    event: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event about one object."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Write a PodGroup's status (spec 13.1)."""

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
    """Write a queue's status.allocated (spec 13.6)."""

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
    """Delete a pod with the marks of an eviction (spec 12.2)."""

    uid: str
    namespace: str
    name: str
    reason: str


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


Effect = Bind | PodCondition | Event | GroupStatus | QueueAllocated | HyperNodeStatus | Evict | Nominate | OpenGate
