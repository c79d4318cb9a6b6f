"""Nodes that are held for gangs that wait, so that who asks for less does not pass them for ever (plugin gang-reservation).

Whatever becomes of it, a node is held for the configured time at most, and then for nobody until it was open to all for as
long as it was held: nobody waits for ever because of gangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pumice.engine.state.agenda import Agenda
from pumice.engine.state.jobs import Job
from pumice.engine.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Reservation:
    """``since`` and ``until`` by the clock of the cycles."""

    job: Job
    nodes: frozenset[str]
    since: float
    until: float

    def binds(self, job: Job | None) -> bool:
        """Whether that job is kept off the nodes: not the gang itself, nor who is more important, nor who never had its minimum
        either, is as important, of the same queue and older."""
        if job is None or job is self.job or job.priority > self.job.priority:
            return False
        alike = job.queue is self.job.queue and job.priority == self.job.priority and not job.stood
        return not (alike and job.order() < self.job.order())


@dataclass(slots=True)
class Reservations:
    """By the gang that they are for."""

    ledger: Ledger
    agenda: Agenda
    held: dict[Job, Reservation] = field(default_factory=dict)
    rest: dict[str, float] = field(default_factory=dict)
    """Nodes that are not held again before."""
    paused: dict[Job, float] = field(default_factory=dict)
    """Gangs for which nothing is held before: their time was over, or no nodes would take them."""
    again: float = 0.0
    """No nodes are looked for before."""
    read: bool = False
    """Whether what an earlier scheduler held has been looked for."""

    def hold(self, found: Reservation) -> None:
        self.held[found.job] = found
        self.agenda.look_at(found.job)

    def end(self, job: Job, now: float) -> None:
        """The nodes are everybody's again."""
        found = self.held.pop(job)
        until = now + max(0.0, now - found.since)
        for node in found.nodes:
            self.rest[node] = until
            row = self.ledger.table.row_of.get(node)
            if row is not None:
                self.ledger.table.touch(row, gain=True)
        self.agenda.wake_waiting()

    def tidy(self, now: float) -> None:
        """Forget what matters no longer."""
        self.rest = {node: until for node, until in self.rest.items() if until > now}
        self.paused = {job: until for job, until in self.paused.items() if until > now and job.known}

    def against(self, job: Job | None) -> Iterator[Reservation]:
        """Those that keep the job's pods off nodes."""
        return (found for found in self.held.values() if found.binds(job))
