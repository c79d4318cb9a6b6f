"""The queues that are there from the first, root and default: made at the start, or as soon as the API server lets them be."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from pumice.effects.backoff import Backoff
from pumice.journal.recorder import Doorway
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.scheduler.inputs import Put, QueueNamed
from pumice.wire import volcano
from pumice.wire.names import ROOT_QUEUE
from pumice.wire.volcano import Queue, default_queue

log = logging.getLogger("pumice.scheduler")

AGAIN = Backoff(1.0, 30.0)


@dataclass(frozen=True, slots=True)
class FirstQueues:
    cluster: Cluster
    clock: Clock
    enter: Doorway
    default: str
    wake: asyncio.Event

    async def ensure(self) -> dict[str, str]:
        """The root and default queue exist (Volcano cmd/scheduler/app). Without Queue objects in the cluster they are only in
        memory. Returns
        those that could not be made, and why; the pods that wait for them are told."""
        refused: dict[str, str] = {}
        for name, reclaimable in ((ROOT_QUEUE, False), (self.default, True)):
            known = self.enter(QueueNamed(name))
            if known.present:
                continue
            made: object = default_queue(name, reclaimable=reclaimable)
            try:
                made = await self.cluster.create(volcano.QUEUES, default_queue(name, reclaimable=reclaimable))
            except ApiError as error:
                if error.code == 409:
                    continue  # the watch will show it
                if error.code != 404:
                    refused[name] = error.message
                    self.enter(QueueNamed(name, error.message))
                    continue
            self.enter(Put("Queue", msgspec.convert(made, Queue, strict=False)))
            self.wake.set()
        return refused

    async def make_later(self, refused: dict[str, str]) -> None:
        """Until the queues are there, however long that takes."""
        times = 0
        while refused:
            pause = AGAIN.pause(times)
            times += 1
            rarely = logging.DEBUG if times & (times - 1) else logging.WARNING
            for name, cause in refused.items():
                log.log(rarely, "cannot create queue=%s times=%d cause=%s retry_in=%.0fs", name, times, cause, pause)
            await self.clock.sleep(pause)
            refused = await self.ensure()
