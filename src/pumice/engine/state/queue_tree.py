"""The tree of queues: who stands above whom, and what each holds together with those below it, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pumice.engine.state.queues import QueueState
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
    _below: dict[QueueState, list[QueueState]] = field(default_factory=dict)
    _counted: dict[QueueState, tuple[Vector, Vector]] = field(default_factory=dict)
    """Each queue's own part of the sums."""
    _held: dict[QueueState, Vector] = field(default_factory=dict)
    _promised: dict[QueueState, Vector] = field(default_factory=dict)
    _everything: Vector = field(default_factory=dict)
    _touched: dict[QueueState, None] = field(default_factory=dict)
    _moved: dict[QueueState, None] = field(default_factory=dict)

    def above(self, queue: QueueState) -> tuple[QueueState, ...]:
        """The queue's parents up to the root. A queue that is its own ancestor has none."""
        self._count()
        return self._above.get(queue, ())

    def below(self, queue: QueueState) -> list[QueueState]:
        """Its children."""
        self._count()
        return self._below.get(queue, [])

    def held(self, queue: QueueState) -> Vector:
        """What it and all below it are charged. Nobody may change it in place."""
        self._count()
        return self._held.get(queue, {})

    def spoken_for(self, queue: QueueState, name: str) -> int:
        """How much of a resource it and all below it hold or were promised, beyond which a job may be started (spec 11.5)."""
        self._count()
        return self._held.get(queue, {}).get(name, 0) + self._promised.get(queue, {}).get(name, 0)

    def all_held(self) -> Vector:
        """What all queues are charged together."""
        self._count()
        return self._everything

    def take_moved(self) -> list[QueueState]:
        """The same as ``take_touched``, for plugins."""
        self._count()
        moved, self._moved = list(self._moved), {}
        return moved

    def take_touched(self) -> list[QueueState]:
        """The queues of which what they hold may have changed since this was asked last."""
        self._count()
        touched, self._touched = list(self._touched), {}
        return touched

    def _count(self) -> None:
        if self._built != self.version:
            self._build()
        if not self.stirred:
            return
        for queue in self.stirred:
            if queue not in self._counted:
                continue  # it is gone
            held, promised = self._counted[queue]
            more = _difference(queue.allocated, held)
            changed = _difference(queue.inqueue, promised, minus=queue.elastic)
            family = (queue, *self._above[queue])
            if more:
                for each in family:
                    self._touched[each] = self._moved[each] = None
                    add(self._held[each], more.items())
                add(self._everything, more.items())
                add(held, more.items())
            if changed:
                for each in family:
                    add(self._promised[each], changed.items())
                add(promised, changed.items())
        self.stirred.clear()

    def _build(self) -> None:
        self._built = self.version
        queues = list(self.queues.values())
        self._above = {queue: self._path(queue) for queue in queues}
        self._below, before = {}, self._held
        for queue, above in self._above.items():
            if above:
                self._below.setdefault(above[0], []).append(queue)
        self._counted = {queue: ({}, {}) for queue in queues}
        self._held = {queue: {} for queue in queues}
        self._promised = {queue: {} for queue in queues}
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


def _difference(now: Vector, before: Vector, *, minus: Vector | None = None) -> Vector:
    """By how much each amount changed."""
    if minus:
        now = dict(now)
        subtract(now, minus.items())
    if now == before:
        return {}
    return {name: value for name in {**now, **before} if (value := now.get(name, 0) - before.get(name, 0))}
