"""The node lock of upstream's schedulers and plugins: an annotation that holds a time (spec deviceshare-nvidia 12).

Rules only; the caller reads the node, writes with its resourceVersion (compare and swap) and gives the lock back when the
Binding fails. A gang of several pods on one node takes it once per Binding, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

HELD_FOR = 300.0
"""Seconds after which a lock counts as left behind; strictly more."""


@dataclass(frozen=True, slots=True)
class LockView:
    """What was found on the node: the raw value (None: no lock) and since when, by a clock that is never set, we have seen
    exactly this value."""

    value: str | None
    seen_since: float


def render_lock(now: float) -> str:
    """RFC 3339 with whole seconds and an offset, as upstream's plugin parses it."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_lock(text: str) -> float | None:
    """Unix seconds; a suffix after the time (``<time>_<pod>``) is ignored. None when it is no time."""
    try:
        return datetime.fromisoformat(text.partition("_")[0].strip().replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None


def may_take(view: LockView, now: float, steady: float) -> bool:
    """Whether the lock is free: absent, more than five minutes old by its own date, or there before our eyes for that long,
    whatever it says (D-35). ``steady`` is the clock of ``seen_since``."""
    if view.value is None:
        return True
    since = parse_lock(view.value)
    return steady - view.seen_since > HELD_FOR or (since is not None and now - since > HELD_FOR)


def may_release(found: str | None, written: str) -> bool:
    """Only the value that we wrote is ours to remove: somebody else may hold the lock by now."""
    return found == written


def refusal(node: str) -> str:
    """The words of a refused lock, upstream's."""
    return f"node {node} has been locked within 5 minutes"
