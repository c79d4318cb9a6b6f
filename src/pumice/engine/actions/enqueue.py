"""enqueue: pending jobs for which there is room become Inqueue (spec volcano-core 10.1)."""

from __future__ import annotations

import heapq

from pumice.engine.cycle import Cycle


def enqueue(cycle: Cycle) -> None:
    framework = cycle.framework
    queues = sorted(cycle.queues(), key=framework.queue_key)
    heaps = {}
    for queue in queues:
        jobs = [(framework.job_key(job), job.uid, job) for job in cycle.candidates(queue) if job.is_pending()]
        heapq.heapify(jobs)
        if jobs:
            heaps[queue] = jobs
    while heaps:
        queue = next(iter(heaps)) if len(heaps) == 1 else min(heaps, key=framework.queue_key)
        job = heapq.heappop(heaps[queue])[-1]
        if not heaps[queue]:
            del heaps[queue]
        job.refusal = ""
        if job.min_resources is None or framework.job_enqueueable(job):
            framework.job_enqueued(job)
            job.promise()
            cycle.state.dirty[job] = None
        else:
            cycle.blocked[job] = job.refusal
            cycle.tried[job] = None
