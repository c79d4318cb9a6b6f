"""Volcano's own API objects and the Kubernetes resources that scheduler and controllers meet.

PodGroup and Queue: Volcano pkg/controllers/podgroup, Volcano pkg/controllers/queue. Only fields that some room reads are
declared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from pumice.ports.cluster import Resource
from pumice.wire import names
from pumice.wire.objects import Meta, OwnerReference, Quantities
from pumice.wire.topology import TOPOLOGY, NetworkTopology, SubGroupPolicy

VOLCANO: Final = names.VOLCANO_GROUP

POD_GROUPS: Final = Resource(VOLCANO, "v1beta1", "podgroups")
QUEUES: Final = Resource(VOLCANO, "v1beta1", "queues", namespaced=False)
HYPER_NODES: Final = Resource(TOPOLOGY, "v1alpha1", "hypernodes", namespaced=False)
JOBS: Final = Resource("batch.volcano.sh", "v1alpha1", "jobs")
FLOW: Final = "flow.volcano.sh"
JOB_FLOWS: Final = Resource(FLOW, "v1alpha1", "jobflows")
COMMANDS: Final = Resource("bus.volcano.sh", "v1alpha1", "commands")

BUS_API: Final = "bus.volcano.sh/v1alpha1"
CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"
SCHEDULING_API: Final = f"{VOLCANO}/v1beta1"

PENDING: Final = "Pending"
INQUEUE: Final = "Inqueue"
RUNNING: Final = "Running"
UNKNOWN: Final = "Unknown"
COMPLETED: Final = "Completed"

OPEN: Final = "Open"
CLOSED: Final = "Closed"
CLOSING: Final = "Closing"

FIFO: Final = "fifo"
"""A queue's ``dequeueStrategy``; the other, and the default, is ``traverse``."""
HIERARCHY: Final = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS: Final = "volcano.sh/hierarchy-weights"


class PodGroupCondition(Struct, rename="camel", gc=False, omit_defaults=True):
    type: str = ""
    status: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""

    def same(self, other: PodGroupCondition) -> bool:
        """Equal apart from the fields that every cycle would change (Volcano pkg/scheduler/framework/job_updater.go)."""
        return (self.type, self.status, self.reason, self.message) == (
            other.type, other.status, other.reason, other.message)  # fmt: skip


class PodGroupSpec(Struct, rename="camel", gc=False):
    min_member: int = 0
    min_task_member: dict[str, int] = {}
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Quantities | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[SubGroupPolicy] = []


class PodGroupStatus(Struct, rename="camel", gc=False):
    phase: str = ""
    conditions: list[PodGroupCondition] = []
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class Guarantee(Struct, rename="camel", gc=False):
    resource: Quantities = {}


class QueueSpec(Struct, rename="camel", gc=False):
    weight: int = 1
    capability: Quantities = {}
    guarantee: Guarantee = msgspec.field(default_factory=Guarantee)
    deserved: Quantities = {}
    reclaimable: bool | None = None
    parent: str = ""
    priority: int = 0
    affinity: dict[str, Any] = {}
    dequeue_strategy: str = ""
    extend_clusters: list[dict[str, Any]] = []


class Hierarchy(Struct, frozen=True):
    """A queue's place in the tree of hierarchical drf: the names from the root to itself, and the weight of each."""

    path: tuple[str, ...]
    weights: tuple[float, ...]


class QueueStatus(Struct, rename="camel", gc=False):
    state: str = ""
    allocated: Quantities = {}


class Queue(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class Command(Struct, rename="camel", gc=False):
    """A command for a Queue or a Job (volcano.sh/apis bus/v1alpha1)."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    action: str = ""
    target: OwnerReference = msgspec.field(default_factory=OwnerReference)


class PriorityClass(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    value: int = 0
    global_default: bool = False


def hierarchy_of(queue: Queue) -> Hierarchy | None:
    """Raises nothing: a path that is not one counts as absent (``hierarchy_problem`` says why)."""
    notes = queue.metadata.annotations
    if HIERARCHY not in notes or hierarchy_problem(notes):
        return None
    path = notes[HIERARCHY].strip("/").split("/")
    weights = [float(weight) for weight in notes[HIERARCHY_WEIGHTS].strip("/").split("/")]
    if path[0] != names.ROOT_QUEUE:  # upstream's admission writes it in front
        path, weights = [names.ROOT_QUEUE, *path], [1.0, *weights]
    return Hierarchy(tuple(path), tuple(weights))


def hierarchy_problem(notes: Mapping[str, str]) -> str:
    """Why these annotations are no place in a tree of queues; empty where they are one, or say nothing (Volcano
    pkg/webhooks/admission/queues)."""
    path, weights = notes.get(HIERARCHY), notes.get(HIERARCHY_WEIGHTS)
    if path is None and weights is None:
        return ""
    words, numbers = (path or "").strip("/").split("/"), (weights or "").strip("/").split("/")
    if len(words) != len(numbers):
        return f"{HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}"
    if not all(words):
        return f"{HIERARCHY} {path!r} has an empty name"
    for number in numbers:
        try:
            value = float(number)
        except ValueError:
            return f"{number} in the {weights} is invalid number"
        if not 0 < value < float("inf"):
            return f"{number} in the {weights} must be larger than 0"
    return ""


MADE_FOR_PODS = "podgroup-"
"""Prefix of the names of PodGroups that controllers make for pods that name none."""


def group_name_for(uid: str) -> str:
    """Name of the PodGroup of bare pods; ``uid`` is the controlling owner's, else the pod's (Volcano
    pkg/controllers/podgroup)."""
    return f"{MADE_FOR_PODS}{uid}"


@lru_cache(maxsize=4096)
def seconds(stamp: str | None) -> float:
    """Unix seconds of a Kubernetes time stamp (whole or with microseconds); 0 when absent or malformed."""
    if not stamp or stamp[4:17:3] != "--T::":  # ISO 8601 knows many more forms, Kubernetes none
        return 0.0
    try:
        return int(datetime.fromisoformat(f"{stamp[:19]}Z").timestamp())
    except ValueError:
        return 0.0


def stamp(now: float) -> str:
    """RFC 3339 with whole seconds, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def micro_stamp(now: float) -> str:
    """RFC 3339 with microseconds, as Lease and Event want it."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1e6):06d}Z"


def default_queue(name: str, *, reclaimable: bool) -> dict[str, Any]:
    """The Queue objects ``default`` and ``root`` as the scheduler creates them at start (Volcano cmd/scheduler/app)."""
    return {
        "apiVersion": SCHEDULING_API,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": reclaimable},
    }
