"""In which order queues take turns within a cycle."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from typing import Any

from pumice.engine.framework import Framework
from pumice.engine.state.jobs import QueueState


class Turns:
    """Queues, the one whose turn it is first. Where they are a tree, the branches take turns, and the queues of a branch; what is
    placed in one changes the keys on its own path alone. A queue with jobs of its own and queues below it takes turns twice, as a
    queue and as a branch."""

    def __init__(self, framework: Framework, queues: Iterable[QueueState]) -> None:
        self._framework = framework
        self._heaps: dict[Hashable, list[tuple[Any, int, Hashable, bool]]] = {None: []}
        """Of each branch what takes turns below it: key, who joined first, and whether it is a queue."""
        self._joined = 0
        self._taken: tuple[QueueState, list[Hashable]] | None = None
        """The queue whose turn it is, and the branches above it, which are out of the heaps meanwhile."""
        for queue in queues:
            parent: Hashable = None
            for branch, key in framework.queue_place(queue):
                if branch is queue:
                    self._join(parent, key, queue, itself=True)
                elif branch not in self._heaps:
                    self._heaps[branch] = []
                    self._join(parent, key, branch)
                parent = branch

    def __bool__(self) -> bool:
        self._put_back()
        return bool(self._heaps[None])

    def take(self) -> QueueState:
        """Whose turn it is. It has no other one until it is put in line ``again``."""
        self._put_back()
        above: list[Hashable] = []
        _, _, found, itself = heapq.heappop(self._heaps[None])
        while not itself:
            above.append(found)
            _, _, found, itself = heapq.heappop(self._heaps[found])
        assert isinstance(found, QueueState)
        self._taken = found, above
        return found

    def again(self, queue: QueueState) -> None:
        """It has more to be tried."""
        place = self._framework.queue_place(queue)
        self._join(place[-2][0] if len(place) > 1 else None, place[-1][1], queue, itself=True)

    def _put_back(self) -> None:
        if self._taken is None:
            return
        queue, above = self._taken
        self._taken = None
        keys = [key for _, key in self._framework.queue_place(queue)] if above else []
        for depth in range(len(above) - 1, -1, -1):
            if self._heaps[above[depth]]:
                self._join(above[depth - 1] if depth else None, keys[depth], above[depth])

    def _join(self, parent: Hashable, key: Any, branch: Hashable, *, itself: bool = False) -> None:
        self._joined += 1
        heapq.heappush(self._heaps[parent], (key, self._joined, branch, itself))
