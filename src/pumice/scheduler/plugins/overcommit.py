"""overcommit: how much may be promised to jobs beyond what is idle (Volcano pkg/scheduler/plugins/overcommit)."""

from __future__ import annotations

import numpy as np

from pumice.scheduler.plugins.contract import PERMIT, REJECT, JobEnqueueable, Session
from pumice.scheduler.state.jobs import Job
from pumice.scheduler.state.resources import Vector, add, lacking
from pumice.scheduler.state.tasks import by_queue
from pumice.wire.scheduler_conf import Arguments


class Overcommit(JobEnqueueable):
    name = "overcommit"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._idle: Vector = {}
        self._inqueue: Vector = {}

    def open(self, session: Session) -> None:
        factor = self.arguments.real("overcommit-factor", 1.2)
        if factor < 1:
            factor = 1.2
        table = session.state.ledger.table
        used = table.used.sum(axis=0, dtype=np.float64)  # thousands of absurd amounts would run over
        self._idle = {n: int(total * factor) - int(used[table.dims[n]]) for n, total in table.total.items()}
        self._inqueue = {}
        for queue in session.state.queues.values():
            if queue.inqueue:
                add(self._inqueue, queue.inqueue.items())

    def job_enqueueable(self, job: Job) -> int:
        if job.min_resources is None:
            return PERMIT
        wanted = dict(self._inqueue)
        add(wanted, job.min_resources.items())
        short = lacking({n: wanted[n] for n, v in job.min_resources.items() if v > 0}, self._idle)
        if not short:
            return PERMIT
        job.refusal = by_queue(f"resource in cluster is overused: {', '.join(f'overused {name}' for name in short)}")
        return REJECT

    def job_enqueued(self, job: Job) -> None:
        if job.min_resources:
            add(self._inqueue, job.min_resources.items())


