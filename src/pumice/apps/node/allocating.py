"""Performs the decisions of an allocator: the handlers of a plugin's endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pumice.adapters.kubelet.checkpoint import Recorded
from pumice.adapters.kubelet.endpoint import PluginError
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.apps.node.directories import make_directory
from pumice.apps.node.files import install_files
from pumice.apps.node.node_lock import NodeLock
from pumice.apps.node.written_node import ANSWER, WrittenNode, answered, persist
from pumice.apps.service.tasks import first
from pumice.model.errors import PumiceError
from pumice.node.answer import Answer
from pumice.node.effects import EndPod, PatchPod
from pumice.node.pods import Held, NodePod
from pumice.node.protocol import Allocator, Conflict, Cut, Decision, Outdated, Refuse, Repeat, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.cluster import ApiError
from pumice.wire import names

log = logging.getLogger("pumice.node")

PATIENCE = 2.0
"""Seconds to wait for the watch: the binding reaches the kubelet and us by different ways."""
LOOK = 1.0
"""Seconds after which what is waited for is looked at again, though nothing was heard."""
AGAIN = 0.25
"""The same, where the API server did not answer."""
SWEEP_AGAIN = 5.0
"""Seconds after which a pod is marked again that could not be."""

Record = Sequence[Recorded]
Prepare = Callable[[Answer], Awaitable[None]]
"""Has what an answer names be there before it is given, beside its own directories and files. Raises PumiceError."""


def in_turn(*parts: Prepare) -> Prepare | None:
    """All of them; None where there is none."""

    async def prepare(answer: Answer) -> None:
        for part in parts:
            await part(answer)

    return prepare if parts else None


class Slicer(Protocol):
    """Who has a brand's cards cut into slices (``slicing.py``)."""

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """The cards that cannot be cut, and why. Blocks, and is called from another thread."""
        ...

    def look(self) -> None:
        """Take notice of the pods as they are now."""
        ...

    async def start(self, cards: Iterable[CardFacts]) -> None:
        """Put right what a crash or a boot has left."""
        ...

    async def cut(self, wanted: Cut) -> Serve | Conflict:
        """The pod's slices, found or made; a conflict where they cannot be had as things are."""
        ...

    async def keep(self) -> None:
        """What is to be done from time to time, beside everything else, until cancelled."""
        ...

    def close(self) -> None: ...


class AllocateHandler:
    """Answers for the resource that the allocator hands out. One call at a time, as the kubelet makes them. ``refused`` is
    told of every pod that was; ``learn`` reads the allocator's configuration again, ``prepare`` is asked before an answer is
    given."""

    def __init__(self, allocator: Allocator, own: WrittenNode, record: Callable[[], Record | None] = lambda: None,
                 slicer: Slicer | None = None, refused: Callable[[], None] = lambda: None,
                 learn: Callable[[Allocator], Awaitable[None]] | None = None,
                 prepare: Prepare | None = None) -> None:  # fmt: skip
        self._allocator, self._own, self._read, self._learn = allocator, own, record, learn
        self._prepare = prepare
        self._slicer, self._refused = slicer, refused
        self._one_at_a_time = asyncio.Lock()
        self._answered: dict[frozenset[str], Serve] = {}
        self._ended: set[str] = set()
        """Pods that were ended because they hold what was meant for others."""
        self.lock = NodeLock(own, allocator.lock)

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return self._allocator.prefer(self._own.pods, available, must, size, await self._record())

    async def allocate(self, ids: Sequence[str]) -> Any:
        gone: set[str] = set()
        async with self._one_at_a_time:
            while True:
                self.lock.busy()
                match await self._decide(ids):
                    case Serve() as decision:
                        if (answer := await self._serve(decision, gone)) is not None:
                            self._answered[frozenset(ids)] = decision
                            return answer
                        gone.add(decision.pod.uid)
                        if not await self._listed():  # who is served now would be taken for him
                            reason = "it seems to be gone, and the API server does not say who is there"
                            raise await self._refuse(self._allocator.refuse(decision.pod, reason))
                        continue
                    case Repeat(answer=again, pod=pod):
                        log.info("answered again pod=%s", pod)
                        return message(again)
                    case Refuse() as decision:
                        raise await self._refuse(decision)
                break
        await self.lock.release()
        raise PluginError(self._allocator.nobody(len(ids)))

    @property
    def serving(self) -> bool:
        """Whether a call is being answered."""
        return self._one_at_a_time.locked()

    async def sweep(self) -> None:
        """Mark pods that ended while they were allocating, now and whenever the pods change."""
        while True:
            changed = self._own.pods_changed.wait()
            if self._slicer is not None:
                self._slicer.look()
            done = True
            for patch in self._allocator.sweep(self._own.pods):
                if await self._own.perform_soon(patch, f"marking pod {patch.namespace}/{patch.name}"):
                    log.info("pod ended while allocating pod=%s/%s", patch.namespace, patch.name)
                    await self.lock.release()
                else:
                    done = False
            await (changed if done else first(changed, self._own.clock.sleep(SWEEP_AGAIN)))

    async def _decide(self, ids: Sequence[str]) -> Decision | None:
        """By the watch, then by a list past the watch, then whenever something changes, for a while. A watch that has broken
        takes its time to come back: until then it is listed now and again. That somebody is asked for again is believed only
        of who was listed since: with a watch that is away he may be gone, and his ids another pod's."""
        held = await self._record()
        decision, listed = await self._ask(ids, held), False
        look = LOOK
        if decision is None or isinstance(decision, Repeat):
            listed = await self._listed()
            look = LOOK if listed else AGAIN
            decision = await self._ask(ids, held)
        deadline = self._own.clock.monotonic() + PATIENCE
        while decision is None or isinstance(decision, Conflict) or (isinstance(decision, Repeat) and not listed):
            now = self._own.clock.monotonic()
            patience = decision.patience if isinstance(decision, Conflict) else 0
            deadline = max(deadline, now + patience) if patience else deadline
            if now >= deadline:
                break
            waited = await first(self._own.pods_changed.wait(), self._own.clock.sleep(min(look, deadline - now)))
            if waited == 1 and not isinstance(decision, Conflict):
                listed = await self._listed()
                look = LOOK if listed else AGAIN
            decision = await self._ask(ids, held)
        if isinstance(decision, Conflict):
            return self._allocator.refuse(decision.pod, decision.reason)
        return None if isinstance(decision, Repeat) and not listed else decision

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Whoever holds these devices by the kubelet's record was answered what was meant for it: the call named nobody, and may
        have been taken for another pod's. Such a container does not start, and its pod is ended: the other one's share is the
        other one's."""
        record = await asyncio.to_thread(self._read)
        there = {pod.uid: pod for pod in self._own.pods}
        holders = [one for one in record or () if one.ids == frozenset(ids)]
        if not holders:
            raise PluginError("the kubelet's record of devices does not say yet whose these are")
        for one in holders:
            if not (meant := self._meant(one)) or meant == (one.pod, one.container):
                continue
            other = there[meant[0]].key if meant[0] in there else f"UID {meant[0]}"
            reason = f"the call for container {one.container} was taken for pod {other}'s (container {meant[1]}), whose share it "
            reason += "would start with: the kubelet does not say for whom it asks"
            pod = there.get(one.pod)
            if pod is None or pod.finished:
                raise PluginError(reason)
            raise await self._end(pod, reason)

    def _meant(self, one: Recorded) -> tuple[str, str] | None:
        """The container that an answer was for; None where nothing tells: it is older than this process's kind of answers."""
        uid, _, container = one.annotations.get(names.ANSWERED_FOR, "").partition("/")
        if uid:
            return uid, container
        served = self._answered.get(one.ids)
        return (served.pod.uid, served.container.name) if served is not None else None

    async def _end(self, pod: NodePod, reason: str) -> PluginError:
        if pod.uid in self._ended:
            return PluginError(f"pod {pod.key}: {reason}")
        error = await self._refuse(self._allocator.refuse(pod, reason))
        if await self._own.perform_soon(EndPod.of(pod.metadata, names.NOT_ITS_DEVICES, reason), "ending the pod", ANSWER):
            self._ended.add(pod.uid)
        return error

    async def _record(self) -> Held | None:
        """The kubelet's, which writes down whom it asked for before it asks again: where a call was for another pod than the one
        that was answered for, that one waits still."""
        record = await asyncio.to_thread(self._read)
        there = {pod.uid for pod in self._own.pods}
        self._ended &= there
        self._answered = {ids: served for ids, served in self._answered.items() if served.pod.uid in there}
        written: dict[frozenset[str], set[str]] = {}
        for one in record or ():
            written.setdefault(one.ids, set()).add(one.pod)
        for ids in [ids for ids, served in self._answered.items() if served.pod.uid not in written.get(ids, {served.pod.uid})]:
            self._allocator.unserved(self._answered.pop(ids))
        return None if record is None else {(one.pod, one.container): one.ids for one in record}

    async def _listed(self) -> bool:
        """Look at the pods past the watch, where the API server answers."""
        try:
            await answered(self._own.relist())
        except ApiError:
            return False
        return True

    async def _ask(self, ids: Sequence[str], held: Held | None) -> Decision | None:
        decision = self._allocator.allocate(self._own.pods, ids, held)
        if isinstance(decision, Outdated) and self._learn is not None:
            await self._learn(self._allocator)
            decision = self._allocator.allocate(self._own.pods, ids, held)
        if isinstance(decision, Outdated):
            return self._allocator.refuse(decision.pod, decision.reason)
        if not isinstance(decision, Cut):
            return decision
        if self._slicer is None:
            return self._allocator.refuse(decision.pod, "its slices cannot be cut here")
        return await self._slicer.cut(decision)

    async def _serve(self, decision: Serve, gone: Container[str]) -> Any:
        """The answer; None where the pod is gone, and so not the one that is asked for. ``gone``: uids of those of which that was
        said before: one that is listed all the same is refused."""
        pod, patch = decision.pod, decision.patch
        owner = {names.ANSWERED_FOR: f"{pod.uid}/{decision.container.name}"}
        decision = replace(decision, answer=replace(decision.answer, annotations={**decision.answer.annotations, **owner}))
        try:
            if self._prepare is not None:
                await self._prepare(decision.answer)
            for directory in decision.answer.directories:
                await asyncio.to_thread(make_directory, directory)
            await asyncio.to_thread(install_files, decision.answer.files)
            if patch is not None:
                refused = await self._written(patch)
                if refused is not None and refused.code in (404, 409) and pod.uid not in gone:  # or another one has its name
                    return None
                if refused is not None:
                    raise PumiceError(f"its annotations could not be written: {refused}")
            elif (refused := await persist(self._own.relist, self._own.clock)) is not None:
                raise PumiceError(f"the API server does not say whether it is still there: {refused}")
            elif pod.uid not in {there.uid for there in self._own.pods}:
                return None
        except (PumiceError, OSError) as error:
            raise await self._refuse(self._allocator.refuse(pod, str(error))) from error
        self._allocator.settled(decision)
        self._own.node_changed.fire()  # what was handed out is told on the node
        for note in decision.notes:
            await self._own.perform_soon(note, "telling of it", ANSWER)
        if decision.finished:
            await self.lock.release()
        log.info("served pod=%s container=%s %s", pod.key, decision.container.name, decision.summary)
        return message(decision.answer)

    async def _written(self, patch: PatchPod) -> ApiError | None:
        """The last refusal; None once it is written. A conflict says that somebody was quicker, or that another pod has the name:
        while a list names the pod it is tried again (spec nvidia-device-plugin 11.2)."""
        for pause in (0.1, 0.4, 1.0, 0.0):
            refused = await persist(lambda: self._own.perform(patch), self._own.clock)
            if refused is None or refused.code != 409 or not await self._listed():
                break
            if not pause or patch.uid not in {pod.uid for pod in self._own.pods}:
                break
            await self._own.clock.sleep(pause)
        return refused

    async def _refuse(self, decision: Refuse) -> PluginError:
        log.warning("refused: %s", decision.reason)
        self._refused()
        for effect in decision.effects:
            await self._own.perform_soon(effect, "marking the pod", ANSWER)
        await self.lock.release()
        return PluginError(decision.reason)


class GivingHandler:
    """Answers for a resource whose devices say themselves what the container gets."""

    def __init__(self, allocator: Allocator, resource: str, prepare: Prepare | None = None) -> None:
        self._allocator, self._resource, self._prepare = allocator, resource, prepare

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return []

    async def pre_start(self, ids: Sequence[str]) -> None:
        return

    async def allocate(self, ids: Sequence[str]) -> Any:
        answer = self._allocator.give(self._resource, ids)
        if isinstance(answer, str):
            raise PluginError(answer)
        try:
            if self._prepare is not None:
                await self._prepare(answer)
        except PumiceError as error:
            raise PluginError(str(error)) from error
        return message(answer)


class CountedHandler:
    """Answers for resources that are only counted, as memory units and cores in device lists are."""

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return []

    async def pre_start(self, ids: Sequence[str]) -> None:
        return

    async def allocate(self, ids: Sequence[str]) -> Any:
        return pb.ContainerAllocateResponse()


def message(answer: Answer) -> Any:
    """The answer as the protocol's message."""
    return pb.ContainerAllocateResponse(
        envs=dict(answer.env),
        mounts=[
            pb.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in answer.mounts
        ],
        devices=[
            pb.DeviceSpec(container_path=n.container_path, host_path=n.host_path, permissions=n.permissions)
            for n in answer.nodes
        ],
        annotations=dict(answer.annotations),
        cdi_devices=[pb.CDIDevice(name=name) for name in answer.cdi],
    )
