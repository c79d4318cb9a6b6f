"""drf: the job with the smallest dominant share first (spec volcano-core 11.4)."""

from __future__ import annotations

from pumice.engine.plugins.contract import OrdersJobs, Session
from pumice.engine.state.jobs import Job
from pumice.engine.state.resources import Vector
from pumice.wire.scheduler_conf import Arguments


class Drf(OrdersJobs):
    name = "drf"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._total: Vector = {}

    def open(self, session: Session) -> None:
        self._total = session.state.ledger.table.total

    def job_key(self, job: Job) -> float:
        return self.share(job)

    def share(self, job: Job) -> float:
        """Largest part of any resource of the cluster that the job holds."""
        job.share = max(
            (amount / self._total[name] for name, amount in job.allocated.items() if self._total.get(name, 0) > 0),
            default=0.0,
        )
        return job.share
