"""Answers calls with the name of a CDI device that is used once, and has it made when the kubelet's record says whose it is.

Allocate names no pod. Right after it the kubelet writes its record, in which the answer, and so the name, stands under a pod and
a container: then the share is made, booked and written on the pod, and the node's lock is given back, without waiting for an
image. PreStartContainer comes before the runtime makes the container and sees to it that all this was done. A name whose device
is missing makes the runtime refuse the container, and the kubelet tries again.

Where the runtime has no CDI the answer was guessed, and has a number all the same. When the record shows that it was given to
another container, that one's share is made in its place, if what is not in files of the host is the same; else its pod is ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pumice.adapters.kubelet.checkpoint import Recorded
from pumice.adapters.kubelet.endpoint import PluginError
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.apps.node.allocating import PATIENCE, AllocateHandler, AnswerLinks, Meant, unlike
from pumice.apps.node.device_type import PluginSettings
from pumice.apps.node.files import ShareFiles, elsewhere_than_root
from pumice.apps.node.performing import Performer
from pumice.effects.tasks import Signal, first
from pumice.model.errors import PumiceError
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.node.protocol import Conflict, Refuse, Serve, share_file
from pumice.wire import cdi
from pumice.wire.objects import NodeInfo

log = logging.getLogger("pumice.node")

FIRST_LOOK, LAST_LOOK = 0.005, 0.5
"""Seconds after an answer until the record is looked at, and at most between two looks."""
UNCLAIMED = 30.0
"""Seconds after which an answer that the record does not have was for nobody: the kubelet refused the pod for another reason."""
TRY_AGAIN = 1.0
"""Seconds after which somebody whose share could not be made is tried again, though nothing was heard."""
IN_TIME = 25.0
"""Seconds that a start waits for its share: the kubelet gives PreStartContainer 30."""
SWEEP_EVERY = 60.0


@dataclass(slots=True)
class PendingAnswer:
    """An answered Allocate whose pod and container the kubelet's record names. ``error``: why it has no share yet or, where it
    ``ended``, never will. ``due``: this process has made something of the share and has not booked it, though all may be
    written. ``refusal``: why its pod is to end."""

    one: Recorded
    since: float
    error: str = ""
    done: bool = False
    ended: bool = False
    due: bool = False
    refusal: Refuse | None = None
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)


class NamingHandler:
    """The answers to Allocate by CDI names. ``record``: the kubelet's, of this resource. Where shares have no names
    (``named``) ``guessing`` answers, and ``links`` lead to what the answers mount."""

    def __init__(self, performer: Performer, record: Callable[[], Sequence[Recorded] | None], files: ShareFiles,
                 links: AnswerLinks, guessing: AllocateHandler, *, named: bool) -> None:  # fmt: skip
        self._performer, self._read, self._files, self._links = performer, record, files, links
        self._guessing, self._named = guessing, named
        self._allocator, self._own = performer.allocator, performer.own
        self._requested: dict[str, float] = {}
        """When a number was answered that the record has not shown yet."""
        self._pending: dict[str, PendingAnswer] = {}
        self._one_at_a_time = asyncio.Lock()
        self._performing = asyncio.Lock()
        self._answered = Signal()
        self._swept = float("-inf")
        self._allocated: AllocatedIds = {}
        """The record as it was seen last."""
        self._seen: Sequence[Recorded] | None = None

    # -- what the kubelet asks ---------------------------------------------------------------------------------------------

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return await self._guessing.prefer(available, must, size)

    async def allocate(self, ids: Sequence[str]) -> Any:
        async with self._one_at_a_time:
            self._performer.lock.busy()
            record = await self._record() or ()
            if self._named and (refused := await self._hopeless(ids, record)) is not None:
                raise refused
            number = self._new_number(record)
            self._requested[number] = self._own.clock.monotonic()
            if self._named:
                device = pb.CDIDevice(name=cdi.share(number))
                answer = pb.ContainerAllocateResponse(envs=dict(self._allocator.without), cdi_devices=[device])
            else:
                answer = await self._guessed(ids, number)
            self._answered.fire()
            return answer

    async def _guessed(self, ids: Sequence[str], number: str) -> Any:
        try:
            return await self._guessing.allocate(ids, number)
        except PluginError:
            del self._requested[number]
            raise

    async def pre_start(self, ids: Sequence[str]) -> None:
        record = await self._record()
        self._look(record)
        holders = [one for one in record or () if one.ids == frozenset(ids) and self._there(one)]
        if not holders:
            raise PluginError("the kubelet's record of devices does not say yet whose these are")
        for one in holders:
            if number := _number(one):
                error = await self._made_in_time(number, one)
            else:
                error = await self._checked(one)
            if error:
                raise PluginError(error)

    @property
    def serving(self) -> bool:
        """Return whether a pod waits for its share."""
        waiting = any(not (pending.done or pending.ended) for pending in self._pending.values())
        return self._guessing.serving or (self._named and bool(self._requested)) or waiting

    # -- what goes on beside -----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Have everybody's share there whom the record names: a boot empties the folder. Whose share cannot be made now is tried
        again later."""
        self._look(await self._record())
        await self._reconcile_all()

    async def keep(self) -> None:
        """Make shares as soon as the record says whose they are."""
        pause = FIRST_LOOK
        while True:
            answered, changed = self._answered.wait(), self._own.pods_changed.wait()
            if self._requested or self._due():
                record = await self._record()
                self._look(record)
                await self._reconcile_all()
                self._sweep(record)
            pause = min(2 * pause, LAST_LOOK) if self._requested else FIRST_LOOK
            waits = self._own.clock.sleep(pause if self._requested else TRY_AGAIN if self.serving else SWEEP_EVERY)
            if await first(answered, changed, waits) == 0:
                pause = FIRST_LOOK
                await self._own.clock.sleep(pause)

    async def _record(self) -> Sequence[Recorded] | None:
        """Return the kubelet's record. Where somebody took the file away, what was seen of it last holds until the next answer:
        the kubelet writes the whole of it anew then."""
        record = await asyncio.to_thread(self._read)
        if record is None and not self._requested:
            return self._seen
        self._seen = record if record is not None else self._seen
        return record

    def _due(self) -> bool:
        return self.serving or self._own.clock.monotonic() >= self._swept + SWEEP_EVERY

    def _sweep(self, record: Sequence[Recorded] | None) -> None:
        """Forget what the record does not have any more."""
        now = self._own.clock.monotonic()
        self._requested = {number: since for number, since in self._requested.items() if now < since + UNCLAIMED}
        if record is None or now < self._swept + SWEEP_EVERY:
            return
        self._swept = now
        known = {_number(one) for one in record}
        self._pending = {number: pending for number, pending in self._pending.items() if number in known}
        self._files.keep({*known, *self._requested})
        self._links.keep({*known, *self._requested})

    def _look(self, record: Sequence[Recorded] | None) -> None:
        """Take up what the record says of numbers."""
        now = self._own.clock.monotonic()
        for one in record or ():
            if number := _number(one):
                self._requested.pop(number, None)
                self._pending.setdefault(number, PendingAnswer(one, now))
        if record is not None:
            self._allocated = _allocated(record)
        self._guessing.heed(record)

    def _new_number(self, record: Sequence[Recorded]) -> str:
        """Of the time and by chance: new, whatever a runtime remembers and whatever the clock was set to."""
        taken = {*map(_number, record), *self._files.numbers(), *self._links.numbers(), *self._requested}
        while True:
            time, chance = int(self._own.clock.now() * 1e9), self._own.rng.getrandbits(64)
            if (number := f"{self._files.first}{time:016x}{chance:016x}") not in taken:
                return number

    # -- whose it is -------------------------------------------------------------------------------------------------------

    async def _hopeless(self, ids: Sequence[str], record: Sequence[Recorded]) -> PluginError | None:
        """The refusal where there is nobody whom the call may be for, or one alone who cannot be served: the kubelet then rejects
        the pod at once. Where there are several, the record will tell."""
        served = {(one.pod, one.container) for one in record}
        for listed in (False, True):
            if listed and not await self._performer.listed():
                return None
            waiting = list(self._waiting(len(ids), served))
            if len({pod.uid for pod, _ in waiting}) > 1:
                return None
            if not waiting:
                continue
            pod, container = waiting[0]
            allocated = {**_allocated(record), (pod.uid, container.name): frozenset(ids)}
            found = await self._performer.tried(
                partial(self._allocator.owned, self._own.pods, pod, container.name, allocated, "")
            )
            if not isinstance(found, Refuse):
                return None
            if listed:
                return await self._performer.refuse(found)
        return await self._performer.refuse(Refuse(self._allocator.nobody(len(ids))))

    def _waiting(self, count: int, served: set[tuple[str, str]]) -> Iterator[tuple[NodePod, Container]]:
        for pod in self._own.pods:
            if pod.finished or pod.mirror or pod.turned_away:
                continue
            for container in pod.containers:
                if container.requested(self._allocator.resource) == count and (pod.uid, container.name) not in served:
                    yield pod, container
                    break

    def _there(self, one: Recorded) -> bool:
        """Return whether it may still start: whom the API server has not shown us may."""
        pod = self._pod(one)
        return pod is None or not pod.finished

    def _pod(self, one: Recorded) -> NodePod | None:
        return next((pod for pod in self._own.pods if pod.uid == one.pod), None)

    # -- its share ---------------------------------------------------------------------------------------------------------

    async def _reconcile_all(self) -> None:
        for number, pending in list(self._pending.items()):
            if not (pending.done or pending.ended):
                await self._reconcile(number, pending)

    async def _made_in_time(self, number: str, one: Recorded) -> str:
        """Return why the share is not there; empty where it is."""
        pending = self._pending.setdefault(number, PendingAnswer(one, self._own.clock.monotonic()))
        if (pending.one.pod, pending.one.container) != (one.pod, one.container):
            return f"its answer was given to container {pending.one.container} of pod UID {pending.one.pod} as well"
        with suppress(TimeoutError):
            async with asyncio.timeout(IN_TIME):
                await self._reconcile(number, pending, starting=True)
                return pending.error
        return "its share is still being made"

    async def _reconcile(self, number: str, pending: PendingAnswer, *, starting: bool = False) -> None:
        """Make the share unless it is there. ``starting``: the kubelet has asked for all that the pod needs."""
        async with pending.alone:
            if pending.ended or (pending.done and self._has(number, pending.one)):
                return
            before = pending.error
            async with self._performing:
                try:
                    pending.error = await self._make(number, pending, starting)
                except (PumiceError, OSError) as error:
                    pending.error = str(error)
            pending.done = not pending.error
            if pending.error and pending.error != before:
                log.info("pod UID %s container %s waits for its share: %s", pending.one.pod, pending.one.container, pending.error)

    async def _make(self, number: str, pending: PendingAnswer, starting: bool) -> str:
        one, meant = pending.one, Meant.by(pending.one)
        there = self._has(number, one)
        if meant is not None and meant.is_for(one):  # a right guess: all was done before it was answered
            if not there:
                await asyncio.to_thread(self._links.confirm, number)
            return ""
        if (pod := self._pod(one)) is None:
            listed = await self._performer.listed()
            if (pod := self._pod(one)) is None:
                pending.ended = listed  # it went, or nobody but the kubelet knows of it: a static pod
                return "the API server does not name its pod" if listed else "the API server does not say who is there"
        if pod.finished:
            pending.ended = True
            return "its pod has ended"
        if pod.rejected:
            return "the kubelet has rejected its pod"
        if pending.refusal is not None:
            return await self._end(pending, pod, pending.refusal)
        allocated = {**self._allocated, (one.pod, one.container): one.ids}
        # Without CDI the answer was given under its number: an exchanged share may differ in nothing else. With CDI the region's
        # name follows from the container: when the kubelet has lost its record and asks again, the limits page of a container
        # that runs stays as it is, and the region that it names must be the one that is mounted.
        seed = number if meant is not None else f"{one.pod}/{one.container}"
        decision = await self._performer.decided(
            lambda: self._allocator.owned(self._own.pods, pod, one.container, allocated, seed))
        match decision:
            case Conflict() if not there:
                if self._own.clock.monotonic() < pending.since + max(PATIENCE, decision.patience):
                    return decision.reason
                decision = self._allocator.refuse(pod, decision.reason)
            case Serve() if meant is not None:
                return await self._exchange(pending, meant, decision, there, starting)
            case Serve():
                return await self._serve(number, pending, decision, there)
        if there or not isinstance(decision, Refuse):
            return ""  # it was served, and runs or may start again with what it has
        return await self._end(pending, pod, decision)

    async def _end(self, pending: PendingAnswer, pod: NodePod, refusal: Refuse) -> str:
        """End the pod of a container that cannot have its share, and return why. It is tried again until the API server takes it:
        nobody decides anew, for the pod was marked as refused."""
        pending.refusal = refusal
        reason = await self._performer.end(pod, refusal)
        pending.ended = self._performer.ended(pod.uid)
        return str(reason)

    async def _serve(self, number: str, pending: PendingAnswer, decision: Serve, there: bool) -> str:
        pending.due = pending.due or not there or decision.patch is not None
        if not there:
            await self._performer.make(decision.answer)
            await asyncio.to_thread(self._files.write, number, share_file(number, decision.answer))
        if decision.patch is not None and (refused := await self._performer.write(decision.patch)) is not None:
            return f"its annotations could not be written: {refused}"
        await self._committed(pending, decision)
        return ""

    async def _committed(self, pending: PendingAnswer, decision: Serve) -> None:
        if pending.due:
            await self._performer.prepare(decision.answer)
            await self._performer.commit(decision)
            pending.due = False

    # -- where it was guessed ----------------------------------------------------------------------------------------------

    def _has(self, number: str, one: Recorded) -> bool:
        """Return whether the share that the runtime will find under this number is there."""
        meant = Meant.by(one)
        return self._files.has(number) if meant is None else self._links.owner(number) == _owner(one)

    async def _exchange(self, pending: PendingAnswer, meant: Meant, decision: Serve, there: bool, starting: bool) -> str:
        """Put this container's share in the place of the one that was guessed. A pod for which that cannot be is ended once the
        kubelet asks nothing more for it: its further calls would be taken for others'."""
        one, pod = pending.one, decision.pod
        pending.due = pending.due or not there or decision.patch is not None
        if not there:
            due = self._links.mounted(decision.answer, meant.number)
            if why := unlike(one.answer, due):
                reason = self._mistaken(one, meant, why)
                if not starting and self._own.clock.monotonic() < pending.since + PATIENCE:
                    return reason
                return await self._end(pending, pod, self._allocator.refuse(pod, reason))
            await self._performer.make(decision.answer)
        if decision.patch is not None and (refused := await self._performer.write(decision.patch)) is not None:
            return f"its annotations could not be written: {refused}"
        if not there:
            await asyncio.to_thread(self._links.exchange, meant.number, _owner(one), decision.answer.own)
            log.info("exchanged pod=%s container=%s was taken for pod UID %s container %s",
                     pod.key, one.container, meant.pod, meant.container)  # fmt: skip
        await self._committed(pending, decision)
        return ""

    async def _checked(self, one: Recorded) -> str:
        """End the pod of a container that an older plugin's answer was not for, and return why it does not start."""
        meant, pod = Meant.by(one), self._pod(one)
        if meant is None or meant.is_for(one):
            return ""
        reason = self._mistaken(one, meant, "an older plugin answered")
        if pod is None or pod.finished:
            return reason
        return str(await self._performer.end(pod, self._allocator.refuse(pod, reason)))

    def _mistaken(self, one: Recorded, meant: Meant, why: str) -> str:
        other = next((pod.key for pod in self._own.pods if pod.uid == meant.pod), f"UID {meant.pod}")
        return (f"the call for container {one.container} was taken for pod {other}'s (container {meant.container}), whose share "
                f"it would start with: the kubelet does not say for whom it asks, and {why}")  # fmt: skip


def _number(one: Recorded) -> str:
    """Return the number of the answer that was written down; empty where it has none."""
    if number := cdi.share_number(one.cdi):
        return number
    meant = Meant.by(one)
    return meant.number if meant is not None else ""


def _owner(one: Recorded) -> str:
    return f"{one.pod}_{one.container}"


def _allocated(record: Sequence[Recorded]) -> AllocatedIds:
    return {(one.pod, one.container): one.ids for one in record}


def unnamed(settings: PluginSettings, node: NodeInfo) -> str:
    """Return why this node's containers cannot be given devices of a name that is used once; empty where they can."""
    if settings.named_shares == "off":
        return "--cdi is off"
    if settings.named_shares == "on":
        return ""
    if not cdi.heeded(node.container_runtime_version, node.kubelet_version):
        versions = f"{node.container_runtime_version or '(unknown)'} under kubelet {node.kubelet_version or '(unknown)'}"
        return f"{versions} is not known to heed CDI devices; where it does, say --cdi on"
    if not elsewhere_than_root(settings.cdi_folder):
        return f"{settings.cdi_folder} cannot be written, or is not the host's here"
    return ""
