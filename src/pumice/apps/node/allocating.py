"""Answers calls that name nobody by guessing whose they are, for runtimes without CDI (ADR 120). The kubelet's record tells
afterwards, and the answer is exchanged then (``naming.py``).

Answers by guess, and the links by which their mounts lead to host folders: until the kubelet's record says whose an answer is
they lead nowhere, so that no container starts; then to the folders of that one, whoever was guessed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pumice.adapters.kubelet.checkpoint import Recorded
from pumice.adapters.kubelet.endpoint import PluginError
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.adapters.regular_files import replace_link
from pumice.apps.node.performing import Performer, Prepare
from pumice.apps.node.written_node import persist
from pumice.effects.tasks import first
from pumice.model.errors import PumiceError
from pumice.node.pods import AllocatedIds
from pumice.node.protocol import Allocator, Answer, Conflict, Mount, Refuse, Repeat, Serve
from pumice.wire import names

_TO, _GUESSED, _EXCHANGED, _OWNER = "to", "guessed", "exchanged", "owner"


@dataclass(frozen=True, slots=True)
class Meant:
    """The container that an answer by guess was for, and the answer's number; that is empty where an older plugin answered."""

    pod: str
    container: str
    number: str = ""

    @classmethod
    def by(cls, one: Recorded) -> Meant | None:
        """Return what the answer says of itself; None where it was not given by guess."""
        text = one.annotations.get(names.ANSWERED_FOR, "")
        return cls(*(text.split("/", 2))) if text.count("/") in (1, 2) else None

    @property
    def text(self) -> str:
        return f"{self.pod}/{self.container}/{self.number}"

    def is_for(self, one: Recorded) -> bool:
        return (self.pod, self.container) == (one.pod, one.container)


class AnswerLinks:
    """Those of one resource below ``folder``; without it no answer mounts a folder of its container's own. What an answer mounts
    lies below ``<folder>/<number>/to``, a link to the links of the one guessed, or of the one that it was exchanged for. A
    runtime makes a source of a mount that is missing, but not behind a link to nowhere. ``first``: digits that all numbers of the
    resource begin with."""

    def __init__(self, folder: str, first: str) -> None:
        self._folder, self._first = folder, first

    def mounted(self, answer: Answer, number: str) -> Answer:
        """Return the answer with mounts that lead over links."""
        return replace(answer, mounts=tuple(self._over(mount, answer.own, number) for mount in answer.mounts))

    def open(self, number: str, owner: str, own: Sequence[str]) -> None:
        """Make the links of the one guessed, which lead nowhere yet. Raises OSError."""
        if self._folder:
            self._make(number, _GUESSED, owner, own)
            self._lead(number, "nobody")

    def confirm(self, number: str) -> None:
        """Have the links lead to whom was guessed. Raises OSError."""
        if self._folder:
            self._lead(number, _GUESSED)

    def exchange(self, number: str, owner: str, own: Sequence[str]) -> None:
        """Have the links lead to another's folders. Raises OSError."""
        if self._folder:
            self._make(number, _EXCHANGED, owner, own)
            self._lead(number, _EXCHANGED)

    def owner(self, number: str) -> str:
        """Return to whom the links lead; empty for nobody."""
        with suppress(OSError):
            return os.readlink(self._path(number) / _TO / _OWNER) if self._folder else ""
        return ""

    def keep(self, numbers: Collection[str]) -> None:
        """Remove all but these."""
        for number in self.numbers() - set(numbers):
            shutil.rmtree(self._path(number), ignore_errors=True)

    def numbers(self) -> set[str]:
        with suppress(OSError):
            return {name for name in os.listdir(self._folder) if name.startswith(self._first)} if self._folder else set()
        return set()

    def _over(self, mount: Mount, own: Sequence[str], number: str) -> Mount:
        for at, folder in enumerate(own):
            if mount.host_path == folder or mount.host_path.startswith(f"{folder}/"):
                rest = mount.host_path.removeprefix(folder)
                return replace(mount, host_path=f"{self._path(number) / _TO}/{at}{rest}")
        return mount

    def _make(self, number: str, name: str, owner: str, own: Sequence[str]) -> None:
        folder = self._path(number) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for at, target in enumerate(own):
            (folder / str(at)).symlink_to(os.path.relpath(target, folder))
        (folder / _OWNER).symlink_to(owner)

    def _lead(self, number: str, target: str) -> None:
        replace_link(self._path(number) / _TO, target)

    def _path(self, number: str) -> Path:
        return Path(self._folder) / number


def message(answer: Answer) -> Any:
    """Return the answer as the protocol's message."""
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


def unlike(given: Any, due: Answer) -> str:
    """Return what an answer that was given has otherwise than the one that is due and is not held by host files; empty where
    nothing is. ``due``: with its mounts over the links of the answer given."""
    wanted = message(due)
    for name in sorted({*given.envs, *wanted.envs} - due.kept):
        if given.envs.get(name) != wanted.envs.get(name):
            return f"{name} is {given.envs.get(name)!r} and not {wanted.envs.get(name)!r}"
    return next((f"its {what} differ" for what, shape in _SHAPES.items() if shape(given) != shape(wanted)), "")


_SHAPES: Mapping[str, Callable[[Any], Any]] = {
    "mounts": lambda one: {(mount.container_path, mount.host_path, mount.read_only) for mount in one.mounts},
    "device nodes": lambda one: {(node.container_path, node.host_path, node.permissions) for node in one.devices},
    "CDI devices": lambda one: {device.name for device in one.cdi_devices},
    "annotations": lambda one: {key: text for key, text in one.annotations.items() if key != names.ANSWERED_FOR},
}


log = logging.getLogger("pumice.node")

PATIENCE = 2.0
"""Seconds to wait for the watch: the binding reaches the kubelet and us by different ways."""
LOOK = 1.0
"""Seconds after which what is waited for is looked at again, though nothing was heard."""
AGAIN = 0.25
"""The same, where the API server did not answer."""


class AllocateHandler:
    """Answers for the resource that the allocator hands out. One call at a time, as the kubelet makes them. ``record``: the
    kubelet's, of this resource."""

    def __init__(self, performer: Performer, record: Callable[[], Sequence[Recorded] | None], links: AnswerLinks) -> None:
        self._performer, self._read, self._links = performer, record, links
        self._allocator, self._own, self._lock = performer.allocator, performer.own, performer.lock
        self._one_at_a_time = asyncio.Lock()
        self._answered: dict[str, Serve] = {}
        """By numbers of answers that the record has not shown yet."""

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return self._allocator.prefer(self._own.pods, available, must, size, await self._record())

    async def allocate(self, ids: Sequence[str], number: str) -> Any:
        """Return the answer for whom the call seems to be, under a number that is used once."""
        gone: set[str] = set()
        async with self._one_at_a_time:
            while True:
                self._lock.busy()
                match await self._decide(ids, number):
                    case Serve() as decision:
                        if (answer := await self._serve(decision, gone, number)) is not None:
                            self._answered[number] = decision
                            return answer
                        gone.add(decision.pod.uid)
                        if not await self._performer.listed():  # who is served now would be taken for him
                            reason = "it seems to be gone, and the API server does not say who is there"
                            raise await self._performer.refuse(self._allocator.refuse(decision.pod, reason))
                        continue
                    case Repeat(answer=again, pod=pod):
                        log.info("answered again pod=%s", pod)
                        return message(again)
                    case Refuse() as decision:
                        raise await self._performer.refuse(decision)
                break
        await self._lock.release()
        raise PluginError(self._allocator.nobody(len(ids)))

    @property
    def serving(self) -> bool:
        """Return whether a call is being answered."""
        return self._one_at_a_time.locked()

    async def _decide(self, ids: Sequence[str], number: str) -> Serve | Repeat | Refuse | None:
        """By the watch, then by a list past the watch, then whenever something changes, for a while. A watch that has broken
        takes its time to come back: until then it is listed now and again. That somebody is asked for again is believed only
        of who was listed since: with a watch that is away he may be gone, and his ids another pod's."""
        allocated = await self._record()
        decision, listed = await self._ask(ids, allocated, number), False
        look = LOOK
        if decision is None or isinstance(decision, Repeat):
            listed = await self._performer.listed()
            look = LOOK if listed else AGAIN
            decision = await self._ask(ids, allocated, number)
        deadline = self._own.clock.monotonic() + PATIENCE
        while decision is None or isinstance(decision, Conflict) or (isinstance(decision, Repeat) and not listed):
            now = self._own.clock.monotonic()
            patience = decision.patience if isinstance(decision, Conflict) else 0
            deadline = max(deadline, now + patience) if patience else deadline
            if now >= deadline:
                break
            waited = await first(self._own.pods_changed.wait(), self._own.clock.sleep(min(look, deadline - now)))
            if waited == 1 and not isinstance(decision, Conflict):
                listed = await self._performer.listed()
                look = LOOK if listed else AGAIN
            decision = await self._ask(ids, allocated, number)
        if isinstance(decision, Conflict):
            return self._allocator.refuse(decision.pod, decision.reason)
        if not listed and (decision is None or isinstance(decision, Repeat)):
            return Refuse(f"the API server does not say who is on this node, and {self._allocator.nobody(len(ids))}")
        return decision

    def heed(self, record: Sequence[Recorded] | None) -> None:
        """Take notice of whom the kubelet asked for, which it writes down before it asks again: where a call was for another pod
        than the one that was answered for, that one waits still."""
        there = {pod.uid: pod for pod in self._own.pods}
        self._answered = {number: served for number, served in self._answered.items() if served.pod.uid in there}
        for one in record or ():
            meant = Meant.by(one)
            served = self._answered.pop(meant.number, None) if meant is not None else None
            if served is None or one.pod == served.pod.uid:
                continue
            self._allocator.unserved(served)
            owner = there.get(one.pod)
            if owner is not None and owner.arrival >= there[served.pod.uid].arrival:  # the kubelet passed it over
                self._own.passed_over(served.pod.uid)

    async def _record(self) -> AllocatedIds | None:
        record = await asyncio.to_thread(self._read)
        self.heed(record)
        return None if record is None else {(one.pod, one.container): one.ids for one in record}

    async def _ask(
        self, ids: Sequence[str], allocated: AllocatedIds | None, number: str
    ) -> Serve | Repeat | Refuse | Conflict | None:
        return await self._performer.decided(lambda: self._allocator.allocate(self._own.pods, ids, allocated, number))

    async def _serve(self, decision: Serve, gone: Container[str], number: str) -> Any:
        """The answer; None where the pod is gone, and so not the one that is asked for. ``gone``: uids of those of which that was
        said before: one that is listed all the same is refused."""
        pod, patch = decision.pod, decision.patch
        try:
            await self._performer.make(decision.answer)
            if patch is not None:
                refused = await self._performer.write(patch)
                if refused is not None and refused.code in (404, 409) and pod.uid not in gone:  # or another one has its name
                    return None
                if refused is not None:
                    raise PumiceError(f"its annotations could not be written: {refused}")
            elif (refused := await persist(self._own.relist, self._own.clock)) is not None:
                raise PumiceError(f"the API server does not say whether it is still there: {refused}")
            elif pod.uid not in {there.uid for there in self._own.pods}:
                return None
            await self._performer.prepare(decision.answer)
            await asyncio.to_thread(self._links.open, number, f"{pod.uid}_{decision.container.name}", decision.answer.own)
        except (PumiceError, OSError) as error:
            raise await self._performer.refuse(self._given_up(decision, str(error))) from error
        meant = Meant(pod.uid, decision.container.name, number)
        notes = {**decision.answer.annotations, names.ANSWERED_FOR: meant.text}
        decision = replace(decision, answer=replace(self._links.mounted(decision.answer, number), annotations=notes))
        await self._performer.commit(decision)
        return message(decision.answer)


    def _given_up(self, decision: Serve, reason: str) -> Refuse:
        """Refuse the call. While others wait for as many it may be for one of them, and the one guessed waits on behind them."""
        pod, count = decision.pod, decision.container.requested(self._allocator.resource)
        others = (other for other in self._own.pods if other.uid != pod.uid and not (other.mirror or other.turned_away)
                  and other.awaits(self._allocator.resource))  # fmt: skip
        if any(one.requested(self._allocator.resource) == count for other in others for one in other.containers):
            self._own.passed_over(pod.uid)
            return Refuse(f"pod {pod.key}: {reason}")
        return self._allocator.refuse(pod, reason)


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
