"""How many pods of a job stand, and whether that is enough: its minimum, and that of each of its roles."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from pumice.engine.state.interning import NO_COUNTS, nothing
from pumice.engine.state.statuses import ALLOCATED_STATUSES, READY_STATUSES, Status
from pumice.engine.state.tasks import TaskRecord

T = TypeVar("T", bound=TaskRecord)

_ROLE_VALID = READY_STATUSES | {Status.PIPELINED, Status.PENDING}


class Gang(Struct, Generic[T], eq=False, kw_only=True):
    """The counts of a job. As spec 4.4 has them, but a best-effort member counts when it has a place, like any other: upstream
    counts it while it is pending, and so binds a gang by halves where no node has room for one pod more."""

    min_available: int = 1
    role_minimum: dict[str, int] = msgspec.field(default_factory=nothing)
    tasks: dict[str, T] = msgspec.field(default_factory=dict)
    counts: tuple[int, ...] = NO_COUNTS
    """Tasks by status."""
    ready_count: int = 0
    """Tasks that are bound, on their way, or have succeeded."""

    def count(self, *statuses: Status) -> int:
        return sum(self.counts[s] for s in statuses)

    @property
    def allocated_count(self) -> int:
        return self.count(*ALLOCATED_STATUSES)

    @property
    def firm_count(self) -> int:
        """Those of its ready tasks that no refused Binding takes away any more."""
        return self.ready_count - self.counts[Status.BINDING] - self.counts[Status.ALLOCATED]

    @property
    def valid_count(self) -> int:
        return self.ready_count + self.counts[Status.PIPELINED] + self.counts[Status.PENDING]

    def is_ready(self) -> bool:
        return self.ready_count >= self.min_available

    def is_pipelined(self) -> bool:
        return self.counts[Status.PIPELINED] + self.ready_count >= self.min_available

    # -- roles -------------------------------------------------------------------------------------------------------

    def role_counts(self, statuses: Iterable[Status], without: Collection[T] = ()) -> dict[str, int]:
        wanted = frozenset(statuses)
        found: dict[str, int] = {}
        for task in self.tasks.values():
            if task.status in wanted and task not in without:
                found[task.role] = found.get(task.role, 0) + 1
        return found

    def _roles_hold(self, statuses: Iterable[Status], without: Collection[T] = ()) -> bool:
        if not self.role_minimum or self.min_available < sum(self.role_minimum.values()):
            return True
        have = self.role_counts(statuses, without)
        return all(have.get(role, 0) >= least for role, least in self.role_minimum.items())

    def role_valid(self) -> bool:
        return self._roles_hold(_ROLE_VALID)

    def role_ready(self, without: Collection[T] = ()) -> bool:
        return self._roles_hold(READY_STATUSES, without)

    def role_pipelined(self) -> bool:
        return self._roles_hold(READY_STATUSES | {Status.PIPELINED})
