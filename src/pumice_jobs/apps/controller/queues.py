"""Queues and the PodGroups in them: states, Commands, and the two queues that must be there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from pumice.apps.service.watches import object_of
from pumice.effects.object_cache import UidTracker
from pumice.effects.performer import Performer
from pumice.effects.work_queue import WorkQueue
from pumice.ports.cluster import ApiError, Cluster, WatchEvent
from pumice.wire import volcano
from pumice.wire.names import ROOT_QUEUE
from pumice.wire.objects import convert
from pumice.wire.volcano import Command, PodGroup, Queue, default_queue
from pumice_jobs.controllers import queue

log = logging.getLogger("pumice.controller")

KIND = "queue"


@dataclass(slots=True)
class Queues:
    """The controller of queues. ``default`` is the queue of groups that name none."""

    cluster: Cluster
    performer: Performer
    work: WorkQueue
    default: str
    queues: dict[str, Queue] = field(default_factory=dict)
    groups: dict[str, tuple[str, str]] = field(default_factory=dict)
    """PodGroup key to (queue, phase)."""
    _uids: UidTracker = field(default_factory=UidTracker)

    async def make_first(self) -> None:
        """The root and the default queue."""
        for name, reclaimable in ((ROOT_QUEUE, False), (self.default, True)):
            if name not in self.queues:
                try:
                    await self.cluster.create(volcano.QUEUES, default_queue(name, reclaimable=reclaimable))
                except ApiError as error:
                    if error.code != 409:
                        log.warning("%s", error)

    async def reconcile(self, name: str) -> None:
        if name in self.queues:
            await self._act(queue.reconcile_queue(self.queues[name], self._groups_of(name)))

    async def command(self, command: Command) -> str:
        """Carry a Command out; words for why there is no such queue."""
        name, uid = command.target.name, command.target.uid
        found = self.queues.get(name)
        if found is None or (uid and uid != found.metadata.uid):
            return f"queue {name} does not exist" if found is None else f"queue {name} is another one than the Command is for"
        await self._act(queue.command(command.action, name, self.queues, self._groups_of))
        return ""

    def takes_groups(self, name: str) -> bool:
        found = self.queues.get(name)
        return found is not None and queue.is_open(found)

    def queue_of(self, group: str) -> str:
        """The queue of a PodGroup, by its key; empty where it is not there."""
        owner, _ = self.groups.get(group, ("", ""))
        return owner or (self.default if group in self.groups else "")

    def there(self) -> Iterator[tuple[str, str]]:
        """The queue and the phase of each PodGroup."""
        return ((owner or self.default, phase or volcano.PENDING) for owner, phase in self.groups.values())

    def on_group(self, group: PodGroup, *, gone: bool) -> None:
        key = f"{group.metadata.namespace}/{group.metadata.name}"
        if not self._uids.heeds("PodGroup", key, group.metadata.uid, gone=gone):
            return
        touched = {group.spec.queue or self.default}
        if key in self.groups:
            touched.add(self.groups[key][0] or self.default)
        if gone:
            self.groups.pop(key, None)
        else:
            before = self.groups.get(key)
            self.groups[key] = (group.spec.queue, group.status.phase)
            if before == self.groups[key]:
                return
        for name in touched & self.queues.keys():
            if self.queues[name].status.state in (volcano.CLOSED, volcano.CLOSING):
                self.work.add(KIND, name)

    def on_queue(self, event: WatchEvent) -> None:
        found = object_of(Queue, event)
        name = found.metadata.name
        if not self._uids.heeds("Queue", name, found.metadata.uid, gone=event.type == "DELETED"):
            return
        if event.type == "DELETED":
            self.queues.pop(name, None)
            return
        self.queues[name] = found
        self.work.add(KIND, name)

    def _groups_of(self, name: str) -> int:
        return sum(1 for owner, _ in self.groups.values() if (owner or self.default) == name)

    async def _act(self, actions: list[queue.Action]) -> None:
        for action in actions:
            answer = await self.performer.perform(action)
            if answer is not None:
                self.queues[answer["metadata"]["name"]] = convert(Queue, answer)
