"""Jobs that have something to be tried, the most urgent first.

Tens of thousands may stand in the line of a queue while a cycle tries a few hundred: it is kept, and a cycle looks only at those
that are new or have changed. What a job holds is weighed against the whole cluster: who holds something is given a place in each
cycle.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pumice.scheduler.state.resources import Vector


class Holds(Protocol):
    """The one thing that a line knows of its jobs: whether they hold something."""

    @property
    def allocated(self) -> Vector: ...


J = TypeVar("J", bound=Holds)
Key = Callable[[J], Any]
"""A job's place in the order of jobs (``Framework.job_order_key``)."""
Entry = tuple[Any, int, J]
SPARE = 64
"""So many more entries than jobs there may be, of those that left or changed places."""


@dataclass(slots=True)
class JobHeap(Generic[J]):
    """Jobs by key; of equal keys, who was lined up first."""

    _entries: dict[J, Entry[J]] = field(default_factory=dict)
    _heap: list[Entry[J]] = field(default_factory=list)
    """These, and outdated ones."""
    _served: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[J]:
        return iter(self._entries)

    def line_up(self, job: J, key: Any) -> None:
        self._served += 1
        entry = self._entries[job] = key, self._served, job
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + SPARE:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def drop(self, job: J) -> None:
        self._entries.pop(job, None)
        self._sweep()

    def _sweep(self) -> None:
        """An empty line forgets who stood in it: by the next one's time other plugins may order the jobs, by other keys."""
        if not self._entries:
            self._heap.clear()

    @property
    def first(self) -> J:
        return self._first()[-1]

    def take(self) -> J:
        """The first one leaves the line."""
        job = self._first()[-1]
        del self._entries[job]
        self._sweep()
        return job

    def next(self, most: int) -> list[J]:
        """So many from the first one on, in their order."""
        found: list[Entry[J]] = []
        while self._heap and len(found) < most:
            entry = heapq.heappop(self._heap)
            if self._entries.get(entry[-1]) is entry:
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [entry[-1] for entry in found]

    def _first(self) -> Entry[J]:
        while self._entries.get(self._heap[0][-1]) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0]


@dataclass(slots=True)
class ActiveJobs(Generic[J]):
    """The jobs of one queue that have something to be tried, in order of arrival. Each stands in the line or is ``fresh``."""

    fresh: dict[J, None] = field(default_factory=dict)
    """Those that have come, changed or were tried since they were last given a place."""
    line: JobHeap[J] = field(default_factory=JobHeap)
    jobs: dict[J, None] = field(default_factory=dict)
    _holding: dict[J, None] = field(default_factory=dict)
    """Jobs in the line that held something when they were lined up."""

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[J]:
        return iter(self.jobs)

    def __contains__(self, job: object) -> bool:
        return job in self.jobs

    def join(self, job: J) -> None:
        """It has something to be tried, or is another than it was."""
        self.jobs[job] = self.fresh[job] = None
        self.line.drop(job)
        self._holding.pop(job, None)

    def renew(self, job: J) -> None:
        """Take note that its place, if it takes part, may be another one now."""
        if job in self.jobs:
            self.join(job)

    def start_over(self) -> None:
        """Other plugins order the jobs now: nobody's place is worth anything, nor can be compared with the new ones."""
        self.line, self.fresh = JobHeap(), dict(self.jobs)
        self._holding.clear()

    def leave(self, job: J) -> None:
        """It has nothing to be tried, for the time being."""
        self.jobs.pop(job, None)
        self.fresh.pop(job, None)
        self.line.drop(job)
        self._holding.pop(job, None)

    def line_up(self, job: J, key: Key[J]) -> None:
        self.fresh.pop(job, None)
        self.line.line_up(job, key(job))
        if job.allocated:
            self._holding[job] = None

    def line_up_again(self, key: Key[J]) -> None:
        """A cycle begins: who holds something has another place."""
        for job in self._holding:
            self.line.line_up(job, key(job))

    def take(self) -> J:
        """The first of the line gives up its place, and takes part still."""
        job = self.line.take()
        self._holding.pop(job, None)
        self.fresh[job] = None
        return job
