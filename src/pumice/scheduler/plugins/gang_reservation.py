"""gang-reservation: nodes that are held for a gang are closed to who comes after it (``pumice.gangReservation`` of plugin gang).

Upstream has none of this. For whom nodes are held is decided elsewhere (``cycle/reserving``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pumice.scheduler.plugins.contract import Session, TaskPredicate, Verdict
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.state import State
from pumice.wire.quantity import parse_duration
from pumice.wire.scheduler_conf import Arguments, switch

ARGUMENT: Final = "pumice.gangReservation"
USUAL: Final = 600.0


class GangReservation(TaskPredicate):
    name = "gang-reservation"

    def __init__(self, limit: float) -> None:
        super().__init__(Arguments())
        self.limit = limit
        """Seconds for which nodes are held for one gang at most."""

    def open(self, session: Session) -> None:
        for found in session.state.reservations.held.values():
            session.state.scheduling_queue.cycle_at(found.until)

    def bounds(self, state: State, task: Task) -> Iterator[Verdict]:
        table = state.ledger.table
        for found in state.reservations.against(task.job):
            closed = np.zeros(table.capacity, bool)
            closed[[table.row_of[node] for node in found.nodes if node in table.row_of]] = True
            yield Verdict(closed, f"node(s) held for gang {found.job.key}")


def limit_of(arguments: Arguments) -> float:
    """Seconds: ``true`` means ten minutes, a duration itself; 0 where nothing is held, as by default."""
    text = arguments.text(ARGUMENT)
    if (on := switch(text)) is not None or not text:
        return USUAL if on else 0.0
    try:
        return parse_duration(text)
    except ValueError as error:
        arguments.complaints.append(f"plugin gang: {ARGUMENT}: {error}, or true; no nodes are held")
        return 0.0
