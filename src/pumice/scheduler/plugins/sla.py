"""sla: a job that has waited for longer than its limit goes first, and keeps what it can take (Volcano
pkg/scheduler/plugins/sla).

Its votes count where it stands in a tier before gang, overcommit and proportion: who votes no in the same tier is heard.
"""

from __future__ import annotations

from pumice.scheduler.plugins.contract import ABSTAIN, PERMIT, JobDue, JobEnqueueable, JobOrder, JobPipelined, Session
from pumice.scheduler.state.jobs import Job
from pumice.wire import names
from pumice.wire.quantity import parse_duration
from pumice.wire.scheduler_conf import Arguments

WAITING_TIME = "sla-waiting-time"
ANNOTATIONS = (WAITING_TIME, f"{names.DOMAIN}/{WAITING_TIME}")


class Sla(JobOrder, JobPipelined, JobEnqueueable, JobDue):
    name = "sla"

    def __init__(self, arguments: Arguments) -> None:
        super().__init__(arguments)
        self._now = self._wall = 0.0
        self._usual = seconds(text) if (text := arguments.text(WAITING_TIME)) else None
        if text and self._usual is None:
            arguments.complaints.append(f"plugin sla: {WAITING_TIME} is {text!r}, no duration such as 1h30m; none is used")

    def open(self, session: Session) -> None:
        self._now, self._wall = session.now, session.wall

    def deadline(self, job: Job) -> float | None:
        """Return when the job has waited long enough; None: it may wait for ever."""
        notes = job.group.metadata.annotations if job.group is not None else {}
        own = next((found for key in ANNOTATIONS if key in notes and (found := seconds(notes[key])) is not None), None)
        limit = self._usual if own is None else own
        if limit is None:
            return None
        if job.waits_since is None:  # reckoned once: afterwards the time of day may be set as it likes
            job.waits_since = self._now - max(0.0, self._wall - job.created)
        return job.waits_since + limit

    def job_due(self, job: Job) -> float | None:
        return self.deadline(job)

    def job_order_key(self, job: Job) -> tuple[int, float]:
        deadline = self.deadline(job)
        return (1, 0.0) if deadline is None else (0, deadline)

    def job_enqueueable(self, job: Job) -> int:
        return self._vote(job)

    def job_pipelined(self, job: Job) -> int:
        return self._vote(job)

    def _vote(self, job: Job) -> int:
        deadline = self.deadline(job)
        return PERMIT if deadline is not None and self._now >= deadline else ABSTAIN


def seconds(text: str) -> float | None:
    """A limit; None where it says nothing that can be counted."""
    try:
        return parse_duration(text) or None
    except ValueError:
        return None
