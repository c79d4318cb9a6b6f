"""Mistakes in a list of policies, in upstream's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pumice.wire.batch import Policy
from pumice_jobs.controllers.job.phases import ACTIONS
from pumice_jobs.controllers.job.requests import (
    ANY,
    POD_EVICTED,
    POD_FAILED,
    POD_PENDING,
    TASK_COMPLETED,
    TASK_FAILED,
    UNKNOWN_GROUP,
)

JOB_UPDATED = "JobUpdated"
EVENTS: Final = (ANY, POD_FAILED, POD_EVICTED, POD_PENDING, UNKNOWN_GROUP, TASK_COMPLETED, TASK_FAILED, JOB_UPDATED)
"""Those that a user may name (section 17.3)."""


def policy_problems(policies: Sequence[Policy], path: str) -> str:
    """Empty where there is nothing wrong; ``path`` is that of the list."""
    found = list(_problems(policies, path))
    if not found:
        return ""
    text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
    return f"{text} valid events are [{', '.join(EVENTS)}], valid actions are [{', '.join(ACTIONS)}];"


def _problems(policies: Sequence[Policy], path: str) -> Iterator[str]:
    seen, codes = set[str](), set[int]()
    for policy in policies:
        events = [*([policy.event] if policy.event else ()), *policy.events]
        if events and policy.exit_code is not None:
            yield "must not specify event and exitCode simultaneously"
            return
        if not events and policy.exit_code is None:
            yield "either event and exitCode should be specified"
            return
        for event in dict.fromkeys(events):
            if event not in EVENTS:
                yield f'{path}: Invalid value: "{event}": invalid policy event'
                return
            if event in seen:
                yield f"duplicate event {event}  across different policy"
                return
            seen.add(event)
        if policy.action not in ACTIONS:
            yield f'{path}: Invalid value: "{policy.action}": invalid policy action'
            return
        if policy.exit_code == 0:
            yield "0 is not a valid error code"
            return
        if policy.exit_code is not None:
            if policy.exit_code in codes:
                yield f"duplicate exitCode {policy.exit_code}"
                return
            codes.add(policy.exit_code)
    if ANY in seen and len(seen) > 1:
        yield f"if there's {ANY} here, no other policy should be here"
