"""Bindings on their way: concurrent and bounded, and what to believe when one is answered by an error.

A Binding that was answered by a timeout may have been done all the same, so the pod is looked at before anything is
given back. A gang's Bindings are repeated on the same node until they are in, are refused for good, or their time is up; time
in which nobody answers does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

import msgspec

from pumice.apps.scheduler.node_locks import NodeLocks
from pumice.apps.scheduler.volume_wait import POD_WENT, VolumeWait
from pumice.apps.service.lease import without_election
from pumice.effects.backoff import Backoff
from pumice.effects.vocabulary import Bind
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.wire.kinds import PODS

log = logging.getLogger("pumice.scheduler.bind")

GANG_PATIENCE = 5.0
"""Seconds for which a gang's Binding is repeated before the gang is given up as a whole."""
COUNTED_SILENCE = 1.0
"""Of a Binding that is not answered by an API server that answers otherwise, so many seconds count at most: the server may have
been away for the rest of them."""
BIND_AGAIN = Backoff(0.1, 1.0)
LOOK_AGAIN = Backoff(0.1, 5.0)
"""At a pod of which nobody knows whether it is bound."""
UNTIL_ALLOWED = 0.5
CAUTIOUS = frozenset({0, 401, 404, 408, 409, 410, 429, 500, 502, 503, 504})
"""Answers after which the pod is looked at: it may be bound, or still there, in spite of them. Others are refusals for good."""

_encode = msgspec.json.Encoder().encode


class Outcome(Enum):
    """The final result of one Binding."""

    BOUND = "bound"
    FAILED = "failed"
    GONE = "gone"  # the pod is not there any more, or is another one of that name
    ELSEWHERE = "elsewhere"  # somebody else bound it


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one attempt. ``final``: trying again at once would be refused again. ``spent``: seconds of it that count
    as the gang's, because the API server was there."""

    outcome: Outcome
    error: str = ""
    final: bool = True
    spent: float = 0.0


@dataclass(slots=True)
class Binder:
    """Sends Bindings and reports each outcome once by ``done(effect, outcome, error text)``."""

    cluster: Cluster
    clock: Clock
    rng: Random
    done: Callable[[Bind, Outcome, str], None]
    volumes: VolumeWait
    concurrency: int = 32
    locks: Callable[[], NodeLocks | None] = lambda: None
    """The node locks, while the configuration asks for them (deviceshare.NodeLockEnable)."""
    sent: Callable[[Bind], None] = lambda effect: None
    """Told of each Binding right before it is sent for the first time."""
    took: Callable[[str, float], None] = lambda stage, seconds: None
    """Told how long PreBind (volumes, locks) and Bind (the call) took."""
    allowed: Callable[[], Awaitable[bool]] = without_election
    """True if Bindings may be sent now. Without the lease they wait: another scheduler may lead, and place others there."""
    not_ours: Callable[[Bind], str] = lambda effect: ""
    """Why a Binding may not be sent though this scheduler leads: another one has its node by now. Empty where it may."""
    given_up: Callable[[Bind], str] = lambda effect: ""
    """Why the gang of a Binding is not bound any more, while it is not; then the rest of it is not sent."""
    overtaking: Callable[[Bind], Awaitable[None] | None] = lambda effect: None
    """The writes on their way that the Binding must not overtake."""
    begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = asyncio.create_task
    """Begins a task; the daemon's group, so that none outlives it or fails unseen."""
    on_way: dict[str, str] = field(default_factory=dict)
    """By the pods' UIDs, the nodes of Bindings that may come in at any time."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _room: asyncio.Semaphore | None = None
    _one_less: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, effect: Bind) -> None:
        """Bind that pod. The members of a gang are sent in one go: the event loop has no turn between them."""
        self.volumes.expect(effect)
        task = self.begin(self._run(effect))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._one_less.set()

    @property
    def in_flight(self) -> int:
        """Bindings on their way; what still waits for volumes is none yet."""
        return len(self._running) - self.volumes.waiting

    async def drain(self) -> None:
        """Wait until every Binding on its way is answered. Those that still wait for volumes are not sent any more."""
        while self.in_flight:
            self._one_less.clear()
            await self._one_less.wait()

    async def abandon(self) -> None:
        """Send nothing any more. What was sent and is not answered is for a successor to find out."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, effect: Bind) -> None:
        try:
            await self._carry_out(effect)
        except Exception:  # nobody waits for this task: its pod would keep its place, unbound, for ever
            log.exception("binding failed pod=%s/%s", effect.namespace, effect.name)
            self.done(effect, Outcome.FAILED, "an error of the scheduler's own; its log says more")

    async def _carry_out(self, effect: Bind) -> None:
        if self._room is None:
            self._room = asyncio.Semaphore(self.concurrency)
        locks = self.locks()
        began = self.clock.monotonic()
        lock, error = None, await self.volumes.ready(effect)
        if locks is not None and not error:
            lock, error = await locks.take(effect)
        self.took("PreBind", self.clock.monotonic() - began)
        if error:
            await self.volumes.undo(effect)
            self.done(effect, Outcome.GONE if error == POD_WENT else Outcome.FAILED, error)
            return
        if (earlier := self.overtaking(effect)) is not None:
            await earlier
        self.sent(effect)
        outcome, error = await self._bind(effect)
        if locks is not None and lock is not None and outcome is not Outcome.BOUND:
            await locks.release(lock)
        if outcome in (Outcome.FAILED, Outcome.GONE):
            await self.volumes.undo(effect)
        self.done(effect, outcome, error)

    async def _bind(self, effect: Bind) -> tuple[Outcome, str]:
        """Send it; a gang's again and again until its patience ends."""
        assert self._room is not None
        spent, tries = 0.0, 0
        while True:
            async with self._room:
                while not await self.allowed():
                    await self.clock.sleep(UNTIL_ALLOWED)
                if error := self.not_ours(effect) or (self.given_up(effect) if effect.gang else ""):
                    return Outcome.FAILED, error
                began, self.on_way[effect.uid] = self.clock.monotonic(), effect.node
                try:
                    answer = await self._once(effect)
                finally:
                    del self.on_way[effect.uid]
                self.took("Bind", self.clock.monotonic() - began)
            spent += answer.spent + BIND_AGAIN.pause(tries)
            if answer.final or not effect.gang or spent > GANG_PATIENCE:
                return answer.outcome, answer.error
            await self.clock.sleep(BIND_AGAIN.pause(tries, self.rng))
            tries += 1

    async def _once(self, effect: Bind) -> Answer:
        began = self.clock.monotonic()
        try:
            await self._send(effect)
        except ApiError as error:
            log.info("binding refused pod=%s/%s node=%s cause=%s", effect.namespace, effect.name, effect.node, error)
            if error.code not in CAUTIOUS:
                return Answer(Outcome.FAILED, error.message)
            took, requested = self.clock.monotonic() - began, self.clock.monotonic()
            outcome, text = await self._look(effect, error)
            there = self.clock.monotonic() - requested < COUNTED_SILENCE
            return Answer(outcome, text, outcome is not Outcome.FAILED, min(took, COUNTED_SILENCE) if there else 0.0)
        return Answer(Outcome.BOUND)

    async def _send(self, effect: Bind) -> None:
        """Raises ApiError. A gang cannot wait as long as a request may last, or as a busy server asks for."""
        if not effect.gang:
            await self.cluster.bind(effect.namespace, effect.name, binding_body(effect))
            return
        try:
            async with asyncio.timeout(GANG_PATIENCE):
                await self.cluster.bind(effect.namespace, effect.name, binding_body(effect))
        except TimeoutError as error:
            raise ApiError(0, "Timeout", f"no answer within {GANG_PATIENCE:g} s") from error

    async def _look(self, effect: Bind, error: ApiError) -> tuple[Outcome, str]:
        """Read the pod from the API server after an answer that may be wrong. It is asked until it answers: as long as nobody
        knows, the pod keeps its place and its cards."""
        pod = await self.find(effect.namespace, effect.name)
        if pod is None:
            return Outcome.GONE, "it is not there any more"
        if pod.get("metadata", {}).get("uid") != effect.uid:
            return Outcome.GONE, "another pod has taken its name"
        node = pod.get("spec", {}).get("nodeName", "")
        if node:
            return (Outcome.BOUND, "") if node == effect.node else (Outcome.ELSEWHERE, f"it runs on {node}")
        return Outcome.FAILED, error.message

    async def find(self, namespace: str, name: str) -> Json | None:
        """The pod as the API server holds it, None when it holds none. Asked for until there is an answer."""
        tries = 0
        while True:
            try:
                return await self.cluster.get(PODS, name, namespace)
            except ApiError as error:
                if error.code == 404:
                    return None
                await self.clock.sleep(LOOK_AGAIN.pause(tries, self.rng))
                tries += 1


def binding_body(effect: Bind) -> bytes:
    """The Binding with its annotations (Volcano pkg/scheduler/cache/cache.go). Its uid makes the API server refuse a
    successor."""
    metadata: dict[str, object] = {"name": effect.name, "namespace": effect.namespace, "uid": effect.uid}
    if effect.annotations:
        metadata["annotations"] = effect.annotations
    target = {"apiVersion": "v1", "kind": "Node", "name": effect.node}
    return _encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
