"""Follows a cluster: one list and watch a kind feeds an engine of this process, whose ledger the page shows. It decides nothing.

What the credentials may not list is left out, and said. A server that goes away leaves the last figures, with the time from which
on they are old.

Recent changes, as the watches report them: the last few hundred changes, in memory, since the page runs.

Answers that only a cycle can give: why pods wait, how queues stand. Worked out in a child that is forked off this process,
which runs the cycle on its copy of the state; the parent's state is never disturbed.

It is what ``pumice explain`` says, from the same functions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from pumice.apps.scheduler.forked import ask
from pumice.apps.scheduler.informers import Informers
from pumice.apps.service.watches import Handler, Watcher, object_of
from pumice.model.errors import BadInput, Unavailable
from pumice.ports.cluster import ApiError, Cluster, Resource, WatchEvent
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import as_json, explain, explain_known
from pumice.scheduler.explaining.queues import QueueView, views_as_they_are
from pumice.scheduler.explaining.workloads import GroupView, WaitingPods, as_they_wait, group_view
from pumice.scheduler.inputs import put_first_queues, sources_of
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.state import State
from pumice.wire import kinds, names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.objects import Node, Pod
from pumice.wire.reviews import OWN_ACCESS_REVIEWS, own_access_review
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.times import seconds


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of everything after one cycle at ``at`` (Unix seconds)."""

    at: float = 0.0
    queues: tuple[QueueView, ...] = ()
    waiting: tuple[WaitingPods, ...] = ()
    groups: tuple[GroupView, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    """Refusals, by object."""


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Situation).decode


def situation(engine: Engine, now: float) -> bytes:
    """Work it out. The engine should not be used further: it is a child's."""
    engine.cycle(now)
    engine.open_cycle(now)
    groups = (job for job in engine.state.jobs.values() if job.group is not None)
    return _encode(Situation(
        now, tuple(views_as_they_are(engine)), tuple(as_they_wait(engine)),
        tuple(sorted((group_view(engine, job, now) for job in groups), key=lambda view: view.name)),
        dict(engine.state.problems),
    ))  # fmt: skip


def situation_of(told: bytes) -> Situation:
    """Read a child's answer."""
    found: Situation = _decode(told)
    return found


def explained(engine: Engine, pod: Pod, now: float) -> bytes:
    """Return the JSON of ``pumice explain pod`` for it. The engine should not be used further."""
    return as_json(explain(engine, pod, now=now))


def placed(engine: Engine, key: str) -> bytes | None:
    """The same of a pod that holds a place, which costs no cycle and changes nothing; None for one that the ledger knows not as
    ours."""
    namespace, _, name = key.partition("/")
    found = explain_known(engine, namespace, name)
    return None if found is None else as_json(found)


KEPT, LONGEST = 500, 400
"""So many changes, and of each so many characters of what others wrote."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that the page lists. ``kind`` is what it is about (pod, node, card, queue, podgroup), ``name`` which one;
    ``at`` in Unix seconds."""

    at: float
    kind: str
    name: str
    text: str


@dataclass(slots=True)
class Changes:
    """The last of them. ``number`` counts all that there were."""

    kept: deque[Change] = field(default_factory=lambda: deque(maxlen=KEPT))
    number: int = 0

    def note(self, at: float, kind: str, name: str, text: str) -> None:
        self.kept.append(Change(at, kind, name[:LONGEST], text[:LONGEST]))
        self.number += 1

    def latest(self) -> list[Change]:
        """The newest first."""
        return list(reversed(self.kept))


log = logging.getLogger("pumice.web")

PROBE, RECONFIGURE, LOOK_AGAIN = 2.0, 30.0, 30.0
"""Seconds between two questions whether the server is there, between two looks at the configuration, and before a list that was
refused is asked for again."""
SILENT_AFTER = 5.0
"""Seconds without an answer after which figures are called old."""
REFUSED = (401, 403, 404)
PATIENCE, CHILDREN = 20.0, 2
"""Seconds for a child to answer, and how many there are at once: each has a copy of what the parent changes meanwhile."""
RIGHTS_KEPT = 60.0
"""Seconds between two questions whether we may still list what we show: a watch that is open is not refused for ten minutes."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The scheduler's configuration, as texts. ``remarks``: what is remarkable about it."""

    scheduler: str
    devices: str
    scheduler_names: frozenset[str] = frozenset({names.SCHEDULER_NAME})
    remarks: tuple[str, ...] = ()


class RightsEnded(Exception):
    """Raised where a list that is shown may not be had any more."""


class WallClock:
    """The time of day alone, as `pumice explain` has it: what the API server dates and what waits are counted by one clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


@dataclass(slots=True)
class Following:
    """The state of the cluster, followed by watches. ``configured`` reads the configuration. ``version`` rises with every
    change that a page may show."""

    cluster: Cluster
    configured: Callable[[Cluster], Awaitable[Configuration]]
    clock: WallClock = field(default_factory=WallClock)
    engine: Engine = field(init=False)
    changes: Changes = field(default_factory=Changes)
    version: int = 0
    lacking: dict[str, str] = field(default_factory=dict)
    """Lists that there are not, or not for us, with the API server's answer."""
    unsynced: set[str] = field(default_factory=set)
    """Lists that are not complete yet."""
    answered: float = 0.0
    """When the API server last said anything."""
    silent: bool = False
    remarks: tuple[str, ...] = ()
    _informers: Informers = field(init=False)
    _configuration: Configuration | None = None
    _situation: tuple[int, float, Situation] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _children: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CHILDREN))

    async def start(self) -> None:
        """Read the configuration. Raises BadInput and Unavailable."""
        try:
            found = await self.configured(self.cluster)
        except ApiError as error:
            raise Unavailable(f"the API server does not answer as expected: {error}") from None
        self._begin(found)
        self.answered = self.clock.now()

    def _begin(self, found: Configuration) -> None:
        """Begin with an empty ledger. Raises BadInput."""
        self._configuration = self._situation = None
        self.engine = Engine(state=State(scheduler_names=found.scheduler_names))
        self._take(found)
        put_first_queues(self.engine)
        self._informers = Informers(self.cluster, self.clock, self.engine, asyncio.Event())
        self.unsynced = {name for name, _, _, _ in self._informers.handlers()}
        self.lacking = {}

    async def run(self) -> None:
        """Follow for ever. Where a right ends, all that is known is forgotten and what may still be listed is listed again: a
        page shows nothing that `kubectl` would refuse to whoever opened it."""
        while True:
            try:
                await self._follow()
            except* RightsEnded as ended:
                log.warning("what was known is forgotten cause=%s", ended.exceptions[0])
                assert self._configuration is not None
                self.changes = Changes(number=self.changes.number + 1)
                self._begin(self._configuration)

    async def _follow(self) -> None:
        informers = self._informers
        watcher = Watcher(self.cluster, self.clock, log, self._arrived, REFUSED, LOOK_AGAIN, self._lacks)
        own: dict[str, Handler] = {"pods": self._on_pod}
        handlers = informers.handlers()

        def taker(name: str, handle: Handler) -> Callable[[WatchEvent], None]:
            def take(event: WatchEvent) -> None:
                watcher.taken(name, handle, event)
                self._heard()

            return take

        async with asyncio.TaskGroup() as tasks:
            for name, resource, kind, handle in handlers:
                chosen = own.get(name) or (self._noting(handle) if name == "nodes" else handle)
                tasks.create_task(watcher.watch(name, resource, taker(name, chosen), kind=kind))
            for source in sources_of(self.engine):
                tasks.create_task(informers.watch_reports(source))
            tasks.create_task(self._probe())
            tasks.create_task(self._review([(name, resource) for name, resource, _, _ in handlers]))
            tasks.create_task(self._reconfigure())

    # -- what a cycle tells -------------------------------------------------------------------------------------

    async def situation(self, at_most: float = 2.0) -> Situation | None:
        """Return the state of queues and why pods wait, not older than so many seconds unless nothing has changed. None: no
        answer came in time, and there is no older one."""
        async with self._turn:
            known, now = self._situation, self.clock.now()
            if known is not None and (known[0] == self.version or now - known[1] < at_most):
                return known[2]
            version, engine = self.version, self.engine
            told = await self.asked(lambda: situation(engine, now))
            if self.engine is not engine:
                return None  # of a ledger that is forgotten
            if told is not None:
                known = self._situation = version, self.clock.now(), situation_of(told)
            return None if known is None else known[2]

    async def asked(self, work: Callable[[], bytes]) -> bytes | None:
        """The answer of a child with a copy of the ledger; None where it did not come, or no child could be had. However many
        ask, few children work at once."""
        try:
            async with asyncio.timeout(PATIENCE), self._children:
                return await ask(work)
        except TimeoutError:
            return None
        except OSError as error:
            log.warning("no child could be forked off cause=%s", error)
            return None

    # -- what watches tell --------------------------------------------------------------------------------------

    def _heard(self) -> None:
        self.version += 1
        self.answered = self.clock.now()

    def _arrived(self, name: str) -> None:
        self.unsynced.discard(name)
        self._heard()

    def _lacks(self, name: str, answer: str) -> None:
        if answer:
            self.lacking[name] = answer
        else:
            self.lacking.pop(name, None)
        if name in ("deviceclasses", "resourceslices", "resourceclaims"):
            self.engine.state.device_claims.lacks(name, answer)
        self.version += 1

    def _on_pod(self, event: WatchEvent) -> None:
        pod, state, now = object_of(Pod, event), self.engine.state, self.clock.now()
        before = self._standing(state.tasks.get(pod.metadata.uid))
        if event.type == "DELETED":
            state.pods.drop(pod)
            if before:
                self.changes.note(now, "pod", pod.key, "is gone")
            return
        known = now if pod.metadata.deletion_timestamp else min(now, seconds(pod.metadata.creation_timestamp))
        state.pods.put(pod, known)
        after = self._standing(state.tasks.get(pod.metadata.uid))
        if after and after != before and not self.unsynced:
            self.changes.note(now, "pod", pod.key, after)

    @staticmethod
    def _standing(task: Task | None) -> str:
        """In words for the list of changes."""
        if task is None:
            return ""
        words = {"Pending": "waits", "Bound": "was given a place", "Running": "runs", "Releasing": "leaves",
                 "Succeeded": "has succeeded", "Failed": "has failed"}  # fmt: skip
        said = words.get(task.status.label, task.status.label.lower())
        return f"{said} on {task.node}" if task.node else said

    def _noting(self, handle: Handler) -> Handler:
        """Also note what becomes of the node's cards."""

        def noted(event: WatchEvent) -> None:
            name, now = object_of(Node, event).metadata.name, self.clock.now()
            before = self._states(name)
            handle(event)
            after = self._states(name)
            if self.unsynced:
                return
            if before is None or after is None:
                if before is not after:
                    self.changes.note(now, "node", name, "is gone" if after is None else "has come")
                return
            for uuid in sorted(before.keys() | after.keys()):
                if before.get(uuid) != after.get(uuid):
                    closed = after.get(uuid)
                    text = "is registered no more" if closed is None else f"is closed: {closed}" if closed else "takes pods"
                    self.changes.note(now, "card", f"{name}/{uuid}", text)

        return noted

    def _states(self, node: str) -> dict[str, str] | None:
        """Of each card why it takes nobody; None where there is no such node."""
        ledger = self.engine.state.ledger
        if node not in ledger.table.row_of:
            return None
        books = [table.nodes[node] for table in ledger.device_tables.values() if node in table.nodes]
        return {
            card.uuid: card.blocked or ("" if card.healthy else "registered as unhealthy")
            for book in books for card in book.inventory.cards
        }  # fmt: skip

    # -- whether anybody is there, and what the configuration says ----------------------------------------------

    async def _probe(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SILENT_AFTER):
                    await self.cluster.get(kinds.NAMESPACES, "default")
                here = True
            except ApiError as error:
                here = error.code != 0 and error.code < 500
                if error.code == 401 and self._shown():
                    raise RightsEnded(f"the API server does not know us any more: {error}") from None
            except TimeoutError:
                here = False
            now = self.clock.now()
            if here:
                self.answered = now
            silent = now - self.answered > SILENT_AFTER
            if silent != self.silent:
                self.silent = silent
                self.version += 1
            await self.clock.sleep(PROBE)

    def _shown(self) -> list[str]:
        """The lists that came."""
        return [name for name, _, _, _ in self._informers.handlers() if name not in self.lacking and name not in self.unsynced]

    async def _review(self, lists: list[tuple[str, Resource]]) -> None:
        """Ask now and then whether each list that is shown would be given still, as `kubectl auth can-i` does."""
        while True:
            await self.clock.sleep(RIGHTS_KEPT)
            for name, resource in lists:
                if name not in self._shown():
                    continue
                wanted = {"verb": "list", "group": resource.group, "resource": resource.plural}
                try:
                    told = await self.cluster.create(OWN_ACCESS_REVIEWS, own_access_review(wanted))
                except ApiError as error:
                    log.debug("nobody says whether %s may be listed: %s", name, error)
                    break
                status = told.get("status") or {}
                if status.get("allowed") is False or status.get("denied") is True:
                    raise RightsEnded(f"{name} may not be listed any more")

    async def _reconfigure(self) -> None:
        while True:
            await self.clock.sleep(RECONFIGURE)
            try:
                self._take(await self.configured(self.cluster))
            except ApiError as error:
                log.debug("the configuration could not be read: %s", error)
            except BadInput as error:
                self._remark(str(error))

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks = (*self.remarks, text)
            self.version += 1

    def _take(self, found: Configuration) -> None:
        """Go by it. Raises BadInput."""
        if found == self._configuration:
            return
        devices = parse_device_config(found.devices) if found.devices else None
        self.engine.configure(parse_scheduler_conf(found.scheduler), devices)
        remarks = list(found.remarks)
        if found.scheduler_names != self.engine.state.pods.scheduler_names:
            remarks.append("the scheduler now takes pods of other schedulerNames; start this page anew to see them")
        self._configuration, self.remarks = found, tuple(remarks)
        self.version += 1
