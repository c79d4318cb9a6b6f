"""The pods that hold places on nodes, as arrays: an upper bound of the gain from evicting them, for all nodes at once.

One row per row of the ledger's table, one column per pod on it, the least important first. Kept by the table's log of changes,
and made when somebody asks first: where no room is ever made, nothing is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.scheduler.state.jobs import QueueState, Task
from pumice.scheduler.state.ledger import PlacementState
from pumice.scheduler.state.resources import PODS
from pumice.scheduler.state.state import State

PARTS = 10**6
"""Freed amounts are counted in such parts of the cluster."""
NOBODY = np.iinfo(np.int64).max
STAYING = (PlacementState.ASSUMED, PlacementState.CONFIRMED)


def freed(state: State, pod: Task) -> int:
    """Return how much of the cluster its queue would be charged less."""
    total = state.ledger.table.total
    return sum(
        amount * PARTS // whole
        for name, amount in pod.amounts.items()
        if name != PODS and (whole := total.get(name, 0)) > 0
    )


@dataclass(slots=True)
class Occupants:
    """Pods of ours that hold a place for good and may be preempted. Arrays have the shape (rows, pods)."""

    state: State
    ranks: NDArray[np.int64] = field(default_factory=lambda: np.full((0, 0), NOBODY, np.int64))
    freed: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    queues: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    """Number of the pod's queue; -1 where nobody is."""
    columns: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """Per column of the table what they hold."""
    memory: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Per device type what they hold of cards."""
    numbers: dict[QueueState, int] = field(default_factory=dict)
    _seen: tuple[Any, ...] = ()
    _cursor: int = 0

    def refresh(self) -> None:
        """Bring the rows up to date that changed."""
        table = self.state.ledger.table
        basis = (table.capacity, self.state.groups.ranked)
        changed = table.changes.since(self._cursor) if basis == self._seen else None
        self._seen, self._cursor = basis, table.changes.end
        if changed is None:
            self._clear(table.capacity)
            changed = table.live_rows().tolist()
        for row in changed:
            self._read(row)

    def nothing_new(self) -> None:
        """Whatever was changed since the last ``refresh`` is as it was before."""
        self._cursor = self.state.ledger.table.changes.end

    def _clear(self, rows: int) -> None:
        self.ranks = np.full((rows, 8), NOBODY, np.int64)
        self.freed, self.queues = np.zeros((rows, 8), np.int64), np.full((rows, 8), -1, np.int32)
        self.columns, self.memory, self.numbers = {}, {}, {}

    def _read(self, row: int) -> None:
        ledger, tasks = self.state.ledger, self.state.tasks
        allocated = ledger.by_node.get(ledger.table.name(row), {})
        pods = [
            (task.rank, placement, task)
            for uid, placement in allocated.items()
            if placement.state in STAYING and (task := tasks.get(uid)) is not None and task.yielding.preemptable
            and task.job is not None
        ]  # fmt: skip
        pods.sort(key=lambda entry: entry[0])
        size = len(pods)
        if size > self.ranks.shape[1]:
            self._widen(max(size, 2 * self.ranks.shape[1]))
        for array in (*self.columns.values(), *self.memory.values()):
            array[row] = 0
        self.queues[row], self.ranks[row] = -1, NOBODY
        if not pods:
            return
        self.ranks[row, :size] = [place for place, _, _ in pods]
        self.freed[row, :size] = [freed(self.state, task) for _, _, task in pods]
        self.queues[row, :size] = [
            self.numbers.setdefault(task.job.queue, len(self.numbers)) for _, _, task in pods if task.job is not None
        ]
        for place, (_, placement, _) in enumerate(pods):
            for column, amount in ledger.columns(placement.request):
                self.allocated(self.columns, column)[row, place] = amount
            for allocation in placement.allocations:
                self.allocated(self.memory, allocation.device_type)[row, place] += sum(
                    container_device.memory for container_device in allocation.container_devices
                )

    def allocated(self, arrays: dict[Any, NDArray[np.int64]], key: Any) -> NDArray[np.int64]:
        """One of ``columns`` or ``memory``, of zeros where nobody holds any."""
        found = arrays.get(key)
        if found is None:
            found = arrays[key] = np.zeros(self.ranks.shape, np.int64)
        return found

    def _widen(self, pods: int) -> None:
        def wider(array: NDArray[Any], fill: int) -> NDArray[Any]:
            bigger = np.full((len(array), pods), fill, array.dtype)
            bigger[:, : array.shape[1]] = array
            return bigger

        self.ranks, self.queues, self.freed = wider(self.ranks, NOBODY), wider(self.queues, -1), wider(self.freed, 0)
        self.columns = {key: wider(array, 0) for key, array in self.columns.items()}
        self.memory = {key: wider(array, 0) for key, array in self.memory.items()}
