"""One pod as the scheduler sees it, but for the job that it belongs to (``jobs.Task``): status, reason, how it yields."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum, auto
from functools import lru_cache
from typing import Final

from msgspec import Struct

from pumice.devices.protocol import NO_MARKS, Marks
from pumice.effects.backoff import Backoff
from pumice.scheduler.state.claim_charges import Part
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.resources import Request, Vector
from pumice.scheduler.state.terms import Features
from pumice.wire.names import CHECKPOINTED_AT, COOLDOWN_TIME, MOVE, PREEMPTABLE, REVOCABLE_ZONE
from pumice.wire.objects import Pod
from pumice.wire.quantity import parse_duration
from pumice.wire.times import seconds

# -- statuses, and where each may lead ---------------------------------------------------------------------------------


class Status(IntEnum):
    """Printed names are used in messages (Volcano pkg/scheduler/api/job_info.go)."""

    PENDING = 0
    ALLOCATED = 1
    PIPELINED = 2
    BINDING = 3
    BOUND = 4
    RUNNING = 5
    RELEASING = 6
    SUCCEEDED = 7
    FAILED = 8
    UNKNOWN = 9

    __hash__ = int.__hash__  # Enum's own is a Python function, and every pod is looked up by its status

    @property
    def label(self) -> str:
        return self.name.capitalize()


ALLOCATED_STATUSES = frozenset({Status.BOUND, Status.BINDING, Status.RUNNING, Status.ALLOCATED})
READY_STATUSES = ALLOCATED_STATUSES | {Status.SUCCEEDED}
SCHEDULED_STATUSES = frozenset({Status.RUNNING, Status.BOUND, Status.SUCCEEDED, Status.FAILED})
DONE_STATUSES = frozenset({Status.SUCCEEDED, Status.FAILED})

_SHOWN = frozenset({Status.BOUND, Status.RUNNING, Status.RELEASING, Status.SUCCEEDED, Status.FAILED, Status.UNKNOWN})
"""Statuses that the API server may show of a pod whatever it was before: others write them."""
MOVES: Mapping[Status, frozenset[Status]] = {
    Status.PENDING: _SHOWN | {Status.ALLOCATED, Status.PIPELINED},
    Status.ALLOCATED: frozenset({Status.BINDING, Status.PENDING, Status.PIPELINED}),  # no event comes between a trial and its end
    Status.PIPELINED: _SHOWN | {Status.PENDING, Status.ALLOCATED},  # a nomination outlives the cycle
    Status.BINDING: _SHOWN | {Status.PENDING},
    Status.BOUND: _SHOWN,  # an event that shows it without a node is older
    Status.RUNNING: _SHOWN | {Status.PENDING},
    Status.RELEASING: _SHOWN | {Status.PENDING, Status.BINDING},  # an eviction was refused while its Binding was on its way
    Status.SUCCEEDED: _SHOWN | {Status.PENDING},
    Status.FAILED: _SHOWN | {Status.PENDING},
    Status.UNKNOWN: _SHOWN | {Status.PENDING},
}
"""From each status those that may come next."""


def task_status(pod: Pod) -> Status:
    """Status of a pod by its object alone (Volcano pkg/scheduler/api/job_info.go)."""
    phase = pod.status.phase
    if phase == "Succeeded":
        return Status.SUCCEEDED
    if phase == "Failed":
        return Status.FAILED
    if pod.metadata.deletion_timestamp:
        return Status.RELEASING
    if phase == "Running":
        return Status.RUNNING
    if phase == "Unknown":
        return Status.UNKNOWN
    return Status.BOUND if pod.spec.node_name else Status.PENDING


# -- the reason why a pod waits, of which condition, event, metric and ``pumice explain`` are rendered -----------------


class Cause(StrEnum):
    """The reason for which a pod waits, in one word: the label ``reason`` of ``pumice_pending_pods``."""

    NEW = "new"
    GATED = "gated"
    QUEUE = "queue"
    GANG = "gang"
    RELEASING = "releasing"
    UNSCHEDULABLE = "unschedulable"


class Reason(Struct, frozen=True, gc=False):
    """Shared by all pods of which the same is to be said."""

    cause: Cause
    text: str


def by_nodes(text: str) -> Reason:
    """No node may or can take it."""
    return Reason(Cause.UNSCHEDULABLE, text)


def by_queue(text: str) -> Reason:
    """Its queue, or what has to be asked before its pods are tried, keeps it back."""
    return Reason(Cause.QUEUE, text)


def by_gang(text: str) -> Reason:
    """Its gang lacks members, or could not be bound."""
    return Reason(Cause.GANG, text)


# -- what a pod says of eviction: which pods it may evict, and what protects it ----------------------------------------


SYSTEM_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
EVERY_ZONE: Final = "*"
"""The only value of the annotation that means something."""
SYSTEM_NAMESPACE: Final = "kube-system"
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


class Yielding(Struct, frozen=True, cache_hash=True):
    """Equal ones are one object: nearly all pods are alike in this."""

    preemptable: bool = True
    """Its annotation or label lets it go; what cannot be read does not."""
    preempts: bool = True
    """Its preemptionPolicy lets others go for it."""
    revocable: bool = False
    """It may run on nodes that are lent for some hours (plugin tdm): it says so, or says that it may be evicted."""
    system: bool = False
    cooldown: float = 0.0
    """It is not evicted within so many seconds after it started (plugin cdp)."""
    started: float = 0.0
    """Time of that; known only of pods that have a cooldown time."""


USUAL: Final = Yielding()
_SAID: Final = frozenset({PREEMPTABLE, COOLDOWN_TIME, REVOCABLE_ZONE})
"""Annotations and labels without one of which a pod is as it is usual."""


def yielding(pod: Pod) -> Yielding:
    meta, spec = pod.metadata, pod.spec
    system = spec.priority_class_name in SYSTEM_CLASSES or meta.namespace == SYSTEM_NAMESPACE
    preempts = spec.preemption_policy != "Never"
    if _SAID.isdisjoint(meta.annotations) and _SAID.isdisjoint(meta.labels):
        return USUAL if preempts and not system else _shared(True, preempts, False, system, 0.0, 0.0)
    said = meta.annotations.get(PREEMPTABLE, meta.labels.get(PREEMPTABLE, "true"))
    cooldown = meta.annotations.get(COOLDOWN_TIME) or meta.labels.get(COOLDOWN_TIME, "")
    pause = _seconds(cooldown)
    started = seconds(pod.status.start_time) if pause and pod.status.start_time else 0.0
    zone = meta.annotations.get(REVOCABLE_ZONE)
    revocable = zone == EVERY_ZONE if zone is not None else meta.annotations.get(PREEMPTABLE) in _TRUE
    return _shared(said in _TRUE, preempts, revocable, system, pause, started)


@lru_cache(maxsize=4096)
def _shared(
    preemptable: bool, preempts: bool, revocable: bool, system: bool, cooldown: float, started: float
) -> Yielding:
    found = Yielding(preemptable, preempts, revocable, system, cooldown, started)
    return USUAL if found == USUAL else found


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) if text else 0.0
    except ValueError:
        return 0.0


# -- what a pod says of being moved ------------------------------------------------------------------------------------


class Moving(Struct, frozen=True):
    """Equal for nearly all pods: they say nothing."""

    allowed: bool = True
    """Its annotation lets it be moved; what cannot be read does not."""
    checkpoint: str = ""
    """Time at which its work was last saved, as the annotation has it; a claim of the pod's owner."""


SILENT: Final = Moving()
_STAMP: Final = 40
"""A longer text is no time."""


def moving(pod: Pod) -> Moving:
    notes = pod.metadata.annotations
    if MOVE not in notes and CHECKPOINTED_AT not in notes:
        return SILENT
    return Moving(notes.get(MOVE, "true") in _TRUE, notes.get(CHECKPOINTED_AT, "")[:_STAMP])


# -- tasks -------------------------------------------------------------------------------------------------------------


class IllegalMove(AssertionError):
    """A task was to go where no path leads: our own error, told with the task's story."""


class Gate(Enum):
    """The scheduling gates of a pod, taken together."""

    NONE = auto()
    HELD = auto()
    """A gate that others open holds it."""
    QUEUE = auto()
    """Its only gate is the one that its queue opens."""
    OPENING = auto()
    """Its queue let it through that gate, which is still on the pod; what it asks for is kept for it."""
    OPENED = auto()
    """The gate of its queue is gone; what it asks for is kept for it until it has a place."""

    __hash__ = object.__hash__


class Retry(Struct, frozen=True, gc=False):
    """A pause until something is tried again that the API server refused ``times`` in a row."""

    until: float = 0.0
    times: int = 0
    because: str = ""

    def refused(self, now: float, backoff: Backoff, because: str = "") -> Retry:
        """Return what holds after one more refusal."""
        return Retry(now + backoff.pause(self.times), self.times + 1, because)


NO_BACKOFF: Final = Retry()


class TaskRecord(Struct, eq=False):
    """One pod of ours, or one of another scheduler that has a node.

    ``pod`` is kept only while the pod is pending. ``trial`` is where the last discarded attempt had put it.
    ``condition`` is the (reason, message) last written and ``condition_renewal`` after how many renewals
    (``SchedulingQueue.renew``).
    """

    uid: str
    namespace: str
    name: str
    created: float
    priority: int
    cls: PodClass
    marks: Marks = NO_MARKS
    yielding: Yielding = USUAL
    features: Features | None = None
    pod: Pod | None = None
    role: str = ""
    gate: Gate = Gate.NONE
    unresolvable: bool = False
    """No node could ever hold it when its reasons were last worked out."""
    spared: bool = False
    """Its eviction was refused a moment ago: it is not told to go."""
    owner: str = ""
    """The uid of the controller that makes it anew when it is gone; empty where there is none."""
    moving: Moving = SILENT
    started: float = 0.0
    """Time of its start by its status; 0 where that does not say."""
    nominated: str = ""
    queue: str = ""
    """The queue that its annotation names: its job's, where no PodGroup says otherwise."""
    index: int = -1
    version: int = 0
    """Its resource version as last seen: watches repeat themselves."""
    status: Status = Status.PENDING
    node: str = ""
    error: Reason | None = None
    """Why it was not placed, in this or an earlier cycle; None when never tried."""
    unexplained: bool = False
    """It fitted nowhere and ``error`` does not say yet why."""
    trial: tuple[Status, str] | None = None
    condition: tuple[str, str] | None = None
    condition_renewal: int = -1
    backoff: Retry = NO_BACKOFF
    """Its Binding was refused: it is not tried before."""
    charged: Vector | None = None
    """The charge of its queue for its cards and its own claims, where the class alone cannot tell
    (``PodClass.quota_known_late``)."""
    shared_claims: tuple[Part, ...] = ()
    """Claims that it has its place with and that other pods may use: its queue pays for each of them once."""

    @property
    def amounts(self) -> Vector:
        """Return what its queue is charged while it holds a place; shared, never changed in place."""
        return self.cls.amounts if self.charged is None else self.charged

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def controlled(self) -> bool:
        """Return whether some controller makes it anew when it is gone."""
        return bool(self.owner)

    @property
    def request(self) -> Request:
        return self.cls.request

    @property
    def gated(self) -> bool:
        """Return whether a scheduling gate is on it."""
        return self.gate is not Gate.NONE and self.gate is not Gate.OPENED

    @property
    def awaits_queue(self) -> bool:
        """Return whether its only gate is the one that its queue opens."""
        return self.gate is Gate.QUEUE or self.gate is Gate.OPENING

    @property
    def let_in(self) -> bool:
        """Return whether its queue let it in, and keeps what it asks for until it has a place."""
        return self.gate is Gate.OPENING or self.gate is Gate.OPENED

    @property
    def aside(self) -> bool:
        """Return whether it cannot start now, whatever is released."""
        return self.gate is Gate.HELD or self.unresolvable

    @property
    def best_effort(self) -> bool:
        return self.request.best_effort and not self.cls.device_requests

    @property
    def asks_nothing(self) -> bool:
        """Return whether it is left to backfill: one that asks for devices by claim alone is placed with the others of its gang,
        though no queue counts what it requests."""
        return self.best_effort and not self.cls.device_claims

    def order(self) -> tuple[int, int, float, str]:
        """Fall-back order of tasks: index in the name, then age, then uid (Volcano
        pkg/scheduler/framework/session_plugins.go)."""
        return (0, self.index, self.created, self.uid) if self.index >= 0 else (1, 0, self.created, self.uid)


def name_index(name: str) -> int:
    """Trailing number of a name of at least three pieces, else -1 (Volcano pkg/scheduler/api/job_info.go)."""
    parts = name.rsplit("-", 2)
    return int(parts[-1]) if len(parts) == 3 and parts[-1].isdecimal() else -1
