"""Commands on the bus: one is deleted first, so that it is carried out once, and then carried out (spec volcano-core 19)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pumice.apps.service.work_queue import WorkQueue
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, WatchEvent
from pumice.wire import volcano
from pumice.wire.names import CONTROLLER_NAME
from pumice.wire.objects import decode
from pumice.wire.volcano import Command

KIND = "commands"

Apply = Callable[[Command], Awaitable[str]]
"""Carries a Command out on what it is for; words for why there is none such, else nothing."""


@dataclass(slots=True)
class Commands:
    """Those that wait, by target: on one object they are carried out one after the other, as they came."""

    cluster: Cluster
    clock: Clock
    work: WorkQueue
    apply: Apply
    jobs: bool = True
    """Whether Jobs are looked after here."""
    waiting: dict[str, dict[str, Command]] = field(default_factory=dict)
    """Target to its Commands by uid."""
    _deleted: set[str] = field(default_factory=set)
    """Uids of those that are gone, or may be, by our own hand."""
    _told: set[str] = field(default_factory=set)

    def on_event(self, event: WatchEvent) -> None:
        command = decode(Command, event.raw)
        uid, target = command.metadata.uid, self._target(command)
        if event.type == "DELETED":
            self._told.discard(uid)
            if uid not in self._deleted:
                self.waiting.get(target, {}).pop(uid, None)
        elif uid not in self._deleted:
            self.waiting.setdefault(target, {})[uid] = command
            self.work.add(KIND, target)

    async def reconcile(self, target: str) -> None:
        waiting = self.waiting.get(target, {})
        for uid, command in list(waiting.items()):
            if not target:
                await self._refuse(command)
            elif await self._is_ours(command):
                problem = await self.apply(command)
                if problem:
                    await self.say(command, problem)
                self._deleted.discard(uid)
            waiting.pop(uid, None)
        if not waiting:
            self.waiting.pop(target, None)

    async def _is_ours(self, command: Command) -> bool:
        """Delete it: who manages that carries it out. An answer that did not come may have been a yes."""
        meta = command.metadata
        if meta.uid in self._deleted and not await self._exists(command):
            return True
        try:
            self._deleted.add(meta.uid)
            await self.cluster.delete(volcano.COMMANDS, meta.name, meta.namespace, uid=meta.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            self._deleted.discard(meta.uid)
            return False
        return True

    async def _exists(self, command: Command) -> bool:
        meta = command.metadata
        try:
            found = await self.cluster.get(volcano.COMMANDS, meta.name, meta.namespace)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return bool(found["metadata"]["uid"] == meta.uid)

    async def _refuse(self, command: Command) -> None:
        target = command.target
        if command.metadata.uid not in self._told:
            self._told.add(command.metadata.uid)
            meant = f"{target.kind or 'nothing'} of {target.api_version or 'no kind'}"
            await self.say(command, f"Commands for {meant} are not carried out here; those for a Queue or a Job are")

    async def say(self, command: Command, text: str) -> None:
        """An event on the Command."""
        meta = command.metadata
        about = {"apiVersion": volcano.BUS_API, "kind": "Command", "namespace": meta.namespace, "name": meta.name,
                 "uid": meta.uid}  # fmt: skip
        body = volcano.event_body(about, "Warning", "CommandRefused", text, CONTROLLER_NAME, self.clock.now())
        await self.cluster.create(volcano.EVENTS, body, meta.namespace)

    def _target(self, command: Command) -> str:
        """What it is for: a queue, or a Job of its own namespace; empty where that is neither."""
        target, group = command.target, command.target.api_version.partition("/")[0]
        if target.kind == "Queue" and group == volcano.QUEUES.group:
            return target.name
        ours = self.jobs and target.kind == "Job" and group == volcano.JOBS.group
        return f"{command.metadata.namespace}/{target.name}" if ours else ""
