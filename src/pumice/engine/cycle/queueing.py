"""Which queues and jobs may be tried now, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

from pumice.engine.cycle.cycle import RETRY, Cycle
from pumice.engine.framework import Framework
from pumice.engine.state.jobs import Job
from pumice.engine.state.queues import QueueState


def queues(cycle: Cycle) -> list[QueueState]:
    """Queues with jobs that have something to be tried."""
    return [queue for queue in cycle.state.queues.values() if queue.active]


def candidates(cycle: Cycle, queue: QueueState) -> list[Job]:
    """Jobs of a queue that may be tried now; a bare pod's job whose group is awaited steps aside until then."""
    if not queue.present:
        for job in queue.active:
            job.refusal = cycle.blocked[job] = queue.missing_text
            cycle.tried[job] = None
        return []
    for job in [job for job in queue.active if job.held_until > cycle.now]:
        job.refusal = cycle.blocked[job] = job.held_because
        cycle.tried[job] = None
        cycle.state.agenda.wait(job, job.held_until)
    found = [job for job in queue.active if _present(cycle, job)]
    if len(found) < len(queue.active):
        for job in [job for job in queue.active if not _present(cycle, job)]:
            cycle.state.agenda.wait(job, job.wait_until if job.wait_until > cycle.now else cycle.now + RETRY)
    return found


def _present(cycle: Cycle, job: Job) -> bool:
    """Whether its group exists (spec 5); that of a bare pod may still be on its way."""
    return job.group is not None or (job.implicit and job.wait_until <= cycle.now)


class Line:
    """Jobs of one queue, the most urgent first. A job's place is looked up when it joins."""

    def __init__(self, framework: Framework, jobs: Iterable[Job]) -> None:
        self._framework = framework
        self._heap: list[tuple[Any, int, Job]] = [
            (framework.job_key(job), joined, job) for joined, job in enumerate(jobs)
        ]
        self._joined = len(self._heap)
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Job]:
        return (job for _, _, job in self._heap)

    @property
    def first(self) -> Job:
        return self._heap[0][-1]

    def join(self, job: Job) -> None:
        heapq.heappush(self._heap, (self._framework.job_key(job), self._joined, job))
        self._joined += 1

    def leave(self) -> Job:
        """The first one goes."""
        return heapq.heappop(self._heap)[-1]
