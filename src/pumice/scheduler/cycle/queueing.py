"""Which queues and jobs may be tried now, and in which order queues take turns."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from typing import Any

from pumice.scheduler.cycle import sharding
from pumice.scheduler.cycle.cycle import RETRY, Cycle
from pumice.scheduler.framework import Framework
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.scheduling_queue import Hint, QueueEvent
from pumice.scheduler.state.tasks import Reason, by_gang, by_queue

# -- turns of queues ---------------------------------------------------------------------------------------------------


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
        """Return the queue that is served next. It is not returned again until it is put in line ``again``."""
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


# -- queues and jobs ---------------------------------------------------------------------------------------------------


def queues(cycle: Cycle) -> list[QueueState]:
    """Queues with jobs that have something to be tried."""
    return [queue for queue in cycle.state.queues.values() if queue.active.jobs]


def admit(cycle: Cycle) -> None:
    """A cycle begins: who is new or has changed may be tried, or steps aside. All others were admitted before."""
    for queue in queues(cycle):
        for job in list(queue.active.fresh if queue.present else queue.active):
            if not queue.present:
                refuse(cycle, job, by_queue(queue.missing_text))
            elif job.backoff.until > cycle.now:
                refuse(cycle, job, by_gang(job.backoff.because))
                cycle.state.scheduling_queue.rest(job, QueueEvent.WRITE_REFUSED, Hint(job.backoff.until))
            elif not _known(cycle, job):
                until = job.wait_until if job.wait_until > cycle.now else cycle.now + RETRY
                cycle.state.scheduling_queue.rest(job, QueueEvent.INVALID, Hint(until))
            elif not sharding.leaves(cycle, job) and (wide := sharding.too_wide(cycle, job)):
                refuse(cycle, job, by_gang(wide))
                cycle.state.scheduling_queue.rest(job, QueueEvent.INVALID, Hint(cycle.now + sharding.LOOK_AGAIN))


def refuse(cycle: Cycle, job: Job, reason: Reason | None) -> None:
    """The whole job is not tried, and that is why; where its pods would have gone before is true no longer."""
    job.refusal = reason
    for task in job.pending.values():
        task.trial = None
    attempt = cycle.attempts[job]
    attempt.tried = attempt.blocked = True


def call_up(cycle: Cycle, queue: QueueState) -> None:
    """Activate the jobs of a queue that is first in, first out: an unschedulable one at its head holds up those behind it. A job
    that could not start if there were room does not."""
    for job in queue.waiters:
        if job not in queue.active and job.runnable and not job.stalled and _present(cycle, job):
            cycle.state.scheduling_queue.activate(job)


def in_turn(cycle: Cycle, queue: QueueState) -> list[Job]:
    """Jobs of such a queue that are to be started, whether anything of theirs changed or not."""
    jobs = [job for job in queue.jobs if job.is_pending() and _present(cycle, job)]
    return sorted(jobs, key=lambda job: (cycle.framework.job_order_key(job), job.key))


def hold_up(cycle: Cycle, first: Job, others: Iterable[Job]) -> None:
    """These come after one that cannot go."""
    reason = by_queue(f"{first.name} comes first in queue {first.queue.name}, which is first in, first out")
    for job in list(others):
        if job in job.queue.active:
            refuse(cycle, job, reason)


def _present(cycle: Cycle, job: Job) -> bool:
    """Return whether it is a job that this scheduler may take, now or later."""
    return job not in cycle.state.shards.elsewhere and _known(cycle, job)


def _known(cycle: Cycle, job: Job) -> bool:
    """Return whether its group exists (Volcano pkg/scheduler/cache); that of a bare pod may still be on its way."""
    return job.group is not None or (job.implicit and job.wait_until <= cycle.now)


def candidates(queue: QueueState) -> list[Job]:
    """Jobs of a queue that may be tried."""
    return list(queue.active) if queue.present else []


def newcomers(queue: QueueState) -> list[Job]:
    """Those of them that have no place in its line yet."""
    return list(queue.active.fresh) if queue.present else []


def claimants(cycle: Cycle, job: Job) -> list[Task]:
    """Its pods that may be tried, in order. Nobody has to go for one whose devices are still searched for: they may be free."""
    late = cycle.placer.evaluation.claims.late
    waiting = (task for task in job.pending.values() if not task.gated and task.backoff.until <= cycle.now)
    tasks = [task for task in waiting if task.cls not in late]
    return sorted(tasks, key=cycle.framework.task_order_key)
