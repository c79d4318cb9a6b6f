"""The scheduler daemon: watches in, cycles of the engine, effects out (Volcano cmd/scheduler/app, Volcano
pkg/scheduler/cache, Volcano pkg/scheduler/scheduler.go, Volcano pkg/scheduler/cache/cache.go).

One process, one loop. Watch events change the engine's state at once; a cycle runs after a window of a few milliseconds and
never waits for the world; Bindings and status writes are performed beside it. No decision is made before every list is
complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pumice import __version__
from pumice.adapters.segments import Segments
from pumice.apps.scheduler.binder import Binder, BindResults
from pumice.apps.scheduler.claim_writes import ClaimWrites
from pumice.apps.scheduler.configuration import Configuration
from pumice.apps.scheduler.first_queues import FirstQueues
from pumice.apps.scheduler.informers import Informers
from pumice.apps.scheduler.journal import Journal
from pumice.apps.scheduler.node_locks import NodeLocks
from pumice.apps.scheduler.pages import ExplainPage, MetricsPage
from pumice.apps.scheduler.sharding import Sharding
from pumice.apps.scheduler.status_writer import StatusWriter
from pumice.apps.scheduler.volume_wait import VolumeWait
from pumice.apps.service.garbage import Garbage, listed
from pumice.apps.service.http import Handler, host_and_port, is_loopback, pages, served
from pumice.apps.service.lease import Election, LedSettings
from pumice.apps.service.reviewed import Reviewed
from pumice.effects.tasks import group, run_until
from pumice.effects.vocabulary import (
    Bind,
    Deallocate,
    Event,
    Evict,
    GroupStatus,
    HyperNodeStatus,
    OpenGate,
    QueueAllocated,
    SchedulerEffect,
)
from pumice.journal.recorder import Doorway
from pumice.journal.records import FORM, Head
from pumice.metrics.scheduler import SchedulerMetrics
from pumice.model.errors import Unavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster
from pumice.scheduler.engine import Engine
from pumice.scheduler.explaining.explain import as_json, explain_known
from pumice.scheduler.inputs import Put
from pumice.scheduler.state.state import State
from pumice.wire import volcano
from pumice.wire.names import SCHEDULER_CONFIGMAP, SCHEDULER_NAME, SYSTEM_NAMESPACE
from pumice.wire.scheduler_conf import DEFAULT_CONF, parse_scheduler_conf
from pumice.wire.sharding import Mode, Source

log = logging.getLogger("pumice.scheduler")

BUSY_BINDINGS = 16
"""With so many Bindings on their way a cycle may wait longer for company."""
INSTANT = 1e-6
"""Seconds that are no time: a timer of less may end before the clock has moved."""
PAUSE_BEFORE_A_LONE_POD = 0.008
"""Seconds since the last cycle after which a single pod is placed at once: who makes many makes the next one sooner."""
LAST_BINDINGS = 5.0
"""Seconds that Bindings on their way are given when the daemon stops."""
LAST_WRITES = 1.0
"""And after them events, conditions and evictions."""


@dataclass(slots=True)
class Settings(LedSettings):
    """Flags of the scheduler, upstream's names where it has them (Volcano cmd/scheduler/app/options).

    ``conf`` is a file; without it the ConfigMap ``configmap`` (namespace/name) is watched. ``window`` and ``window_busy``
    are how long a cycle waits for more events, when idle and under load; ``window_status`` when there is status to write and
    nothing to place. ``events`` False: no events. ``unready_conf``: a broken first file is waited out, unready; else it is an
    error.
    ``node_selector``: only nodes with one of these labels take part.
    """

    listen: str = "127.0.0.1:8080"
    conf: Path | None = None
    configmap: str = f"{SYSTEM_NAMESPACE}/{SCHEDULER_CONFIGMAP}"
    strict: bool = False
    unready_conf: bool = True
    node_selector: tuple[tuple[str, str], ...] = ()
    period: float = 1.0
    healthz: str = ""
    lease_name: str = ""
    identity: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    window: float = 0.002
    window_busy: float = 0.03
    window_status: float = 0.25
    budget: float = 0.035
    bind_concurrency: int = 32
    implicit_groups: bool = True
    names_groups: bool = False
    """True where Bindings name the PodGroups that a controller makes for pods that name none."""
    evict_bare_pods: bool = False
    """True if a gang that cannot be bound as a whole may also lose members that no controller makes anew."""
    events: bool = True
    status_writes: bool = True
    group_writes: bool = True
    """True if it says how PodGroups, queues and HyperNodes stand: of two schedulers that share them, one does."""
    volumes: bool = True
    journal: Path | None = None
    """The folder of the journal; None: none is kept. ``journal_size``: bytes that it may take."""
    journal_size: int = 256 << 20
    sharding: Mode = Mode.NONE
    """The cluster is shared with other schedulers by shards of nodes; ``shard``: the name of its own, by default the first of
    ``scheduler_names``. ``shard_peers``: shards whose schedulers serve pods of the same names, among whom jobs are divided."""
    shard: str = ""
    shard_peers: tuple[str, ...] = ()
    shard_source: Source = Source.AUTO

    @property
    def own_shard(self) -> str:
        return self.shard or self.scheduler_names[0]


async def run(settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:  # fmt: skip
    """Run until ``stop``. Raises BadInput when the first configuration cannot be used."""
    await Scheduler(settings, cluster, clock, rng, stop, ready).run()


@dataclass(slots=True)
class Scheduler:
    """The running daemon."""

    settings: Settings
    cluster: Cluster
    clock: Clock
    rng: random.Random
    stop: asyncio.Event
    ready: asyncio.Event | None = None
    engine: Engine = field(init=False)
    enter: Doorway = field(init=False)
    metrics: SchedulerMetrics = field(init=False)
    page: MetricsPage = field(init=False)
    informers: Informers = field(init=False)
    configuration: Configuration = field(init=False)
    binder: Binder = field(init=False)
    claim_writes: ClaimWrites = field(init=False)
    writer: StatusWriter = field(init=False)
    results: BindResults = field(init=False)
    sharding: Sharding | None = None
    journal: Journal | None = None
    port: int = 0
    """Port of the pages, once they are served."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _garbage: Garbage = field(default_factory=Garbage)
    _beside: asyncio.TaskGroup | None = None
    """The tasks that go on during the last Bindings: Bindings, and the renewal of the lease."""
    _keeper: asyncio.Task[None] | None = None
    _election: Election | None = None
    _last_cycle: float = -1e9
    _reported: dict[str, str] = field(default_factory=dict)
    """The last reported fault of each object."""

    def __post_init__(self) -> None:
        settings, cluster, clock, rng = self.settings, self.cluster, self.clock, self.rng
        state = State(
            scheduler_names=frozenset(settings.scheduler_names),
            default_queue=settings.default_queue,
            implicit_groups=settings.implicit_groups,
            names_groups=settings.names_groups,
        )
        conf = parse_scheduler_conf(DEFAULT_CONF, source="built-in configuration")
        self.engine = Engine(conf, state=state)
        self.enter = Doorway(self.engine)
        if settings.journal is not None:
            run, names = f"{rng.getrandbits(32):08x}", list(settings.scheduler_names)
            first = Head(FORM, __version__, run, clock.now(), 0, True, names, settings.default_queue, settings.implicit_groups,
                         settings.names_groups)  # fmt: skip
            self.journal = Journal(Segments(settings.journal, settings.journal_size), self.enter, clock, first)
            self.journal.begin()
        self.informers = Informers(cluster, clock, self.engine, self._wake, settings.node_selector, enter=self.enter)
        self.configuration = Configuration(
            self.engine, self.informers, conf, settings.conf, settings.configmap, settings.strict, settings.unready_conf,
            report=lambda effect: self.writer.put(effect),
        )  # fmt: skip
        self.metrics = SchedulerMetrics(self.engine)
        if self.journal is not None:
            self.journal.report = self._journal_changed
            self._journal_changed()
        self.page = MetricsPage(self.metrics, lambda: (self.informers.changes, id(self.engine.framework)))
        self.informers.seen = lambda task: self.metrics.reached("Watched", task, clock.now())
        self.writer = StatusWriter(cluster, clock, rng, settings.scheduler_names[0], events=settings.events,
                                   busy=lambda: self.binder.in_flight >= BUSY_BINDINGS,
                                   allowed=self._leads)
        self.informers.group_gone = self.writer.forget_group
        self.results = results = BindResults(self.enter, self.metrics, self.writer, clock, self._wake, settings.evict_bare_pods)
        self.writer.refused, self.writer.shut = results.eviction_refused, results.gate_stays
        locks = NodeLocks(cluster, clock, rng)
        self.claim_writes = ClaimWrites(
            cluster, clock, rng, state.device_claims, lambda claim: self.enter(Put("ResourceClaim", claim)),
            here=lambda uid: uid in state.ledger.placements, allowed=self._leads,
        )  # fmt: skip
        self.binder = Binder(
            cluster, clock, rng, results.take,
            VolumeWait(cluster, clock, state, lambda: self.engine.volume_patience, self.claim_writes), settings.bind_concurrency,
            lambda: locks if self.engine.settings.node_lock else None, results.sent, self.metrics.took,
            allowed=self._leads, given_up=results.given_up,
            overtaking=lambda effect: self.writer.overtaking(effect.uid),
        )  # fmt: skip
        self.informers.pod_over = self.binder.pod_over
        if settings.sharding is not Mode.NONE:
            self.sharding = Sharding(
                cluster, clock, self.enter, self._wake, settings.own_shard, settings.shard_peers, settings.sharding,
                settings.shard_source, settings.retry_period, self.binder.on_way.values, self._leads,
            )  # fmt: skip
            self.informers.node_seen, self.binder.not_ours = self.sharding.labels.seen, self.sharding.refusal

    # -- the daemon ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        self.configuration.read_file(first=True)
        async with contextlib.AsyncExitStack() as servers:
            explain = ExplainPage(self._knows, self._explained)
            for address in filter(None, dict.fromkeys((self.settings.listen, self.settings.healthz))):
                host, port = host_and_port(address)
                guard = None if is_loopback(host) else Reviewed(self.cluster)
                asked: Handler = partial(explain.answer, guard=guard)
                routes = {**pages(self._metrics_page, self._waiting_for, self.configuration.problems), "/explain": asked}
                self.port = await servers.enter_async_context(served(routes, host, port, "scheduler"))
            async with group() as beside:
                self._beside, self.binder.begin = beside, beside.create_task
                try:
                    await run_until(self.stop, *self._tasks())
                finally:
                    await self._finish()
                    if self.journal is not None:
                        await self.journal.finish()
        if self._lost_lease:
            raise Unavailable("the lease was lost; another scheduler leads now")

    def _knows(self, namespace: str, name: str) -> bool:
        key = f"{namespace}/{name}"
        return any(task.key == key for task in self.engine.state.tasks.values())

    def _explained(self, namespace: str, name: str) -> bytes:
        """Runs in a forked child: what it does to the engine is nobody else's."""
        found = explain_known(self.engine, namespace, name, now=self.clock.monotonic())
        return as_json(found) + b"\n" if found is not None else b""

    def _tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self.writer.run(),
            *self.informers.watches(volumes=self.settings.volumes),
            *self.configuration.watches(),
            self._loop(),
            *([self.journal.run()] if self.journal is not None else ()),
        ]

    def _journal_changed(self) -> None:
        assert self.journal is not None
        self.metrics.journal = self.journal.recording
        self.metrics.moves += 1

    async def _finish(self) -> None:
        """No new decision is made any more: wait for the Bindings on their way, then give the lease up. Without the lease all
        that is left belongs to the next leader."""
        if self._lost_lease:
            await self.binder.abandon()
            return
        if self.binder.in_flight:
            log.info("finishing bindings in_flight=%d", self.binder.in_flight)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.binder.drain(), LAST_BINDINGS)
        await self.binder.abandon()
        await self.writer.flush(LAST_WRITES)
        if self._keeper is not None and self._election is not None:
            self._keeper.cancel()
            await self._election.release()

    async def _loop(self) -> None:
        await listed(self.informers.synced)
        self._garbage.hold_back()
        try:
            await self._schedule()
        finally:
            self._garbage.let_go()

    async def _schedule(self) -> None:
        queues = FirstQueues(self.cluster, self.clock, self.enter, self.settings.default_queue, self._wake)
        unmade = await queues.ensure()
        if self.settings.leader_elect:
            await self._lead()
        if self.sharding is not None:
            await self.sharding.begin()
        state = self.engine.state
        log.info("ready nodes=%d pods=%d groups=%d", len(state.ledger.table), len(state.ledger.placements), len(state.jobs))
        if self.ready is not None:
            self.ready.set()
        async with asyncio.TaskGroup() as beside:
            if self.settings.status_writes:  # else no phase tells a gang that never stood from one that lost members
                beside.create_task(self.results.finish_gangs(self.binder.find))
            beside.create_task(queues.make_later(unmade))
            if self.sharding is not None:
                beside.create_task(self.sharding.run())
            await self._decide()

    async def _decide(self) -> None:
        while True:
            await self._next()
            if not await self._leads():
                await self.clock.sleep(self.settings.retry_period)  # the daemon stops
                continue
            self._cycle()

    async def _next(self) -> None:
        """Wait for something to do, then for the window."""
        now = self.clock.monotonic()
        at_rest = not self._wake.is_set() and not self.engine.has_work(now)
        self._garbage.tidy(idle=at_rest and not self.binder.in_flight)
        if at_rest:
            wake = self.engine.next_wake()
            pause = self.settings.period if wake is None else min(self.settings.period, max(0.0, wake - now))
            await self._wait(None if wake is None else pause)
        if self.binder.in_flight >= BUSY_BINDINGS:
            await self.clock.sleep(self.settings.window_busy)
        else:
            await self._company()
        self._wake.clear()  # what came meanwhile is in the cycle that follows at once

    async def _company(self) -> None:
        """Wait the window of a scheduler with little to do. Status alone (the echoes of Bindings, PodGroups that come behind
        them) waits longer for more of its kind, until a pod comes that waits for a place or the time of a backoff is over. A
        single pod after a pause waits for nobody."""
        until, due = self.clock.monotonic() + self.settings.window_status, self.engine.next_wake()
        if due is not None and due > self._last_cycle:  # one that the last cycle left as it was asks for no haste
            until = min(until, due)
        while not self.engine.pressing and (left := until - self.clock.monotonic()) > INSTANT:
            self._wake.clear()
            await self._wait(left)
        paused = self.clock.monotonic() - self._last_cycle > PAUSE_BEFORE_A_LONE_POD
        await self.clock.sleep(0.0 if paused and self.engine.lone_pod else self.settings.window)

    async def _wait(self, seconds: float | None) -> None:
        """Until something arrives, or that long."""
        if seconds is None:
            await self._wake.wait()
            return
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)  # a fraction of what tasks for both cost
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _cycle(self) -> None:
        now = self.clock.monotonic()
        self._report_notes()
        if not self.engine.has_work(now):
            return
        plan = self.enter.cycle(now, self.rng, wall=self.clock.now(), budget=self.settings.budget)
        self.metrics.observe(plan)
        self._report_problems()
        for effect in plan.effects:
            if isinstance(effect, Bind):
                self.writer.forget(effect.uid)
                self.binder.send(effect)
            elif isinstance(effect, Deallocate):
                assert self._beside is not None, "running"
                self._beside.create_task(self.claim_writes.deallocate(effect))
            elif self._is_ours_to_say(effect):
                self.writer.put(effect)
        self._last_cycle = self.clock.monotonic()
        if plan.more:
            self._wake.set()

    def _is_ours_to_say(self, effect: SchedulerEffect) -> bool:
        if isinstance(effect, Evict | OpenGate):
            return True
        if isinstance(effect, QueueAllocated | HyperNodeStatus) and not self.engine.state.shards.speaks:
            return False
        shared = isinstance(effect, GroupStatus | QueueAllocated | HyperNodeStatus)
        return self.settings.status_writes and (self.settings.group_writes or not shared)

    def _report_problems(self) -> None:
        """Say once of each object why it, or what part of it, is ignored."""
        problems = self.engine.state.problems
        if problems == self._reported:
            return
        for about, text in problems.items():
            if self._reported.get(about) != text:
                log.warning("ignored object=%s cause=%s", about, text)
        self._reported = dict(problems)

    def _report_notes(self) -> None:
        """Say on pods and queues what of them has no effect yet."""
        unsaid = self.engine.state.groups.unsaid
        for (kind, key), (uid, text) in unsaid.items():
            namespace, _, name = key.rpartition("/")
            api = "v1" if kind == "Pod" else volcano.SCHEDULING_API
            self.writer.put(Event(kind, api, namespace, name, uid, "Warning", "WithoutEffect", text))
        unsaid.clear()

    # -- start-up -----------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        names, shard = self.settings.scheduler_names, self.settings.own_shard
        name = names[0] if len(names) == 1 else SCHEDULER_NAME
        if self.settings.sharding is not Mode.NONE and shard != name:
            name = f"{name}-{shard}"
        election = Election(
            self.cluster, self.clock, self.rng,
            name=self.settings.lease_name or name,
            namespace=self.settings.lease_namespace, identity=self.settings.identity,
            duration=self.settings.lease_duration, renew_deadline=self.settings.renew_deadline,
            retry=self.settings.retry_period,
        )  # fmt: skip
        await election.acquire()
        self._election = election
        assert self._beside is not None, "running"
        self._keeper = self._beside.create_task(election.keep(self.stop))

    @property
    def _lost_lease(self) -> bool:
        return self._election is not None and self._election.lost

    async def _leads(self) -> bool:
        return self._election is None or await self._election.leads()

    # -- pages --------------------------------------------------------------------------------------------------

    async def _metrics_page(self) -> bytes:
        self.metrics.refused_objects = self.informers.set_aside
        self.metrics.bad_configurations = self.configuration.refused
        self.metrics.refused_documents = {d.what: bool(d.refusal) for d in (self.configuration.own, self.configuration.devices)}
        return await self.page.fresh()

    def _waiting_for(self) -> list[str]:
        """The lists that are not complete yet. A stand-by that only waits for the lease is ready: else a rolling update,
        which waits for the new pod before it ends the leader, would never end."""
        awaited = {document.awaited for document in (self.configuration.own, self.configuration.devices)}
        return [*self.configuration.waits_for(), *sorted(self.informers.unsynced - awaited)]
