"""The controller daemon: PodGroups of bare pods, queues, and Jobs. Watches in, pure reconciling, writes out."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from pumice.adapters.certificates import rsa_pair
from pumice.apps.service.garbage import listed
from pumice.apps.service.http import host_and_port, pages, served
from pumice.apps.service.lease import Election, LedSettings
from pumice.apps.service.watches import ABSENT_OR_FORBIDDEN, SELDOM, Watcher, object_of
from pumice.effects.performer import Performer
from pumice.effects.recorder import EventRecorder
from pumice.effects.tasks import run_until
from pumice.effects.vocabulary import Event
from pumice.effects.work_queue import WorkQueue
from pumice.model.errors import Unavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.wire import kinds, volcano
from pumice.wire.batch import CRON_JOBS, JOB_KIND, JOB_TEMPLATES, Job, JobPod, LabelledPod
from pumice.wire.names import CONTROLLER_NAME, JOB_NAME, SHARE_CLAIMS
from pumice.wire.objects import Pod, PodSpec, PodStatus, decode
from pumice.wire.our_devices import CLAIM_DRIVERS
from pumice.wire.volcano import Command, PodGroup, PriorityClass, Queue
from pumice.wire.without_effect import Row, What, rows
from pumice_jobs.apps.controller import discovery, ended_groups, jobs, queues, share_claims
from pumice_jobs.apps.controller.bare_pods import BOUND, UNBOUND, BarePods, Moves
from pumice_jobs.apps.controller.discovery import Topology
from pumice_jobs.apps.controller.jobs import Jobs
from pumice_jobs.apps.controller.makers import CRON, FLOW, TEMPLATE, Makers
from pumice_jobs.apps.controller.queues import Queues
from pumice_jobs.apps.controller.share_claims import ShareClaims
from pumice_jobs.apps.controller.share_hours import BOUND_PODS, AccountedNode, AccountedPod, ShareHours
from pumice_jobs.controllers import podgroup
from pumice_jobs.controllers.share_claims import SharingPod
from pumice_jobs.metrics.controller import controller_page

log = logging.getLogger("pumice.controller")


OF_JOBS, GROUPS = "pods of jobs", "podgroups"


@dataclass(slots=True)
class Settings(LedSettings):
    """The settings of the controller daemon. ``bare_pod_groups`` False: no PodGroup is written for pods that name none (the
    scheduler needs none)."""

    listen: str = "127.0.0.1:8081"
    workers: int = 32
    """Most of the time they wait for answers: a burst of Jobs goes at the pace of so many requests at once."""
    bare_pod_groups: bool = True
    jobs: bool = True
    """True where Jobs are looked after."""
    inherit_owner_annotations: bool = True
    share_hours: bool = True
    """True where the record of who held which shares of cards is kept."""
    share_claims: bool = False
    """True where the templates of pods are made whose shares the admission has written as claims."""


@dataclass(frozen=True, slots=True)
class Watch:
    """One list that is kept. ``kind`` is what its objects are decoded as on their way, where they all are."""

    name: str
    resource: Resource
    handle: Callable[[WatchEvent], None]
    kind: type[Any] | None = None
    labels: str = ""
    fields: str = ""
    optional: bool = False
    """The cluster may have no such kind, or not let us see it."""


async def run(settings: Settings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:  # fmt: skip
    """Run until ``stop``."""
    await Controller(settings, cluster, clock, rng, stop, ready).run()


@dataclass(slots=True)
class Controller:
    """The objects that were watched, and the keys that wait to be reconciled."""

    settings: Settings
    cluster: Cluster
    clock: Clock
    rng: random.Random
    stop: asyncio.Event
    ready: asyncio.Event | None = None
    work: WorkQueue = field(init=False)
    commands: Commands = field(init=False)
    queues: Queues = field(init=False)
    bare: BarePods = field(init=False)
    jobs: Jobs = field(init=False)
    makers: Makers = field(init=False)
    unserved: UnservedKinds = field(init=False)
    topology: Topology = field(init=False)
    share_hours: ShareHours = field(init=False)
    share_claims: ShareClaims = field(init=False)
    _moves: Moves = field(init=False)
    _unsynced: set[str] = field(default_factory=set)
    _synced: asyncio.Event = field(default_factory=asyncio.Event)
    _election: Election | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        self._moves = Moves(self.clock)
        self.work = WorkQueue(self.clock, self.rng, self._reconcile, self._moves.are_many)
        recorder = EventRecorder(self.cluster, self.clock, CONTROLLER_NAME, log)
        performer = Performer(self.cluster, recorder)
        self.queues = Queues(self.cluster, performer, self.work, settings.default_queue)
        self.bare = BarePods(self.cluster, self.clock, performer, self.work, self.queues.groups, self._moves,
                             settings.scheduler_names, settings.inherit_owner_annotations)  # fmt: skip
        self.commands = Commands(self.cluster, recorder, self.work, self._carry_out, jobs=self.settings.jobs)
        self.jobs = Jobs(self.cluster, self.clock, performer, self.work, rsa_pair, self.commands.done, self.queues.takes_groups)
        self.makers = Makers(self.cluster, self.clock, performer, self.work, self.jobs.store)
        self.unserved = UnservedKinds(recorder, self.work)
        self.topology = Topology(self.cluster, self.clock, performer, self.work, self.settings.lease_namespace)
        self.share_claims = ShareClaims(self.cluster, performer, self.work)
        self.share_hours = ShareHours(self.cluster, self.clock, settings.lease_namespace, self.queues.queue_of,
                                      self.queues.queues, settings.default_queue)  # fmt: skip

    async def run(self) -> None:
        host, port = host_and_port(self.settings.listen)
        async with served(pages(self._metrics_page, lambda: sorted(self._unsynced)), host, port, "controller"):
            watches = list(self.watches())
            self._unsynced = {watch.name for watch in watches if not watch.optional}
            watching: list[Coroutine[Any, Any, None]] = [self._watch(watch) for watch in watches]
            watching += [self._watch_unserved(row, row.resource) for row in rows(What.KIND).values() if row.resource]
            await run_until(self.stop, *watching, *self.topology.watches(), self.makers.ask_for_ever(), self._work())
        if self._election is not None and self._election.lost:
            raise Unavailable(f"the lease {CONTROLLER_NAME} was lost; another controller leads now")
        if self._election is not None:
            await self._election.release()

    async def _work(self) -> None:
        await listed(self._synced)
        async with asyncio.TaskGroup() as beside:
            if self.settings.leader_elect:
                election = Election(self.cluster, self.clock, self.rng, CONTROLLER_NAME, self.settings.lease_namespace)
                await election.acquire()
                self._election = election
                beside.create_task(election.keep(self.stop))
            if self.settings.share_hours:
                beside.create_task(self.share_hours.keep())
            await self._lead()

    async def _lead(self) -> None:
        await self.queues.make_first()
        if self.ready is not None:
            self.ready.set()
        log.info("ready queues=%d groups=%d bare_pods=%d", len(self.queues.queues), len(self.queues.groups), len(self.bare.pods))
        await self.work.run(self.settings.workers)

    # -- reconciling --------------------------------------------------------------------------------------------

    async def _reconcile(self, kind: str, key: str) -> None:
        if kind in (BOUND, UNBOUND) or kind in self.bare.scaled:
            await self.bare.reconcile(kind, key)
        elif kind == queues.KIND:
            await self.queues.reconcile(key)
        elif kind == KIND:
            await self.commands.reconcile(key)
        elif kind in (CRON, FLOW, TEMPLATE):
            await self.makers.reconcile(kind, key)
        elif kind == discovery.KIND:
            await self.topology.reconcile(key)
        elif kind == UNSERVED:
            await self.unserved.reconcile(key)
        elif kind == jobs.KIND:
            await self.jobs.reconcile(key)
        elif kind == share_claims.KIND:
            await self.share_claims.reconcile(key)
        elif kind == ended_groups.KIND:
            await self.jobs.ended_groups.reconcile(key)

    async def _carry_out(self, command: Command) -> str | None:
        """A Command on a queue or a Job; words for why there is none such (``commands.Apply``)."""
        if command.target.kind == JOB_KIND:
            return await self.jobs.command(command)
        return await self.queues.command(command)

    # -- watches ------------------------------------------------------------------------------------------------

    def watches(self) -> Iterator[Watch]:
        yield Watch("queues", volcano.QUEUES, self._on_queue, Queue)
        yield Watch(GROUPS, volcano.POD_GROUPS, self._on_group, PodGroup)
        yield Watch(KIND, volcano.COMMANDS, self.commands.on_event)
        if self.settings.jobs:  # what bears the label of Jobs is listed once, and looked at by both where it is of none
            yield Watch(OF_JOBS, kinds.PODS, self._on_job_pod, LabelledPod, JOB_NAME)
            yield Watch("jobs", volcano.JOBS, self._on_job, Job)
            yield Watch("jobtemplates", JOB_TEMPLATES, self.makers.on_template)
            yield Watch("cronjobs", CRON_JOBS, self.makers.on(CRON))
            yield Watch("jobflows", volcano.JOB_FLOWS, self.makers.on(FLOW))
            yield Watch("priorityclasses", kinds.PRIORITY_CLASSES, self.jobs.on_priority_class, PriorityClass)
        if self.settings.bare_pod_groups:
            yield Watch("pods", kinds.PODS, self.bare.on_pod, Pod, f"!{JOB_NAME}" if self.settings.jobs else "")
            for kind in podgroup.SCALED_KINDS:
                yield Watch(kind.plural, kind, self.bare.on_owner(kind))
        if self.settings.share_claims:
            yield Watch("pods with shares as claims", kinds.PODS, self.share_claims.on_pod, SharingPod, SHARE_CLAIMS)
        if self.settings.share_hours:
            yield Watch("nodes", kinds.NODES, self.share_hours.on_node, AccountedNode)
            yield Watch("bound pods", kinds.PODS, self.share_hours.on_pod, AccountedPod, fields=BOUND_PODS)
            for driver in CLAIM_DRIVERS:
                yield Watch(f"slices of {driver}", kinds.RESOURCE_SLICES, self.share_hours.on_slice,
                            fields=f"spec.driver={driver}", optional=True)  # fmt: skip
            yield Watch("claims", kinds.RESOURCE_CLAIMS, self.share_hours.on_claim, optional=True)

    async def _watch(self, watch: Watch) -> None:
        watcher = Watcher(self.cluster, self.clock, log, self._is_synced)
        if watch.optional:
            watcher = replace(watcher, absent=ABSENT_OR_FORBIDDEN, pause=SELDOM)
        take = partial(watcher.taken, watch.name, watch.handle)
        await watcher.watch(watch.name, watch.resource, take, "", watch.fields, watch.kind, watch.labels)

    async def _watch_unserved(self, row: Row, resource: Resource) -> None:
        watcher = Watcher(self.cluster, self.clock, log, lambda _: None, ABSENT_OR_FORBIDDEN, SELDOM)
        await watcher.watch(row.name, resource, partial(watcher.taken, row.name, self.unserved.on(row)))

    def _is_synced(self, name: str) -> None:
        if name in (OF_JOBS, GROUPS):
            self.jobs.store.listed()
        self._unsynced.discard(name)
        if not self._unsynced:
            self._synced.set()

    def _on_queue(self, event: WatchEvent) -> None:
        self.queues.on_queue(event)
        name = object_of(Queue, event).metadata.name
        if self.queues.takes_groups(name):
            self.jobs.queue_opened(name)

    def _on_job_pod(self, event: WatchEvent) -> None:
        pod = object_of(LabelledPod, event)
        if self.jobs.store.on_pod(JobPod(pod.metadata, pod.status), gone=event.type == "DELETED"):
            self._moves.one()
        elif self.settings.bare_pod_groups:
            bare = Pod(pod.metadata, decode(PodSpec, pod.spec), PodStatus(pod.status.phase))
            self.bare.heed(bare, gone=event.type == "DELETED")

    def _on_group(self, event: WatchEvent) -> None:
        group, gone = object_of(PodGroup, event), event.type == "DELETED"
        if self.settings.jobs:
            self.jobs.store.on_group(group, gone=gone)
        self.queues.on_group(group, gone=gone)

    def _on_job(self, event: WatchEvent) -> None:
        self.jobs.on_job(event)
        self.makers.on_job(event)
        self.commands.look(object_of(Job, event).key)

    # -- pages --------------------------------------------------------------------------------------------------

    async def _metrics_page(self) -> bytes:
        return self.metrics_text().encode()

    def metrics_text(self) -> str:
        jobs = self.jobs
        return controller_page(self.queues.queues, self.queues.there(), jobs.completed, jobs.failed, jobs.latency,
                               self.share_hours.accountant.totals)  # fmt: skip


# -- Objects of Volcano's kinds that nothing serves yet ---------------------------------------------------------------

# Each is told so by an event.

UNSERVED = "object of an unserved kind"
REASON = "WithoutEffect"


@dataclass(slots=True)
class UnservedKinds:
    """The objects that were seen, by uid: reported already, or to be reported."""

    recorder: EventRecorder
    work: WorkQueue
    _reported: set[str] = field(default_factory=set)
    _untold: dict[str, tuple[Row, Json]] = field(default_factory=dict)

    def on(self, row: Row) -> Callable[[WatchEvent], None]:
        """The handler of one kind's watch."""

        def handle(event: WatchEvent) -> None:
            obj = msgspec.json.decode(event.raw)
            uid = obj["metadata"].get("uid", "")
            if event.type == "DELETED":
                self._reported.discard(uid)
                self._untold.pop(uid, None)
            elif uid not in self._reported and not _served_by_others(obj):
                self._untold[uid] = row, obj
                self.work.add(UNSERVED, uid)

        return handle

    async def reconcile(self, uid: str) -> None:
        if uid not in self._untold:
            return
        row, obj = self._untold.pop(uid)
        self._reported.add(uid)
        meta, text = obj["metadata"], f"{row.text} (no controller of ours serves this kind)"
        namespace = meta.get("namespace", "")
        log.warning("without effect kind=%s object=%s/%s", row.name, namespace, meta["name"])
        await self.recorder.try_to_write(Event.on(obj, "Warning", REASON, text, kind=row.name))


def _served_by_others(obj: Json) -> bool:
    """Return whether some other controller has written its status: this one never does."""
    return bool(obj.get("status"))


# -- Commands on the bus ----------------------------------------------------------------------------------------------

# One is carried out, and then deleted (ADR 95).

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
    _reported: set[str] = field(default_factory=set)

    def on_event(self, event: WatchEvent) -> None:
        command = decode(Command, event.raw)
        uid = command.metadata.uid
        if event.type == "DELETED":
            self._reported.discard(uid)
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
                    if problem and uid not in self._reported:
                        await self.say(command, problem)
                        self._reported.add(uid)
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
        if command.metadata.uid not in self._reported:
            self._reported.add(command.metadata.uid)
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
