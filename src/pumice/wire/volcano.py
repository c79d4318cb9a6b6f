"""Volcano's own API objects and the Kubernetes resources that scheduler and controllers meet.

PodGroup and Queue: Volcano pkg/controllers/podgroup, Volcano pkg/controllers/queue. Only fields that some room reads are
declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from pumice.ports.cluster import Resource
from pumice.wire import names
from pumice.wire.objects import Meta, OwnerReference, Quantities
from pumice.wire.quantity import parse_quantity
from pumice.wire.times import seconds, stamp
from pumice.wire.topology import TOPOLOGY, Condition, NetworkTopology, SubGroupPolicy

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


class PodGroupCondition(Condition, rename="camel", gc=False, omit_defaults=True):
    transition_id: str = msgspec.field(default="", name="transitionID")


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
    """Return why these annotations are no place in a tree of queues; empty where they are one, or say nothing (Volcano
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


def default_queue(name: str, *, reclaimable: bool) -> dict[str, Any]:
    """The Queue objects ``default`` and ``root`` as the scheduler creates them at start (Volcano cmd/scheduler/app)."""
    return {
        "apiVersion": SCHEDULING_API,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": reclaimable},
    }


# -- Which groups of nodes a queue may and would rather use ----------------------------------------------------------

# ``spec.affinity`` and an annotation of a Queue. A node's group is its label (docs/reference/topology.md).

NODE_GROUP: Final = "volcano.sh/nodegroup-name"
LIMITS: Final = "volcano.sh/nodegroup-resource-limits"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """The affinity of a queue to groups of nodes. ``limits``: per group and resource how much the queue may hold there, as it
    is written."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""
    """Why the annotation cannot be read."""

    @property
    def chosen(self) -> bool:
        """True if it says anything of groups."""
        return bool(self.required or self.preferred or self.anti_required or self.anti_preferred)


NO_GROUPS: Final = NodeGroups()


def node_groups_of(queue: Queue) -> NodeGroups:
    affinity, text = queue.spec.affinity, queue.metadata.annotations.get(LIMITS, "")
    if not affinity and not text:
        return NO_GROUPS
    with_, without = affinity.get("nodeGroupAffinity"), affinity.get("nodeGroupAntiAffinity")
    limits, problem = _limits(text)
    return NodeGroups(
        _names(with_, REQUIRED), _names(with_, PREFERRED), _names(without, REQUIRED), _names(without, PREFERRED), limits, problem
    )


def _limits(text: str) -> tuple[Mapping[str, Mapping[str, Any]], str]:
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        return {}, f"annotation {LIMITS} is no JSON: {error}"
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        return {}, f"annotation {LIMITS} does not name a resource list for each group"
    amounts = [amount for part in found.values() for amount in part.values()]
    wrong = next((amount for amount in amounts if not _is_quantity(amount)), None)
    return ({}, f"annotation {LIMITS}: {wrong!r} is no quantity") if wrong is not None else (found, "")


def _is_quantity(value: Any) -> bool:
    try:
        return isinstance(value, str | int | float) and parse_quantity(value) >= 0
    except ValueError:
        return False


def _names(rules: Any, key: str) -> tuple[str, ...]:
    named = rules.get(key) if isinstance(rules, dict) else None
    return tuple(dict.fromkeys(str(name) for name in named)) if isinstance(named, list) else ()


# -- The condition of a PodGroup that names the nodes reserved for it ------------------------------------------------

# A condition of our own, which a restarted scheduler reads again.

RESERVED: Final = "Reserved"
"""The condition's type. Its last transition is when the nodes were taken, or given back."""
HELD: Final = "NodesHeld"
OVER: Final = "TimeOver"
_WORDS: Final = "Nothing of lower rank is placed on "


def held(nodes: frozenset[str], since: float) -> PodGroupCondition:
    return PodGroupCondition(RESERVED, "True", HELD, _WORDS + ", ".join(sorted(nodes)), stamp(since))


def given_back(reason: str, text: str, when: float) -> PodGroupCondition:
    return PodGroupCondition(RESERVED, "False", reason, text, stamp(when))


def nodes_of(condition: PodGroupCondition) -> frozenset[str]:
    """Those that are held; none where it says otherwise, or what nobody can read."""
    if condition.status != "True" or not condition.message.startswith(_WORDS):
        return frozenset()
    return frozenset(filter(None, condition.message.removeprefix(_WORDS).split(", ")))


def since(condition: PodGroupCondition) -> float:
    """The time of day of its last transition; 0 where it has none."""
    return seconds(condition.last_transition_time)
