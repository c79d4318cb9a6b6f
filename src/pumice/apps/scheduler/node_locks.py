"""Takes and gives back upstream's node lock around a Binding (Volcano pkg/scheduler/api/devices/util.go; D-33, D-35, D-36).

The lock lets upstream's plugins serve at most one pod per node at a time. It is taken when the Binding is about to be sent,
by compare and swap on the node's resourceVersion, and given back when the Binding fails; the plugin removes it after
serving. The pods of a gang on one node therefore pass one after the other instead of failing each other.
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
    """A lock that we hold: ``value`` is what we wrote."""

    node: str
    key: str
    value: str


@dataclass(slots=True)
class NodeLocks:
    """One per scheduler. ``seen`` remembers since when a value that is no time has been there."""

    cluster: Cluster
    clock: Clock
    rng: Random
    seen: dict[tuple[str, str], LockView] = field(default_factory=dict)
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

    async def release(self, lock: Lock) -> None:
        """Give it back, if it is still the one that we wrote."""
        for _ in range(5):
            try:
                node = await self.cluster.get(NODES, lock.node)
                found = _annotation(node, lock.key)
                if not may_release(found, lock.value):
                    return
                await self._write(node, lock.key, None)
            except ApiError as error:
                if error.code == 404:
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
        return Lock(name, key, value)

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
