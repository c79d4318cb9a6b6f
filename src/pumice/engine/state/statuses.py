"""The statuses that a pod goes through, and where each may lead."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from pumice.wire.objects import Pod


class Status(IntEnum):
    """Printed names are used in messages (spec volcano-core 4.3)."""

    PENDING = 0
    ALLOCATED = 1
    PIPELINED = 2
    BINDING = 3
    BOUND = 4
    RUNNING = 5
    RELEASING = 6
    SUCCEEDED = 7
    FAILED = 8
    UNKNOWN = 9

    __hash__ = int.__hash__  # Enum's own is a Python function, and every pod is looked up by its status

    @property
    def label(self) -> str:
        return self.name.capitalize()


ALLOCATED_STATUSES = frozenset({Status.BOUND, Status.BINDING, Status.RUNNING, Status.ALLOCATED})
READY_STATUSES = ALLOCATED_STATUSES | {Status.SUCCEEDED}
SCHEDULED_STATUSES = frozenset({Status.RUNNING, Status.BOUND, Status.SUCCEEDED, Status.FAILED})
DONE_STATUSES = frozenset({Status.SUCCEEDED, Status.FAILED})

_SHOWN = frozenset({Status.BOUND, Status.RUNNING, Status.RELEASING, Status.SUCCEEDED, Status.FAILED, Status.UNKNOWN})
"""What the API server may show of a pod whatever it was before: others write that."""
MOVES: Mapping[Status, frozenset[Status]] = {
    Status.PENDING: _SHOWN | {Status.ALLOCATED, Status.PIPELINED},
    Status.ALLOCATED: frozenset({Status.BINDING, Status.PENDING, Status.PIPELINED}),  # no event comes between a trial and its end
    Status.PIPELINED: _SHOWN | {Status.PENDING, Status.ALLOCATED},  # a promise outlives the cycle
    Status.BINDING: _SHOWN | {Status.PENDING},
    Status.BOUND: _SHOWN,  # an event that shows it without a node is older
    Status.RUNNING: _SHOWN | {Status.PENDING},
    Status.RELEASING: _SHOWN | {Status.PENDING, Status.BINDING},  # an eviction was refused while its Binding was on its way
    Status.SUCCEEDED: _SHOWN | {Status.PENDING},
    Status.FAILED: _SHOWN | {Status.PENDING},
    Status.UNKNOWN: _SHOWN | {Status.PENDING},
}
"""From each status those that may come next."""


def task_status(pod: Pod) -> Status:
    """Status of a pod by its object alone (spec 4.3)."""
    phase = pod.status.phase
    if phase == "Succeeded":
        return Status.SUCCEEDED
    if phase == "Failed":
        return Status.FAILED
    if pod.metadata.deletion_timestamp:
        return Status.RELEASING
    if phase == "Running":
        return Status.RUNNING
    if phase == "Unknown":
        return Status.UNKNOWN
    return Status.BOUND if pod.spec.node_name else Status.PENDING
