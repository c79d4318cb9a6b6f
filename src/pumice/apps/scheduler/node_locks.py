"""Takes and gives back upstream's node lock around a Binding (Volcano pkg/scheduler/api/devices/util.go; D-33, D-35, D-36).

The lock lets upstream's plugins serve at most one pod per node at a time. It is taken when the Binding is about to be sent,
by compare and swap on the node's resourceVersion, and given back when the Binding fails; the plugin removes it after
serving. The pods of a gang on one node therefore pass one after the other instead of failing each other. Of a pod that is gone
or has ended before the plugin was asked nobody else gives it back: a node would take nobody for five minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from pumice.effects.backoff import Backoff
from pumice.effects.vocabulary import Bind
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import NODES
from pumice.wire.node_lock import OWNED, LockView, may_release, may_take, refusal, render_lock

log = logging.getLogger("pumice.scheduler.lock")

AGAIN = Backoff(0.05, 2.0)
PATIENCE = 60.0
"""Seconds for which a Binding waits for a lock that somebody else holds."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that we hold: ``value`` is what we wrote, for the pod of that ``uid``."""

    node: str
    key: str
    value: str
    uid: str


@dataclass(slots=True)
class NodeLocks:
    """One per scheduler. ``seen`` remembers since when a value that is no time has been there, ``last`` the lock of a node that
    was taken last: whoever was before has given his back."""

    cluster: Cluster
    clock: Clock
    rng: Random
    seen: dict[tuple[str, str], LockView] = field(default_factory=dict)
    last: dict[tuple[str, str], Lock] = field(default_factory=dict)
    _by_pod: dict[str, Lock] = field(default_factory=dict)
    _turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def take(self, effect: Bind) -> tuple[Lock | None, str]:
        """(the lock, ""), (None, "") when the Binding needs none, or (None, why not)."""
        key = effect.lock
        if not key:
            return None, ""
        deadline, tries = self.clock.monotonic() + PATIENCE, 0
        async with self._turns[effect.node]:  # ours wait in line, not against each other
            while True:
                try:
                    lock = await self._try(effect, key)
                except ApiError as error:
                    if error.code == 404:
                        return None, f"node {effect.node} is gone"
                    lock = None
                if lock is not None:
                    return lock, ""
                if self.clock.monotonic() + AGAIN.pause(tries) > deadline:
                    who = f"{effect.namespace}/{effect.name}"
                    return None, f"node {effect.node} locked for {who} {key} lockname {refusal(effect.node)}"
                await self.clock.sleep(AGAIN.pause(tries, self.rng))
                tries += 1

    def left_by(self, uid: str) -> Lock | None:
        """Return the lock that was taken for a pod, if no other was taken there since."""
        return self._by_pod.get(uid)

    async def release(self, lock: Lock) -> None:
        """Give it back, if it is still the one that we wrote: two within a second read alike."""
        for _ in range(5):
            if self.last.get((lock.node, lock.key)) is not lock:
                return
            try:
                node = await self.cluster.get(NODES, lock.node)
                if may_release(_annotation(node, lock.key), lock.value):
                    await self._write(node, lock.key, None)
                self._forget(lock.node, lock.key)
            except ApiError as error:
                if error.code == 404:
                    self._forget(lock.node, lock.key)
                    return
                await self.clock.sleep(0.1)
                continue
            return
        log.warning("node lock not given back node=%s key=%s; it expires after five minutes", lock.node, lock.key)

    async def _try(self, effect: Bind, key: str) -> Lock | None:
        name, owner = effect.node, (effect.namespace, effect.name) if key in OWNED else ("", "")
        node = await self.cluster.get(NODES, name)
        now, found = self.clock.now(), _annotation(node, key)
        view = self.seen.get((name, key))
        if view is None or view.value != found:
            view = self.seen[name, key] = LockView(found, self.clock.monotonic())
        if not may_take(view, now, self.clock.monotonic(), *owner):
            return None
        value = render_lock(now, *owner)
        await self._write(node, key, value)  # a conflict means that somebody was quicker: look again
        self.seen.pop((name, key), None)
        self._forget(name, key)
        lock = self.last[name, key] = self._by_pod[effect.uid] = Lock(name, key, value, effect.uid)
        return lock

    def _forget(self, node: str, key: str) -> None:
        if (lock := self.last.pop((node, key), None)) is not None:
            self._by_pod.pop(lock.uid, None)

    async def _write(self, node: dict[str, object], key: str, value: str | None) -> None:
        meta = node["metadata"]
        assert isinstance(meta, dict)
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": {key: value}}}
        await self.cluster.patch(NODES, meta["name"], body)


def _annotation(node: dict[str, object], key: str) -> str | None:
    meta = node.get("metadata")
    notes = meta.get("annotations") if isinstance(meta, dict) else None
    found = notes.get(key) if isinstance(notes, dict) else None
    return None if found is None else str(found)
