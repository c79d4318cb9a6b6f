"""Commands on the bus: one is carried out, and then deleted (ADR 95)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Event
from pumice.effects.work_queue import WorkQueue
from pumice.ports.cluster import ApiError, Cluster, WatchEvent
from pumice.wire import volcano
from pumice.wire.objects import decode
from pumice.wire.volcano import Command

KIND = "commands"

Apply = Callable[[Command], Awaitable[str | None]]
"""Carries a Command out on what it is for, in such a way that a second time changes nothing; words for why there is none such,
else nothing. None: it is under way, ``done`` is told when it has happened, and ``look`` when that cannot be."""


@dataclass(slots=True)
class Commands:
    """Those that wait, by target: on one object they are carried out one after the other, as they came."""

    cluster: Cluster
    recorder: EventRecorder
    work: WorkQueue
    apply: Apply
    jobs: bool = True
    """True where Jobs are looked after here."""
    waiting: dict[str, dict[str, Command]] = field(default_factory=dict)
    """Target to its Commands by uid."""
    _carried_out: set[str] = field(default_factory=set)
    """Uids of those that are carried out, and not known to be deleted."""
    _told: set[str] = field(default_factory=set)

    def on_event(self, event: WatchEvent) -> None:
        command = decode(Command, event.raw)
        uid = command.metadata.uid
        if event.type == "DELETED":
            self._told.discard(uid)
            self._carried_out.discard(uid)
            for target, waiting in self.waiting.items():  # a list that is told as a difference tells of names only
                if waiting.pop(uid, None) is not None:
                    self.work.add(KIND, target)
        elif uid not in self._carried_out:
            target = self._target(command)
            self.waiting.setdefault(target, {})[uid] = command
            self.work.add(KIND, target)

    def look(self, target: str) -> None:
        """There is something new about a Job: that it is there, or that it is gone."""
        if target in self.waiting:
            self.work.add(KIND, target)

    def done(self, target: str, uid: str) -> None:
        """Whoever has the Job in hand has carried it out."""
        if uid in self.waiting.get(target, ()):
            self._carried_out.add(uid)
            self.work.add(KIND, target)

    async def reconcile(self, target: str) -> None:
        waiting = self.waiting.get(target, {})
        for command in sorted(waiting.values(), key=_age):
            uid = command.metadata.uid
            if not target:
                await self._refuse(command)
            else:
                if uid not in self._carried_out:
                    problem = await self.apply(command)
                    if problem is None:
                        return
                    if problem and uid not in self._told:
                        await self.say(command, problem)
                        self._told.add(uid)
                    self._carried_out.add(uid)
                await self._delete(command)
            waiting.pop(uid, None)
        if not waiting:
            self.waiting.pop(target, None)

    async def _delete(self, command: Command) -> None:
        meta = command.metadata
        try:
            await self.cluster.delete(volcano.COMMANDS, meta.name, meta.namespace, uid=meta.uid)
        except ApiError as error:
            if error.code not in (404, 409) or (error.code == 409 and await self._exists(command)):
                raise

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
        about = ("Command", volcano.BUS_API, meta.namespace, meta.name, meta.uid)
        await self.recorder.write(Event(*about, "Warning", "CommandRefused", text))

    def _target(self, command: Command) -> str:
        """Return the key of what it is for: a queue, or a Job of its own namespace; empty where that is neither."""
        target, group = command.target, command.target.api_version.partition("/")[0]
        if target.kind == "Queue" and group == volcano.QUEUES.group:
            return target.name
        ours = self.jobs and target.kind == "Job" and group == volcano.JOBS.group
        return f"{command.metadata.namespace}/{target.name}" if ours else ""


def _age(command: Command) -> tuple[str, int]:
    """Commands are given in this order; nobody changes one afterwards."""
    meta = command.metadata
    return meta.creation_timestamp, int(meta.resource_version) if meta.resource_version.isdecimal() else 0
