"""One pod as the scheduler sees it, and the statuses that it goes through."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from pumice.engine.state.resources import Request, Vector
from pumice.families.protocol import NO_MARKS, Marks
from pumice.wire.objects import Pod

if TYPE_CHECKING:
    from pumice.engine.state.classes import PodClass
    from pumice.engine.state.features import Features
    from pumice.engine.state.jobs import Job


class Status(IntEnum):
    """Printed names are used in messages (spec volcano-core 4.3)."""

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

_ROLE_VALID = READY_STATUSES | {Status.PIPELINED, Status.PENDING}


class Task(Struct, eq=False):
    """One pod of ours, or one of another scheduler that has a node.

    ``pod`` is kept only while the pod is pending. ``trial`` is where the last discarded attempt had put it.
    ``told`` is the (reason, message) last written as its condition and ``told_at`` when.
    """

    uid: str
    namespace: str
    name: str
    created: float
    priority: int
    cls: PodClass
    marks: Marks = NO_MARKS
    features: Features | None = None
    pod: Pod | None = None
    role: str = ""
    gated: bool = False
    hopeless: bool = False
    """No node could ever hold it when its reasons were last worked out."""
    system: bool = False
    controlled: bool = False
    """Whether some controller makes it anew when it is gone."""
    nominated: str = ""
    index: int = -1
    status: Status = Status.PENDING
    node: str = ""
    job: Job | None = None
    error: str = ""
    """Why it was not placed, in this or an earlier cycle; empty when never tried."""
    puzzling: bool = False
    """It fitted nowhere and ``error`` does not say yet why."""
    trial: tuple[Status, str] | None = None
    told: tuple[str, str] | None = None
    told_at: float = -1e9
    retry_at: float = 0.0
    failures: int = 0
    charged: Vector | None = None
    """What its queue is charged for its cards, where the class alone cannot tell (``PodClass.quota_known_late``)."""

    @property
    def amounts(self) -> Vector:
        """What its queue is charged while it holds a place; shared, never changed in place."""
        return self.cls.amounts if self.charged is None else self.charged

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def request(self) -> Request:
        return self.cls.request

    @property
    def aside(self) -> bool:
        """Whether it cannot start now, whatever is released."""
        return self.gated or self.hopeless

    @property
    def best_effort(self) -> bool:
        return self.request.best_effort and not self.cls.asks

    def order(self) -> tuple[int, int, float, str]:
        """Fall-back order of tasks: index in the name, then age, then uid (spec 7)."""
        return (0, self.index, self.created, self.uid) if self.index >= 0 else (1, 0, self.created, self.uid)


def task_status(pod: Pod) -> Status:
    """Status of a pod by its object alone (spec 4.3)."""
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


def name_index(name: str) -> int:
    """Trailing number of a name of at least three pieces, else -1 (spec 4.3)."""
    pieces = name.rsplit("-", 2)
    return int(pieces[-1]) if len(pieces) == 3 and pieces[-1].isdecimal() else -1
