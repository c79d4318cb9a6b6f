"""Events as a component writes them: about which object, by whom, and not the same words again and again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from pumice.effects.vocabulary import Event
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import EVENTS
from pumice.wire.times import stamp

REPEAT_AFTER = 600.0
"""Seconds after which the same words may be said again."""
REMEMBERED = 20_000
COUNTED = 512
"""Events of which the counting recorder knows the name."""
WAITING = 2000
"""Events that wait to be written at most; further ones are dropped, for they must never hold up what they are about."""
LONGEST_MESSAGE, LONGEST_NAME = 1024, 200


@dataclass(slots=True)
class SpamFilter:
    """Admits events: ``rate`` bounds them per second beyond a burst of ``burst``, and a warning is not repeated at once."""

    rate: float = 200.0
    burst: float = 2000.0
    _left: float = 2000.0
    """Of the burst, at the moment of the last event (``_filled``)."""
    _filled: float = 0.0
    _said: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """When which words were said, by their hash: thousands are remembered, the words are not."""

    def admits(self, event: Event, now: float) -> bool:
        said = hash((event.uid, event.reason, event.message))
        if now - self._said.get(said, float("-inf")) < REPEAT_AFTER:
            return False
        self._left = min(self.burst, self._left + (now - self._filled) * self.rate)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        if event.type == "Warning":  # a pod is scheduled once; what goes wrong is said again and again
            self._said[said] = now
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        return True


class EventRecorder:
    """Writes the Events of one ``component``, on a node those of that ``host``. ``action`` stands in each, else its reason does.

    With ``counts`` an Event that was written before is not written anew: its count is raised, as by client-go's recorder.
    """

    def __init__(self, cluster: Cluster, clock: Clock, component: str, log: logging.Logger, *, host: str = "", action: str = "",
                 counts: bool = False) -> None:  # fmt: skip
        self._cluster, self._clock, self._log = cluster, clock, log
        self._component, self._host, self._action, self._counts = component, host, action, counts
        self._last: dict[str, str] = {}
        """The words that were said last, by uid of the object."""
        self._written: dict[Event, tuple[str, int]] = {}
        """Name and count of the events that are counted."""
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(WAITING)

    async def write(self, event: Event) -> None:
        """Make the Event, or raise its count. Raises ApiError."""
        namespace = event.namespace or "default"
        if event in self._written:
            name, count = self._written[event]
            body = {"count": count + 1, "lastTimestamp": stamp(self._clock.now())}
            with contextlib.suppress(ApiError):
                await self._cluster.patch(EVENTS, name, body, namespace)
                self._written[event] = (name, count + 1)
                return
        made = await self._cluster.create(EVENTS, self._body(event), namespace)
        if self._counts:
            while len(self._written) >= COUNTED:
                self._written.pop(next(iter(self._written)))
            self._written[event] = (made["metadata"]["name"], 1)

    async def write_if_new(self, event: Event) -> None:
        """Write it unless its words are those that were said last about the object. Raises ApiError."""
        words = f"{event.reason} {event.message}"
        if self._last.get(event.uid) != words:
            self._last[event.uid] = words
            await self.write(event)

    def forget(self, uid: str) -> None:
        """That object is gone: nothing was said about it."""
        self._last.pop(uid, None)

    async def try_to_write(self, event: Event) -> None:
        """Write it as far as the API server lets us: that one is lost changes nothing."""
        try:
            await self.write(event)
        except ApiError as error:
            about = (event.kind, event.namespace, event.name)
            self._log.info("event not written on %s %s/%s reason=%s: %s", *about, event.reason, error)

    def record(self, event: Event) -> None:
        """Have it written by ``run``. Never waits, never raises."""
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(event)

    async def run(self) -> None:
        """Write what is recorded, for ever."""
        while True:
            event = await self._waiting.get()
            try:
                await self.write(event)
            except ApiError as error:
                self._log.debug("event not written reason=%s cause=%s", event.reason, error)
            finally:
                self._waiting.task_done()

    async def flush(self) -> None:
        """Wait until everything recorded so far is written or refused."""
        await self._waiting.join()

    def _body(self, event: Event) -> dict[str, Any]:
        """As Kubernetes' components write them: whoever counts says nothing of a single time, nor of an action."""
        now = self._clock.now()
        about = {"kind": event.kind, "apiVersion": event.api_version, "namespace": event.namespace, "name": event.name,
                 "uid": event.uid, "fieldPath": event.field_path}  # fmt: skip
        single = {} if self._counts else {"eventTime": stamp(now, 6), "action": self._action or event.reason}
        return {
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": event.namespace or "default", "generateName": f"{event.name[:LONGEST_NAME]}."},
            "involvedObject": {key: value for key, value in about.items() if value},
            "type": event.type, "reason": event.reason, "message": event.message[:LONGEST_MESSAGE], "count": 1,
            "firstTimestamp": stamp(now), "lastTimestamp": stamp(now), **single,
            "source": {"component": self._component, **({"host": self._host} if self._host else {})},
            "reportingComponent": self._component, "reportingInstance": self._host or self._component,
        }  # fmt: skip
