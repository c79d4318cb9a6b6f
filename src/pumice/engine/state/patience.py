"""How long others must wait for what one job was promised: upstream waits for ever, the configuration may bound it."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.wire.duration import parse_duration
from pumice.wire.scheduler_conf import SchedulerConf

FOR_EVER = float("inf")
PROMISE_FOR = "pumice.promise-for"
LEAVING_FOR = "pumice.leaving-for"
LEAVING = 300.0


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds. ``promise``: a job that was started and found no room keeps the promise of its minimum for so long."""

    promise: float = FOR_EVER
    leaving: float = LEAVING
    """``leaving``: a terminating pod is waited for so much longer than its grace period."""


def patience_of(conf: SchedulerConf) -> tuple[Patience, list[str]]:
    """What the arguments of the actions say (``configurations:``), and what of it cannot be counted."""
    complaints: list[str] = []

    def duration(action: str, key: str, usual: float, words: str) -> float:
        text = conf.action(action).text(key)
        try:
            return parse_duration(text) if text else usual
        except ValueError as error:
            complaints.append(f"configuration {action}: {key}: {error}; {words}")
            return usual

    promise = duration("enqueue", PROMISE_FOR, FOR_EVER, "promises are kept for ever")
    return Patience(promise, duration("allocate", LEAVING_FOR, LEAVING, "5m is used")), complaints
