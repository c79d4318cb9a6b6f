"""One pod as the scheduler sees it, but for the job that it belongs to (``jobs.Task``)."""

from __future__ import annotations

from msgspec import Struct

from pumice.devices.protocol import NO_MARKS, Marks
from pumice.engine.state.classes import PodClass
from pumice.engine.state.features import Features
from pumice.engine.state.reason import Reason
from pumice.engine.state.resources import Request, Vector
from pumice.engine.state.statuses import Status
from pumice.engine.state.yielding import USUAL, Yielding
from pumice.wire.objects import Pod


class IllegalMove(AssertionError):
    """A task was to go where no path leads: our own error, told with the task's story."""


class TaskRecord(Struct, eq=False):
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
    yielding: Yielding = USUAL
    features: Features | None = None
    pod: Pod | None = None
    role: str = ""
    gated: bool = False
    awaits_queue: bool = False
    """Its only gate is the one that its queue opens."""
    let_in: bool = False
    """Its queue let it through that gate, and keeps what it asks for until it has a place."""
    hopeless: bool = False
    """No node could ever hold it when its reasons were last worked out."""
    spared: bool = False
    """Its eviction was refused a moment ago: it is not told to go."""
    controlled: bool = False
    """Whether some controller makes it anew when it is gone."""
    nominated: str = ""
    queue: str = ""
    """The queue that its annotation names: its job's, where no PodGroup says otherwise."""
    index: int = -1
    status: Status = Status.PENDING
    node: str = ""
    error: Reason | None = None
    """Why it was not placed, in this or an earlier cycle; None when never tried."""
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
        return (self.gated and not self.awaits_queue) or self.hopeless

    @property
    def best_effort(self) -> bool:
        return self.request.best_effort and not self.cls.asks

    def order(self) -> tuple[int, int, float, str]:
        """Fall-back order of tasks: index in the name, then age, then uid (spec 7)."""
        return (0, self.index, self.created, self.uid) if self.index >= 0 else (1, 0, self.created, self.uid)


def name_index(name: str) -> int:
    """Trailing number of a name of at least three pieces, else -1 (spec 4.3)."""
    pieces = name.rsplit("-", 2)
    return int(pieces[-1]) if len(pieces) == 3 and pieces[-1].isdecimal() else -1
