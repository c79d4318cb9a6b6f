"""What queues hold together with those below them, kept up to date by what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pumice.engine.state.queues import QueueState
from pumice.engine.state.resources import Vector, add, subtract


@dataclass(slots=True)
class Rollup:
    """Sums over the tree of queues."""

    _shape: list[tuple[QueueState, str, str]] = field(default_factory=list)
    _counted: dict[QueueState, tuple[int, Vector]] = field(default_factory=dict)
    """Version of each queue and what it held as it stands in the sums."""
    _sums: dict[QueueState, Vector] = field(default_factory=dict)

    def update(
        self, queues: Mapping[str, QueueState], ancestors: Callable[[QueueState], list[QueueState]]
    ) -> list[QueueState]:
        """Bring the sums up to date; the queues whose sums may have changed."""
        shape = [(queue, queue.parent, queue.problem) for queue in queues.values()]
        if shape != self._shape:
            self._shape, self._counted = shape, {}
            self._sums = {queue: {} for queue, _, _ in shape}
        touched: dict[QueueState, None] = {}
        for queue in queues.values():
            version, before = self._counted.get(queue, (-1, {}))
            if version == queue.version:
                continue
            for each in (queue, *ancestors(queue)):
                touched[each] = None
                total = self._sums[each]
                subtract(total, before.items())
                add(total, queue.allocated.items())
            self._counted[queue] = queue.version, dict(queue.allocated)
        return list(touched)

    def of(self, queue: QueueState) -> Vector:
        return {name: value for name, value in self._sums[queue].items() if value}
