"""The scheduler daemon: watches in, cycles of the engine, effects out (spec volcano-core 2, 5, 6, 12).

One process, one loop. Watch events change the engine's state at once; a cycle runs after a window of a few milliseconds and
never waits for the world; Bindings and status writes are performed beside it. No decision is made before every list is
complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from pumice.apps.binder import Binder, Outcome
from pumice.apps.explain_page import ExplainPage
from pumice.apps.http import Handler, served
from pumice.apps.lease import Election
from pumice.apps.node_locks import NodeLocks
from pumice.apps.scheduler_metrics import SchedulerMetrics
from pumice.apps.status_writer import StatusWriter
from pumice.apps.tasks import run_until
from pumice.engine.effects import Bind, Event, Evict, PodCondition
from pumice.engine.engine import Engine
from pumice.engine.model import Status
from pumice.engine.state import State
from pumice.model.refusal import BadInput, Unavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.wire import volcano
from pumice.wire.device_config import DeviceConfig, parse_device_config
from pumice.wire.names import (
    DEFAULT_QUEUE,
    DEVICE_CONFIG_KEY,
    ROOT_QUEUE,
    SCHEDULER_CONF_KEY,
    SCHEDULER_CONFIGMAP,
    SCHEDULER_NAME,
    SYSTEM_NAMESPACE,
)
from pumice.wire.objects import ConfigMap, Node, Pod, decode
from pumice.wire.scheduler_conf import DEFAULT_CONF, SchedulerConf, parse_scheduler_conf
from pumice.wire.volcano import PodGroup, PriorityClass, Queue, default_queue

log = logging.getLogger("pumice.scheduler")

ABSENT_KIND_RETRY = 10.0
BUSY_BINDINGS = 16
"""With so many Bindings on their way a cycle may wait longer for company."""
BROKEN_GANG = "its gang could not be bound as a whole"


@dataclass(slots=True)
class Settings:
    """Flags of the scheduler, upstream's names where it has them (spec volcano-core 2.1).

    ``conf`` is a file; without it the ConfigMap ``configmap`` (namespace/name) is watched. ``window`` and ``window_busy``
    are how long a cycle waits for more events, when idle and under load. ``groups`` False: nothing about PodGroups is
    written; ``events`` False: no events.
    """

    scheduler_names: tuple[str, ...] = (SCHEDULER_NAME,)
    conf: Path | None = None
    configmap: str = f"{SYSTEM_NAMESPACE}/{SCHEDULER_CONFIGMAP}"
    strict: bool = False
    period: float = 1.0
    default_queue: str = DEFAULT_QUEUE
    listen: str = "127.0.0.1:8080"
    healthz: str = ""
    leader_elect: bool = False
    lease_namespace: str = SYSTEM_NAMESPACE
    lease_name: str = ""
    identity: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    window: float = 0.002
    window_busy: float = 0.03
    budget: float = 0.05
    bind_concurrency: int = 32
    implicit_groups: bool = True
    events: bool = True
    status_writes: bool = True
    volumes: bool = True
    kubeconfig: str = ""
    """For the child processes that answer /explain."""


async def run(settings: Settings, *, cluster: Cluster, clock: Clock, dice: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:  # fmt: skip
    """Run until ``stop``. Raises BadInput when the first configuration cannot be used."""
    await Scheduler(settings, cluster, clock, dice, stop, ready).run()


@dataclass(slots=True)
class Scheduler:
    """The running daemon."""

    settings: Settings
    cluster: Cluster
    clock: Clock
    dice: random.Random
    stop: asyncio.Event
    ready: asyncio.Event | None = None
    engine: Engine = field(init=False)
    metrics: SchedulerMetrics = field(init=False)
    binder: Binder = field(init=False)
    writer: StatusWriter = field(init=False)
    port: int = 0
    """Port of the pages, once they are served."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _unsynced: set[str] = field(default_factory=set)
    _synced: asyncio.Event = field(default_factory=asyncio.Event)
    _device_watch: asyncio.Task[None] | None = None
    _device_config: DeviceConfig | None = None
    _device_map: str = ""
    _conf: SchedulerConf | None = None
    _conf_text: str | None = None
    _keeper: asyncio.Task[None] | None = None
    _broken_gangs: dict[tuple[str, str], None] = field(default_factory=dict)
    _election: Election | None = None
    _lost_lease: bool = False

    def __post_init__(self) -> None:
        state = State(
            scheduler_names=frozenset(self.settings.scheduler_names),
            default_queue=self.settings.default_queue,
            implicit_groups=self.settings.implicit_groups,
        )
        self._conf = parse_scheduler_conf(DEFAULT_CONF, source="built-in configuration")
        self.engine = Engine(self._conf, state=state)
        self.metrics = SchedulerMetrics(self.engine)
        locks = NodeLocks(self.cluster, self.clock, self.dice)
        self.binder = Binder(
            self.cluster, self.clock, self.dice, self._binding_done, self.settings.bind_concurrency,
            lambda: locks if self.engine.settings.node_lock else None,
        )  # fmt: skip
        self.writer = StatusWriter(
            self.cluster, self.clock, self.dice, self.settings.scheduler_names[0], events=self.settings.events
        )

    # -- the daemon ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        self._read_conf_file(first=True)
        async with contextlib.AsyncExitStack() as servers:
            for address in filter(None, dict.fromkeys((self.settings.listen, self.settings.healthz))):
                host, port = host_and_port(address)
                self.port = await servers.enter_async_context(served(self._pages(), host, port, "scheduler"))
            try:
                await run_until(self.stop, *self._tasks())
            finally:
                if self._device_watch is not None:
                    self._device_watch.cancel()
                if self.binder.in_flight:
                    log.info("finishing bindings in_flight=%d", self.binder.in_flight)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.binder.drain(), 5)
                if self._keeper is not None and self._election is not None:
                    self._keeper.cancel()
                    if not self._lost_lease:
                        await self._election.release()
        if self._lost_lease:
            raise Unavailable("the lease was lost; another scheduler leads now")

    def _tasks(self) -> list[Coroutine[Any, Any, None]]:
        state = self.engine.state
        watches: list[tuple[str, Resource, Callable[[WatchEvent], None]]] = [
            ("nodes", volcano.NODES, self._on_node),
            ("namespaces", volcano.NAMESPACES, self._on_namespace),
            ("priorityclasses", volcano.PRIORITY_CLASSES, self._on_priority_class),
            ("queues", volcano.QUEUES, self._on_queue),
            ("podgroups", volcano.POD_GROUPS, self._on_group),
            ("pods", volcano.PODS, self._on_pod),
        ]
        if self.settings.volumes:
            volumes = state.volumes
            watches += [
                ("claims", volcano.PERSISTENT_VOLUME_CLAIMS, self._on_json(volumes.put_claim, volumes.drop_claim)),
                ("volumes", volcano.PERSISTENT_VOLUMES, self._on_json(volumes.put_volume, volumes.drop_volume)),
                ("storageclasses", volcano.STORAGE_CLASSES, self._on_json(volumes.put_class, volumes.drop_class)),
            ]
        self._unsynced = {name for name, _, _ in watches}
        jobs: list[Coroutine[Any, Any, None]] = [self.writer.run()]
        jobs += [self._watch(name, resource, handle) for name, resource, handle in watches]
        if self.settings.conf is not None:
            jobs.append(self._watch_conf_file())
        elif self.settings.configmap:
            self._unsynced.add("configuration")
            jobs.append(self._watch_configmap("configuration", self.settings.configmap, self._on_conf_map))
        self._unsynced.add("devices")
        jobs.append(self._device_configs())
        jobs.append(self._loop())
        return jobs

    async def _loop(self) -> None:
        gc.disable()
        try:
            await self._synced.wait()
        finally:
            gc.enable()
        gc.collect()
        gc.freeze()  # what was listed lives long; looking through it again and again is wasted
        await self._ensure_queues()
        if self.settings.leader_elect:
            await self._lead()
        state = self.engine.state
        log.info("ready nodes=%d pods=%d groups=%d", len(state.ledger.table), len(state.ledger.holdings), len(state.jobs))
        if self.ready is not None:
            self.ready.set()
        self.metrics.ready = True
        while True:
            await self._next()
            self._cycle()

    async def _next(self) -> None:
        """Wait for something to do, then for the window."""
        now = self.clock.now()
        if not self._wake.is_set() and not self.engine.has_work(now):
            wake = self.engine.next_wake()
            pause = self.settings.period if wake is None else min(self.settings.period, max(0.0, wake - now))
            await self._wait(pause if self.engine.state.waiting else None)
        self._wake.clear()
        busy = self.binder.in_flight >= BUSY_BINDINGS
        await self.clock.sleep(self.settings.window_busy if busy else self.settings.window)

    async def _wait(self, seconds: float | None) -> None:
        """Until something arrives, or that long."""
        if seconds is None:
            await self._wake.wait()
            return
        sleeper = asyncio.ensure_future(self.clock.sleep(seconds))
        waker = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({sleeper, waker}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            waker.cancel()

    def _cycle(self) -> None:
        now = self.clock.now()
        if not self.engine.has_work(now):
            return
        plan = self.engine.cycle(now, self.dice, budget=self.settings.budget)
        self.metrics.observe(plan)
        for effect in plan.effects:
            if isinstance(effect, Bind):
                self.writer.forget(effect.namespace, effect.name)
                self.binder.send(effect)
            elif self.settings.status_writes:
                self.writer.put(effect)
        if plan.more:
            self._wake.set()

    # -- outcomes -----------------------------------------------------------------------------------------------

    def _binding_done(self, effect: Bind, outcome: Outcome, error: str) -> None:
        engine = self.engine
        if outcome is Outcome.BOUND:
            task = engine.bound(effect.uid)
            self.metrics.bound(task, self.clock.now())
            self._event(effect, "Normal", "Scheduled",
                        f"Successfully assigned {effect.namespace}/{effect.name} to {effect.node}")  # fmt: skip
            if (effect.gang, effect.attempt) in self._broken_gangs:
                self._evict(effect.uid, effect.namespace, effect.name)
        elif outcome is Outcome.FAILED:
            text = f"failed to bind to node {effect.node}: {error}"
            engine.bind_failed(effect.uid, self.clock.now())
            self.metrics.attempts["error"] += 1
            self.writer.put(PodCondition(effect.uid, effect.namespace, effect.name, "SchedulerError", text))
        elif outcome is Outcome.GONE:
            engine.bind_failed(effect.uid, self.clock.now() + 1)  # the watch will say that it is gone
        if effect.gang and outcome in (Outcome.FAILED, Outcome.GONE):
            self._give_up_gang(effect)
        self._wake.set()

    def _give_up_gang(self, effect: Bind) -> None:
        """A member could not be bound: the members that could are evicted, so that no partial gang holds cards."""
        job = self.engine.state.jobs.get(effect.gang)
        if job is None or job.ready_count >= job.min_available:
            return
        self._broken_gangs[effect.gang, effect.attempt] = None
        if len(self._broken_gangs) > 1000:
            self._broken_gangs.pop(next(iter(self._broken_gangs)))
        for task in list(job.tasks.values()):
            if task.status in (Status.BOUND, Status.RUNNING):
                self._evict(task.uid, task.namespace, task.name)
        self.writer.put(Event("PodGroup", volcano.SCHEDULING_API, job.namespace, job.name, job.uid, "Normal", "Evict",
                              BROKEN_GANG))  # fmt: skip

    def _evict(self, uid: str, namespace: str, name: str) -> None:
        log.warning("evicting pod=%s/%s reason=%s", namespace, name, BROKEN_GANG)
        self.writer.put(Evict(uid, namespace, name, BROKEN_GANG))

    def _event(self, effect: Bind, type_: str, reason: str, message: str) -> None:
        self.writer.put(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, type_, reason, message))

    # -- watches ------------------------------------------------------------------------------------------------

    async def _watch(self, name: str, resource: Resource, handle: Callable[[WatchEvent], None], namespace: str = "",
                     field_selector: str = "") -> None:  # fmt: skip
        while True:
            try:
                async for event in self.cluster.watch(resource, namespace, field_selector=field_selector):
                    if event.type == "SYNCED":
                        self._is_synced(name)
                    elif event.type != "BOOKMARK":
                        try:
                            handle(event)
                        except (msgspec.MsgspecError, ValueError) as error:
                            self.metrics.refused_objects += 1
                            log.warning("object set aside kind=%s cause=%s", name, error)
                        if self.engine.stirred:
                            self._wake.set()
            except ApiError as error:
                # A kind that is not installed (no CRDs, no storage API) is empty, and looked for again now and then.
                if error.code != 404:
                    log.error("cannot watch %s: %s", name, error)
                else:
                    self._is_synced(name)
                await self.clock.sleep(ABSENT_KIND_RETRY)

    def _is_synced(self, name: str) -> None:
        self._unsynced.discard(name)
        if not self._unsynced:
            self._synced.set()
        self._wake.set()

    def _on_pod(self, event: WatchEvent) -> None:
        pod = decode(Pod, event.raw)
        if event.type == "DELETED":
            self.engine.state.drop_pod(pod)
        else:
            self.engine.state.put_pod(pod, self.clock.now())

    def _on_node(self, event: WatchEvent) -> None:
        node = decode(Node, event.raw)
        if event.type == "DELETED":
            self.engine.state.drop_node(node.metadata.name)
        else:
            self.engine.state.put_node(node)

    def _on_group(self, event: WatchEvent) -> None:
        group = decode(PodGroup, event.raw)
        if event.type == "DELETED":
            self.engine.state.drop_group(group)
        else:
            self.engine.state.put_group(group)

    def _on_queue(self, event: WatchEvent) -> None:
        queue = decode(Queue, event.raw)
        if event.type == "DELETED":
            self.engine.state.drop_queue(queue.metadata.name, queue.metadata.uid)
        else:
            self.engine.state.put_queue(queue)

    def _on_namespace(self, event: WatchEvent) -> None:
        meta = decode(ConfigMap, event.raw).metadata  # only its metadata counts
        self.engine.state.put_namespace(meta.name, None if event.type == "DELETED" else meta.labels)

    def _on_priority_class(self, event: WatchEvent) -> None:
        cls = decode(PriorityClass, event.raw)
        if event.type == "DELETED":
            self.engine.state.drop_priority_class(cls.metadata.name)
        else:
            self.engine.state.put_priority_class(cls)

    def _on_json(self, put: Callable[[Json], None], drop: Callable[[Json], None]
                 ) -> Callable[[WatchEvent], None]:  # fmt: skip
        def handle(event: WatchEvent) -> None:
            obj = msgspec.json.decode(event.raw)
            (drop if event.type == "DELETED" else put)(obj)
            self.engine.state.storage_changed()

        return handle

    # -- configuration ------------------------------------------------------------------------------------------

    def _read_conf_file(self, *, first: bool = False) -> None:
        if self.settings.conf is None:
            return
        try:
            text = self.settings.conf.read_text(encoding="utf-8")
        except OSError as error:
            if first:
                raise BadInput(f"{self.settings.conf}: cannot be read: {error.strerror or error}") from None
            log.error("configuration kept: %s cannot be read: %s", self.settings.conf, error)
            return
        if text != self._conf_text:
            self._conf_text = text
            self._take_conf(text, str(self.settings.conf), first=first)

    def _take_conf(self, text: str, source: str, *, first: bool = False) -> None:
        """Use a new configuration, or keep the last good one and say why."""
        try:
            conf = parse_scheduler_conf(text, source=source, strict=self.settings.strict)
            remarks = self.engine.configure(conf, self._device_config)
        except BadInput as error:
            self.metrics.bad_configurations += 1
            if first:
                raise
            log.error("configuration kept: %s", error)
            return
        self._conf = conf
        for remark in remarks:
            log.warning("configuration: %s", remark)
        log.info("configuration source=%s actions=%s", source, ",".join(conf.actions))
        self._follow_device_map()
        self._wake.set()

    async def _watch_conf_file(self) -> None:
        while True:
            await self.clock.sleep(1.0)
            self._read_conf_file()

    def _on_conf_map(self, data: dict[str, str] | None) -> None:
        text = (data or {}).get(SCHEDULER_CONF_KEY)
        if text is None:
            log.warning("configmap %s has no key %s; configuration kept", self.settings.configmap, SCHEDULER_CONF_KEY)
        elif text != self._conf_text:
            self._conf_text = text
            self._take_conf(text, f"configmap {self.settings.configmap}")

    def _on_device_map(self, data: dict[str, str] | None) -> None:
        text = (data or {}).get(DEVICE_CONFIG_KEY)
        if text is None:
            config = None
        else:
            try:
                config = parse_device_config(text)
            except BadInput as error:
                self.metrics.bad_configurations += 1
                log.error("device configuration kept: configmap %s: %s", self._device_map, error)
                return
        if config != self._device_config and self._conf is not None:
            self._device_config = config
            for remark in self.engine.configure(self._conf, config):
                log.warning("configuration: %s", remark)
            self._wake.set()

    async def _device_configs(self) -> None:
        self._follow_device_map()
        await asyncio.Event().wait()

    def _follow_device_map(self) -> None:
        """Watch the device ConfigMap that the configuration names."""
        settings = self.engine.settings
        name = f"{settings.configmap_namespace}/{settings.configmap}"
        if name == self._device_map:
            return
        self._device_map = name
        if self._device_watch is not None:
            self._device_watch.cancel()
        watch = self._watch_configmap("devices", name, self._on_device_map)
        self._device_watch = asyncio.get_running_loop().create_task(watch)

    async def _watch_configmap(self, name: str, where: str, take: Callable[[dict[str, str] | None], None]) -> None:
        namespace, _, wanted = where.partition("/")

        def handle(event: WatchEvent) -> None:
            found = decode(ConfigMap, event.raw)
            if found.metadata.name == wanted:
                take(None if event.type == "DELETED" else found.data)

        await self._watch(name, volcano.CONFIGMAPS, handle, namespace, f"metadata.name={wanted}")

    # -- start-up -----------------------------------------------------------------------------------------------

    async def _ensure_queues(self) -> None:
        """The root and default queue exist (spec 2.4). Without Queue objects in the cluster they are only in memory."""
        for name, reclaimable in ((ROOT_QUEUE, False), (self.settings.default_queue, True)):
            if name in self.engine.state.queues and self.engine.state.queues[name].present:
                continue
            body = default_queue(name, reclaimable=reclaimable)
            for attempt in range(60):
                try:
                    made = await self.cluster.create(volcano.QUEUES, body)
                    self.engine.state.put_queue(msgspec.convert(made, Queue, strict=False))
                    break
                except ApiError as error:
                    if error.code == 409:
                        break
                    if error.code == 404:
                        self.engine.state.put_queue(msgspec.convert(body, Queue, strict=False))
                        break
                    log.warning("cannot create queue %s (attempt %d): %s", name, attempt + 1, error)
                    await self.clock.sleep(1.0)

    async def _lead(self) -> None:
        names = self.settings.scheduler_names
        election = Election(
            self.cluster, self.clock, self.dice,
            name=self.settings.lease_name or (names[0] if len(names) == 1 else SCHEDULER_NAME),
            namespace=self.settings.lease_namespace, identity=self.settings.identity,
            duration=self.settings.lease_duration, renew_deadline=self.settings.renew_deadline,
            retry=self.settings.retry_period,
        )  # fmt: skip
        await election.acquire()
        self._election = election
        self._keeper = asyncio.get_running_loop().create_task(self._keep(election))

    async def _keep(self, election: Election) -> None:
        await election.keep()
        log.error("lost the lease %s; stopping", election.name)
        self._lost_lease = True
        self.stop.set()

    def _pages(self) -> dict[str, Handler]:
        async def metrics(_: web.Request) -> web.Response:
            kind = "text/plain; version=0.0.4; charset=utf-8"
            return web.Response(body=self.metrics.page(), headers={"Content-Type": kind})

        async def healthz(_: web.Request) -> web.Response:
            return web.Response(text="ok")

        async def readyz(_: web.Request) -> web.Response:
            if self.metrics.ready:
                return web.Response(text="ok")
            waiting = ", ".join(sorted(self._unsynced)) or "leadership"
            return web.Response(status=503, text=f"waiting for: {waiting}")

        explain = ExplainPage(self.settings.kubeconfig, self.settings.scheduler_names)
        return {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz, "/explain": explain.answer}


def host_and_port(address: str) -> tuple[str, int]:
    """``:8080`` or ``127.0.0.1:8080``. Raises BadInput."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{address!r} is no address; write for example 127.0.0.1:8080 or :8080")
    return host or "0.0.0.0", int(port)
