"""Performs what an allocator decides for one container: slices, files, the pod's annotations, the node's lock; or its refusal."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from pumice.adapters.kubelet.endpoint import PluginError
from pumice.apps.node.files import install_files, make_directory
from pumice.apps.node.written_node import ANSWER, WrittenNode, answered, persist
from pumice.apps.service.worker import PATIENCE, Worker
from pumice.effects.tasks import first
from pumice.effects.vocabulary import EndPod, PatchNode, PatchPod
from pumice.node.pods import AllocatedIds, NodePod
from pumice.node.protocol import Allocator, Answer, Conflict, Decision, Outdated, Partition, Refuse, Repeat, Serve
from pumice.node.slices import Owners
from pumice.ports.cards import CardFacts
from pumice.ports.cluster import ApiError
from pumice.wire import names
from pumice.wire.objects import Node

T = TypeVar("T")


class Slicer(ABC):
    """The slices of one device type on one node. ``allocated``: the containers for which the kubelet has written devices down.

    It knows whose slices are whose, by the watch and by the kubelet's record, and has a thread of its own for the driver.
    """

    def __init__(self, own: WrittenNode, allocated: Callable[[], AllocatedIds | None], thread: str) -> None:
        self._own, self._allocated = own, allocated
        self._owners = Owners()
        self._driver = Worker(thread)

    @abstractmethod
    async def start(self, cards: Iterable[CardFacts]) -> None:
        """Put right what a crash or a boot has left."""

    @abstractmethod
    async def partition(self, wanted: Partition) -> Serve | Conflict:
        """The pod's slices, found or made; a conflict where they cannot be had as things are."""

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """The cards that cannot be cut, and why. Blocks, and is called from another thread."""
        return {}

    async def keep(self) -> None:
        """Do what is due from time to time, beside everything else, until cancelled."""
        return

    def look(self) -> None:
        """Take notice of the pods as they are now."""
        self._owners.look(self._own.pods, self._own.clock.monotonic())

    def close(self, patience: float = PATIENCE) -> None:
        self._driver.close(patience=patience)

    async def _ask(self) -> AllocatedIds | None:
        """The kubelet's record as it is now, which tells whose slices are held."""
        self.look()
        found = await asyncio.to_thread(self._allocated)
        self._owners.ask(found)
        return found

    async def _call(self, work: Callable[[], T]) -> T:
        """Return what the driver's thread answers. Raises Unavailable."""
        return await self._driver.call(work)


LEFT = 20.0
"""Seconds after which a lock that nobody touches, while no pod waits for its devices, was left behind: a Binding takes a few.
Schedulers wait for one for a minute, and believe it for five."""


class NodeLock:
    """The lock on the node that a scheduler took for a pod. ``key``: its annotation. It goes once a pod was dealt with. Where
    the watch showed it too late for that, or the write failed, it goes when it has lain about."""

    def __init__(self, own: WrittenNode, key: str) -> None:
        self._own, self._key = own, key
        self._value: str | None = None
        self._since = 0.0

    def busy(self) -> None:
        """A pod waits for its devices."""
        self._since = self._own.clock.monotonic()

    async def release(self) -> None:
        """The pod was dealt with."""
        node = self._own.node
        if node is not None and self._key in node.metadata.annotations:
            await self._own.perform_soon(PatchNode({self._key: None}), "releasing the node lock", ANSWER)

    def left(self, node: Node) -> list[PatchNode]:
        """Return the effect that takes away one that was left behind: nothing, if somebody has taken it anew by then."""
        value, now = node.metadata.annotations.get(self._key), self._own.clock.monotonic()
        if value is None or value != self._value:
            self._value, self._since = value, now
        behind = value is not None and now - self._since >= LEFT
        return [PatchNode({self._key: None}, version=node.metadata.resource_version)] if behind else []


log = logging.getLogger("pumice.node")

SWEEP_AGAIN = 5.0
"""Seconds after which a pod is marked again that could not be."""
CONFLICTS = (0.1, 0.4, 1.0)
"""Pauses in seconds before a write is tried again that met a conflict, while the pod is there."""

Prepare = Callable[[Answer], Awaitable[None]]
"""Has what an answer names be there before it is given, beside its own directories and files. Raises PumiceError."""


def in_turn(*parts: Prepare) -> Prepare | None:
    """All of them; None where there is none."""

    async def prepare(answer: Answer) -> None:
        for part in parts:
            await part(answer)

    return prepare if parts else None


class Performer:
    """Performs what the plugin of one device type decided. ``refused`` is called for every pod that was; ``learn`` reads the
    allocator's configuration again; ``prepare`` is asked before an answer counts."""

    def __init__(self, allocator: Allocator, own: WrittenNode, slicer: Slicer | None = None,
                 refused: Callable[[], None] = lambda: None, learn: Callable[[Allocator], Awaitable[None]] | None = None,
                 prepare: Prepare | None = None) -> None:  # fmt: skip
        self.allocator, self.own, self.slicer = allocator, own, slicer
        self._refused, self._learn, self._prepare = refused, learn, prepare
        self._ending: set[str] = set()
        """UIDs of pods that are marked as refused, and are to end."""
        self._ended: set[str] = set()
        """Pods that were ended because no container of theirs may start."""
        self.lock = NodeLock(own, allocator.lock)

    async def decided(self, decide: Callable[[], Decision | None]) -> Serve | Repeat | Refuse | Conflict | None:
        """The decision by the configuration as it is now, with the slices that it wants."""
        decision = await self.tried(decide)
        if not isinstance(decision, Partition):
            return decision
        if self.slicer is None:
            return self.allocator.refuse(decision.pod, "its slices cannot be cut here")
        return await self.slicer.partition(decision)

    async def tried(self, decide: Callable[[], Decision | None]) -> Serve | Repeat | Refuse | Conflict | Partition | None:
        """The decision by the configuration as it is now; nothing is cut."""
        decision = decide()
        if isinstance(decision, Outdated) and self._learn is not None:
            await self._learn(self.allocator)
            decision = decide()
        return self.allocator.refuse(decision.pod, decision.reason) if isinstance(decision, Outdated) else decision

    async def prepare(self, answer: Answer) -> None:
        """Have what the answer names beside its own directories and files be there: it may not last until the answer is in the
        books, and is asked for again right before. Raises PumiceError."""
        if self._prepare is not None:
            await self._prepare(answer)

    async def make(self, answer: Answer) -> None:
        """Have what the answer names be there. Raises PumiceError or OSError."""
        await self.prepare(answer)
        for directory in answer.directories:
            await asyncio.to_thread(make_directory, directory)
        await asyncio.to_thread(install_files, answer.files)

    async def write(self, patch: PatchPod) -> ApiError | None:
        """The last refusal; None once it is written. A conflict says that somebody was quicker, or that another pod has the name:
        while a list names the pod it is tried again (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu)."""
        for pause in (*CONFLICTS, 0.0):
            refused = await persist(lambda: self.own.perform(patch), self.own.clock)
            if refused is None or refused.code != 409 or not await self.listed():
                break
            if not pause or patch.uid not in {pod.uid for pod in self.own.pods}:
                break
            await self.own.clock.sleep(pause)
        return refused

    async def listed(self) -> bool:
        """Look at the pods past the watch, where the API server answers."""
        try:
            await answered(self.own.relist())
        except ApiError:
            return False
        return True

    async def commit(self, decision: Serve) -> None:
        """Take a decision that is written into the books, tell of it, and give the lock back."""
        self.allocator.committed(decision)
        self.own.node_changed.fire()  # what was handed out is told on the node
        for note in decision.notes:
            await self.own.perform_soon(note, "telling of it", ANSWER)
        if decision.finished:
            await self.lock.release()
        log.info("served pod=%s container=%s %s", decision.pod.key, decision.container.name, decision.summary)

    async def refuse(self, decision: Refuse) -> PluginError:
        log.warning("refused: %s", decision.reason)
        self._refused()
        for effect in decision.effects:
            await self.own.perform_soon(effect, "marking the pod", ANSWER)
        await self.lock.release()
        return PluginError(decision.reason)

    async def sweep(self) -> None:
        """Mark pods that ended while they were allocating, now and whenever the pods change."""
        while True:
            changed = self.own.pods_changed.wait()
            if self.slicer is not None:
                self.slicer.look()
            done = True
            for patch in self.allocator.sweep(self.own.pods):
                if await self.own.perform_soon(patch, f"marking pod {patch.namespace}/{patch.name}"):
                    log.info("pod ended while allocating pod=%s/%s", patch.namespace, patch.name)
                    await self.lock.release()
                else:
                    done = False
            await (changed if done else first(changed, self.own.clock.sleep(SWEEP_AGAIN)))

    async def end(self, pod: NodePod, decision: Refuse) -> PluginError:
        """Refuse a pod that the kubelet has admitted already: it is to end."""
        if self.ended(pod.uid):
            return PluginError(decision.reason)
        there = {one.uid for one in self.own.pods}
        if pod.uid not in self._ending:
            self._ending = {pod.uid, *self._ending & there}
            await self.refuse(decision)
        ending = EndPod.of(pod.metadata, names.DEVICES_REFUSED, decision.reason)
        if await self.own.perform_soon(ending, "ending the pod", ANSWER):
            self._ended = {pod.uid, *self._ended & there}
        return PluginError(decision.reason)

    def ended(self, uid: str) -> bool:
        """Return whether the API server has taken that a pod is to end."""
        return uid in self._ended
