"""The node lock of upstream's schedulers and plugins: an annotation that holds a time (Volcano
pkg/scheduler/api/devices/util.go).

Rules only; the caller reads the node, writes with its resourceVersion (compare and swap) and gives the lock back when the
Binding fails. A gang of several pods on one node takes it once per Binding, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from pumice.wire import names
from pumice.wire.times import moment, stamp

HELD_FOR = 300.0
"""Seconds after which a lock counts as left behind; strictly more."""


@dataclass(frozen=True, slots=True)
class LockView:
    """The lock as found on the node: the raw value (None: no lock) and since when, by a clock that is never set, we have seen
    exactly this value."""

    value: str | None
    seen_since: float


OWNED = frozenset((names.NODE_LOCK_HAMI,))
"""Locks whose value also names the pod that holds it: HAMi's plugins find the pod by it (Volcano
pkg/scheduler/api/devices/util.go)."""


def render_lock(now: float, namespace: str = "", pod: str = "") -> str:
    """RFC 3339 with whole seconds and an offset, as upstream's plugin parses it; HAMi's form with a pod."""
    return f"{stamp(now)},{namespace},{pod}" if pod else stamp(now)


def parse_lock(text: str) -> float | None:
    """Unix seconds; whoever is named after the time (``<time>_<pod>``, ``<time>,<namespace>,<pod>``) is ignored. None when it
    is no time."""
    return moment(text.partition(",")[0].partition("_")[0].strip())


def may_take(view: LockView, now: float, steady: float, namespace: str = "", pod: str = "") -> bool:
    """Return whether the lock is free for this pod: absent, its own already, more than five minutes old by its own date, or
    there before
    our eyes for that long, whatever it says (D-35). ``steady`` is the clock of ``seen_since``."""
    if view.value is None or (pod and view.value.split(",")[1:] == [namespace, pod]):
        return True
    since = parse_lock(view.value)
    return steady - view.seen_since > HELD_FOR or (since is not None and now - since > HELD_FOR)


def may_release(found: str | None, written: str) -> bool:
    """Only the value that we wrote is ours to remove: somebody else may hold the lock by now."""
    return found == written


def refusal(node: str) -> str:
    """The words of a refused lock, upstream's."""
    return f"node {node} has been locked within 5 minutes"
