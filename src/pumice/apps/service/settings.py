"""The common settings of daemons that may have a standby."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.wire.names import DEFAULT_QUEUE, SCHEDULER_NAME, SYSTEM_NAMESPACE


@dataclass(slots=True)
class LedSettings:
    """``leader_elect``: work only while holding the Lease, which lies in ``lease_namespace``."""

    scheduler_names: tuple[str, ...] = (SCHEDULER_NAME,)
    listen: str = "127.0.0.1:0"
    default_queue: str = DEFAULT_QUEUE
    leader_elect: bool = False
    lease_namespace: str = SYSTEM_NAMESPACE
