"""The tree of queues: who stands above whom, and what each holds together with those below it, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pumice.engine.state.jobs import QueueState
from pumice.engine.state.resources import Vector, add, subtract
from pumice.wire.names import ROOT_QUEUE


@dataclass(slots=True)
class QueueTree:
    """The queues by their parents. A queue that names none, or is its own ancestor, stands directly below the root."""

    queues: Mapping[str, QueueState] = field(default_factory=dict)
    version: int = 0
    """Raised when a queue comes, goes, or says something else."""
    stirred: dict[QueueState, None] = field(default_factory=dict)
    """Queues whose own sums changed since they were counted here."""
    _built: int = -1
    _above: dict[QueueState, tuple[QueueState, ...]] = field(default_factory=dict)
    _counted: dict[QueueState, tuple[Vector, Vector, Vector]] = field(default_factory=dict)
    """Each queue's own part of the sums."""
    _held: dict[QueueState, Vector] = field(default_factory=dict)
    _awaited: dict[QueueState, Vector] = field(default_factory=dict)
    _started: dict[QueueState, Vector] = field(default_factory=dict)
    """What was promised to jobs, without what they hold beyond their minimum (spec 11.5: inqueue and elastic)."""
    _everything: Vector = field(default_factory=dict)
    _touched: dict[QueueState, None] = field(default_factory=dict)
    _moved: dict[QueueState, None] = field(default_factory=dict)

    def above(self, queue: QueueState) -> tuple[QueueState, ...]:
        """The queue's parents up to the root. A queue that is its own ancestor has none."""
        if self._built != self.version:  # who stands above whom hangs on no sum, and is asked for each pod
            self._build()
        return self._above.get(queue, ())

    def held(self, queue: QueueState) -> Vector:
        """Return what it and all below it are charged. Nobody may change it in place."""
        self._count()
        return self._held.get(queue, {})

    def taken(self, queue: QueueState) -> Vector:
        """The same with what they wait for because it was promised to them."""
        self._count()
        return together(self._held.get(queue, {}), self._awaited.get(queue, {}))

    def all_taken(self) -> Vector:
        """Return what all queues have taken."""
        self._count()
        return self._everything

    def spoken_for(self, queue: QueueState, name: str) -> int:
        """How much of a resource it and all below it hold or were promised, beyond which a job may be started (spec 11.5)."""
        self._count()
        return self._held.get(queue, {}).get(name, 0) + self._started.get(queue, {}).get(name, 0)

    def take_touched(self) -> list[QueueState]:
        """The queues of which what they hold may have changed since this was asked last."""
        self._count()
        touched, self._touched = list(self._touched), {}
        return touched

    def take_moved(self) -> list[QueueState]:
        """The same for what they have taken."""
        self._count()
        moved, self._moved = list(self._moved), {}
        return moved

    def _count(self) -> None:
        if self._built != self.version:
            self._build()
        if not self.stirred:
            return
        for queue in self.stirred:
            if queue not in self._counted:
                continue  # it is gone
            held, awaited, started = self._counted[queue]
            family = (queue, *self._above[queue])
            if more := _difference(queue.allocated, held):
                _apply(more, held, self._everything, *(self._held[each] for each in family))
                for each in family:
                    self._touched[each] = self._moved[each] = None
            if more := _difference(queue.awaited, awaited):
                _apply(more, awaited, self._everything, *(self._awaited[each] for each in family))
                self._moved.update(dict.fromkeys(family))
            if more := _difference(queue.inqueue, started, minus=queue.elastic):
                _apply(more, started, *(self._started[each] for each in family))
        self.stirred.clear()

    def _build(self) -> None:
        self._built = self.version
        queues, before = list(self.queues.values()), self._held
        self._above = {queue: self._path(queue) for queue in queues}
        self._counted = {queue: ({}, {}, {}) for queue in queues}
        self._held, self._awaited, self._started = ({queue: Vector() for queue in queues} for _ in range(3))
        self._everything, self._moved = {}, dict.fromkeys(queues)
        self._touched.update(dict.fromkeys(queue for queue in queues if before.get(queue)))
        self.stirred.update(dict.fromkeys(queues))

    def _path(self, queue: QueueState) -> tuple[QueueState, ...]:
        found: list[QueueState] = []
        at = queue
        while not at.problem and at.name != ROOT_QUEUE:
            parent = self.queues.get(at.parent or ROOT_QUEUE)
            if parent is None or parent in found:
                break
            found.append(parent)
            at = parent
        return tuple(found)


def together(held: Vector, awaited: Vector) -> Vector:
    """Return what is held and what is waited for."""
    if not awaited:
        return held
    total = dict(held)
    add(total, awaited.items())
    return total


def _difference(now: Vector, before: Vector, *, minus: Vector | None = None) -> Vector:
    """By how much each amount changed."""
    if minus:
        now = dict(now)
        subtract(now, minus.items())
    if now == before:
        return {}
    return {name: value for name in {**now, **before} if (value := now.get(name, 0) - before.get(name, 0))}


def _apply(more: Vector, *sums: Vector) -> None:
    """Amounts that are nothing are left out, so that what is equal compares as equal."""
    less = [(name, -value) for name, value in more.items()]
    for total in sums:
        subtract(total, less)
