"""The controller daemon: PodGroups of bare pods, queues, and Jobs. Watches in, pure reconciling, writes out."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pumice.adapters.ssh_keys import rsa_pair
from pumice.apps.controller import discovery, ended_groups, jobs
from pumice.apps.controller.commands import KIND, Commands
from pumice.apps.controller.discovery import Topology
from pumice.apps.controller.job_effects import lasting
from pumice.apps.controller.jobs import Jobs
from pumice.apps.controller.makers import CRON, FLOW, TEMPLATE, Makers
from pumice.apps.controller.unserved_kinds import UNSERVED, UnservedKinds
from pumice.apps.service.daemon_pages import pages
from pumice.apps.service.http import host_and_port, served
from pumice.apps.service.lease import Election
from pumice.apps.service.settings import LedSettings
from pumice.apps.service.tasks import run_until
from pumice.apps.service.watches import ABSENT_OR_FORBIDDEN, SELDOM, Watcher
from pumice.apps.service.work_queue import WorkQueue
from pumice.controllers import podgroup, queue
from pumice.engine.state.bearers import Bearers
from pumice.metrics.controller import controller_page
from pumice.model.errors import Unavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.wire import volcano
from pumice.wire.batch import CRON_JOBS, JOB_KIND, JOB_TEMPLATES
from pumice.wire.names import CONTROLLER_NAME, GROUP_NAME, JOB_NAME, ROOT_QUEUE
from pumice.wire.objects import ConfigMap, Pod, convert, decode
from pumice.wire.volcano import Command, PodGroup, Queue, default_queue, group_name_for
from pumice.wire.without_effect import Row, What, rows

log = logging.getLogger("pumice.controller")

UNBOUND = "unbound pod"
"""What is looked at is the pod that still waits for its node; once it has one, its group comes behind the Bindings of others."""
BEHIND = 0.2
"""Seconds for which a bare pod's PodGroup leaves the API server to the Binding: the scheduler does not need the group."""
BEHIND_A_BURST = 1.0
"""Seconds longer for which it does amid a burst, where its pod waits for its node, and for its turn."""
BEHIND_OTHERS = 10.0
"""Seconds longer for which the PodGroup of a pod that is bound leaves it to the Bindings of others, at most, while many come."""
MANY, MOMENT = 16, 0.25
"""Moves of pods (bare ones that are bound, and all of Jobs'), and the seconds within which so many are many."""
REFUSED = 300.0
"""Seconds after which a PodGroup that was refused is asked for again."""


@dataclass(slots=True)
class Settings(LedSettings):
    """``bare_pod_groups`` False: no PodGroup is written for pods that name none (the scheduler needs none)."""

    listen: str = "127.0.0.1:8081"
    workers: int = 32
    """What they do is wait for answers: a burst of Jobs goes at the pace of so many requests at once."""
    bare_pod_groups: bool = True
    jobs: bool = True
    """Whether Jobs are looked after."""
    inherit_owner_annotations: bool = True


async def run(settings: Settings, *, cluster: Cluster, clock: Clock, dice: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:  # fmt: skip
    """Run until ``stop``."""
    await Controller(settings, cluster, clock, dice, stop, ready).run()


@dataclass(slots=True)
class Controller:
    """What was watched, and the keys that wait to be reconciled."""

    settings: Settings
    cluster: Cluster
    clock: Clock
    dice: random.Random
    stop: asyncio.Event
    ready: asyncio.Event | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    """Pods of ours without a group, by uid."""
    groups: dict[str, tuple[str, str]] = field(default_factory=dict)
    """PodGroup key to (queue, phase)."""
    queues: dict[str, Queue] = field(default_factory=dict)
    owners: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    """ReplicaSets and StatefulSets by uid: generation and annotations as last looked at."""
    scaled: dict[str, Resource] = field(default_factory=dict)
    bearers: Bearers = field(default_factory=Bearers)
    work: WorkQueue = field(init=False)
    commands: Commands = field(init=False)
    jobs: Jobs = field(init=False)
    makers: Makers = field(init=False)
    unserved: UnservedKinds = field(init=False)
    topology: Topology = field(init=False)
    _moves: deque[float] = field(default_factory=lambda: deque(maxlen=MANY))
    """When the last pods were seen to move."""
    _unsynced: set[str] = field(default_factory=set)
    _synced: asyncio.Event = field(default_factory=asyncio.Event)
    _lost_lease: bool = False
    _election: Election | None = None

    def __post_init__(self) -> None:
        self.work = WorkQueue(self.clock, self.dice, self._reconcile, self._many_move)
        self.commands = Commands(self.cluster, self.clock, self.work, self._carry_out, jobs=self.settings.jobs)
        self.jobs = Jobs(self.cluster, self.clock, self.work, rsa_pair)
        self.makers = Makers(self.cluster, self.clock, self.work, self.jobs.store)
        self.unserved = UnservedKinds(self.cluster, self.clock, self.work)
        self.topology = Topology(self.cluster, self.clock, self.work, self.settings.lease_namespace)

    async def run(self) -> None:
        host, port = host_and_port(self.settings.listen)
        async with served(pages(self._metrics_page, lambda: sorted(self._unsynced)), host, port, "controller"):
            watches: list[tuple[str, Resource, Callable[[WatchEvent], None]]] = [
                ("queues", volcano.QUEUES, self._on_queue),
                ("podgroups", volcano.POD_GROUPS, self._on_group),
                (KIND, volcano.COMMANDS, self.commands.on_event),
            ]
            pods: list[tuple[str, Callable[[WatchEvent], None], str]] = []
            if self.settings.jobs:  # what bears the label of Jobs is listed once, and looked at by both where it is of none
                pods.append(("pods of jobs", self._on_job_pod, JOB_NAME))
            if self.settings.bare_pod_groups:
                pods.append(("pods", self._on_pod, f"!{JOB_NAME}" if self.settings.jobs else ""))
                watches += [(kind.plural, kind, self._on_owner(kind)) for kind in podgroup.SCALED_KINDS]
            if self.settings.jobs:
                watches.append(("jobs", volcano.JOBS, self._on_job))
                watches.append(("jobtemplates", JOB_TEMPLATES, self.makers.on_template))
                watches.append(("cronjobs", CRON_JOBS, self.makers.on(CRON)))
                watches.append(("jobflows", volcano.JOB_FLOWS, self.makers.on(FLOW)))
                watches.append(("priorityclasses", volcano.PRIORITY_CLASSES, self.jobs.on_priority_class))
            self._unsynced = {name for name, *_ in (*watches, *pods)}
            watching: list[Coroutine[Any, Any, None]] = [self._watch(*watch) for watch in watches]
            watching += [self._watch(name, volcano.PODS, handle, label_selector=labels) for name, handle, labels in pods]
            watching += [self._watch_unserved(row, row.resource) for row in rows(What.KIND).values() if row.resource]
            await run_until(self.stop, *watching, *self.topology.watches(), self.makers.ask_for_ever(), self._work())
        if self._election is not None and not self._lost_lease:
            await self._election.release()
        if self._lost_lease:
            raise Unavailable(f"the lease {CONTROLLER_NAME} was lost; another controller leads now")

    async def _work(self) -> None:
        gc.disable()
        try:
            await self._synced.wait()
            gc.freeze()  # what was listed stays: looking through all of it, again and again, took a fifth of the start
        finally:
            gc.enable()
        async with asyncio.TaskGroup() as beside:
            if self.settings.leader_elect:
                election = Election(self.cluster, self.clock, self.dice, CONTROLLER_NAME, self.settings.lease_namespace)
                await election.acquire()
                self._election = election
                beside.create_task(self._keep(election))
            await self._lead()

    async def _lead(self) -> None:
        for name, reclaimable in ((ROOT_QUEUE, False), (self.settings.default_queue, True)):
            if name not in self.queues:
                await self._quietly(self.cluster.create(volcano.QUEUES, default_queue(name, reclaimable=reclaimable)))
        if self.ready is not None:
            self.ready.set()
        log.info("ready queues=%d groups=%d bare_pods=%d", len(self.queues), len(self.groups), len(self.pods))
        await self.work.run(self.settings.workers)

    async def _keep(self, election: Election) -> None:
        await election.keep()
        self._lost_lease = True
        self.stop.set()

    # -- reconciling --------------------------------------------------------------------------------------------

    async def _reconcile(self, kind: str, key: str) -> None:
        if kind in ("pod", UNBOUND):
            pod = self.pods.get(key)
            if pod is not None and not (kind == UNBOUND and pod.spec.node_name):
                await self._reconcile_pod(pod)
        elif kind == "queue" and key in self.queues:
            await self._act_on_queues(queue.reconcile_queue(self.queues[key], self._groups_of(key)))
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
        elif kind == ended_groups.KIND:
            await self.jobs.ended_groups.reconcile(key)
        elif kind in self.scaled:
            await self._reconcile_owner(self.scaled[kind], *key.split("/"))

    async def _reconcile_pod(self, pod: Pod) -> None:
        name = podgroup.group_name(pod)
        exists = f"{pod.metadata.namespace}/{name}" in self.groups
        annotations = {} if exists else await self._owner_annotations(pod)
        actions = podgroup.reconcile_pod(
            pod, group_exists=exists, owner_annotations=annotations, scheduler_names=self.settings.scheduler_names,
            now=self.clock.now(),
        )  # fmt: skip
        try:
            for action in actions:
                await self._perform(action)
        except ApiError as error:
            if not lasting(error):
                raise
            # An admission says that its queue is closed or gone. The scheduler needs no group, and time alone mends nothing.
            log.info("no PodGroup for pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
            self.work.add_later("pod", pod.metadata.uid, REFUSED)
            return
        self.pods.pop(pod.metadata.uid, None)

    async def _perform(self, action: podgroup.Action) -> None:
        match action:
            case podgroup.CreateGroup():
                try:
                    await self.cluster.create(volcano.POD_GROUPS, action.body, action.namespace)
                except ApiError as error:
                    if error.code != 409:
                        raise
                self.groups.setdefault(f"{action.namespace}/{action.name}", ("", volcano.PENDING))
            case podgroup.AnnotatePod():
                # The uid in the patch makes the API server refuse a successor of the same name.
                metadata = {"uid": action.uid, "annotations": {GROUP_NAME: action.group}}
                try:
                    await self.cluster.patch(volcano.PODS, action.name, {"metadata": metadata}, action.namespace)
                except ApiError as error:
                    if error.code not in (404, 409, 422):
                        raise
            case podgroup.UpdateGroup():
                await self._quietly(self.cluster.patch(volcano.POD_GROUPS, action.name, action.body, action.namespace))
            case podgroup.DeleteGroup():
                await self._quietly(self.cluster.delete(volcano.POD_GROUPS, action.name, action.namespace))

    async def _owner_annotations(self, pod: Pod) -> dict[str, str]:
        owner = podgroup.controlling_owner(pod)
        if owner is None:
            return {}
        resource = podgroup.OWNER_KINDS.get((owner.api_version, owner.kind))
        if resource is None:
            return {}
        try:
            found = await self.cluster.get(resource, owner.name, pod.metadata.namespace)
        except ApiError as error:
            if error.code == 404:
                return {}
            raise
        return self._passed_on(found)

    def _passed_on(self, owner: Json) -> dict[str, str]:
        annotations = owner.get("metadata", {}).get("annotations") or {}
        return podgroup.passed_on(annotations, inherit=self.settings.inherit_owner_annotations)

    async def _reconcile_owner(self, kind: Resource, namespace: str, name: str) -> None:
        """A ReplicaSet or StatefulSet: its group goes or follows (spec 14.2)."""
        try:
            owner = await self.cluster.get(kind, name, namespace)
            group = await self.cluster.get(volcano.POD_GROUPS, group_name_for(owner["metadata"]["uid"]), namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return
        chosen = ",".join(f"{k}={v}" for k, v in (owner["spec"].get("selector", {}).get("matchLabels") or {}).items())
        items = (await self.cluster.list(volcano.PODS, namespace, label_selector=chosen))["items"] if chosen else []
        uid = owner["metadata"]["uid"]
        members = [pod for pod in (convert(Pod, item) for item in items) if _belongs(pod, uid)]
        newest = max(members, key=lambda pod: pod.metadata.creation_timestamp, default=None)
        for action in podgroup.reconcile_owner(owner, group, newest, self._passed_on(owner)):
            await self._perform(action)

    def _groups_of(self, name: str) -> int:
        return sum(1 for owner, _ in self.groups.values() if (owner or self.settings.default_queue) == name)

    async def _carry_out(self, command: Command) -> str:
        """A Command on a queue or a Job; words for why there is none such."""
        if command.target.kind == JOB_KIND:
            return await self.jobs.command(command)
        name, uid = command.target.name, command.target.uid
        found = self.queues.get(name)
        if found is None or (uid and uid != found.metadata.uid):
            return f"queue {name} does not exist" if found is None else f"queue {name} is another one than the Command is for"
        await self._act_on_queues(queue.command(command.action, name, self.queues, self._groups_of))
        return ""

    async def _act_on_queues(self, actions: list[queue.Action]) -> None:
        for action in actions:
            name = action.name
            match action:
                case queue.SetParent():
                    await self.cluster.patch(volcano.QUEUES, name, {"spec": {"parent": action.parent}})
                case queue.MarkClosedByParent():
                    note = {volcano.CLOSED_BY_PARENT: "true" if action.closed else None}
                    answer = await self.cluster.patch(volcano.QUEUES, name, {"metadata": {"annotations": note}})
                    self.queues[name] = convert(Queue, answer)
                case queue.SetState():
                    body = {"status": {"state": action.state}}
                    answer = await self.cluster.patch(volcano.QUEUES, name, body, subresource="status")
                    self.queues[name] = convert(Queue, answer)
                case queue.Tell():
                    about = {"apiVersion": volcano.SCHEDULING_API, "kind": "Queue", "name": name,
                             "uid": self.queues[name].metadata.uid}  # fmt: skip
                    now = self.clock.now()
                    body = volcano.event_body(about, action.type, action.reason, action.message, CONTROLLER_NAME, now)
                    await self.cluster.create(volcano.EVENTS, body, "default")

    async def _quietly(self, call: Coroutine[Any, Any, Any]) -> None:
        """A refusal that only says that somebody was faster."""
        try:
            await call
        except ApiError as error:
            if error.code not in (404, 409):
                log.warning("%s", error)

    # -- watches ------------------------------------------------------------------------------------------------

    async def _watch(self, name: str, resource: Resource, handle: Callable[[WatchEvent], None], label_selector: str = "") -> None:
        watcher = Watcher(self.cluster, self.clock, log, self._is_synced)
        await watcher.watch(name, resource, partial(watcher.taken, name, handle), label_selector=label_selector)

    async def _watch_unserved(self, row: Row, resource: Resource) -> None:
        watcher = Watcher(self.cluster, self.clock, log, lambda _: None, ABSENT_OR_FORBIDDEN, SELDOM)
        await watcher.watch(row.name, resource, partial(watcher.taken, row.name, self.unserved.on(row)))

    def _is_synced(self, name: str) -> None:
        self._unsynced.discard(name)
        if not self._unsynced:
            self._synced.set()

    def _on_pod(self, event: WatchEvent) -> None:
        pod = decode(Pod, event.raw)
        if event.type == "DELETED" or not podgroup.needs_group(pod, self.settings.scheduler_names):
            self.pods.pop(pod.metadata.uid, None)
            return
        known = self.pods.get(pod.metadata.uid)
        self.pods[pod.metadata.uid] = pod
        if known is None and not pod.spec.node_name:
            self.work.add_later(UNBOUND, pod.metadata.uid, BEHIND, put_off=BEHIND_A_BURST)
        elif pod.spec.node_name and not (known is not None and known.spec.node_name):
            self._moves.append(self.clock.monotonic())
            self.work.add_later("pod", pod.metadata.uid, 0.0, put_off=BEHIND_OTHERS)

    def _many_move(self) -> bool:
        return len(self._moves) == MANY and self.clock.monotonic() - self._moves[0] < MOMENT

    def _on_job_pod(self, event: WatchEvent) -> None:
        if self.jobs.store.on_pod(event):
            self._moves.append(self.clock.monotonic())
        elif self.settings.bare_pod_groups:
            self._on_pod(event)

    def _on_job(self, event: WatchEvent) -> None:
        self.jobs.on_job(event)
        self.makers.on_job(event)

    def _on_owner(self, kind: Resource) -> Callable[[WatchEvent], None]:
        self.scaled[kind.plural] = kind

        def handle(event: WatchEvent) -> None:
            meta = decode(ConfigMap, event.raw).metadata  # only its metadata counts
            said = (meta.generation, tuple(sorted(meta.annotations.items())))
            if event.type == "DELETED":
                self.owners.pop(meta.uid, None)
            elif self.owners.get(meta.uid) != said:  # else only its status changed
                self.owners[meta.uid] = said
                self.work.add(kind.plural, f"{meta.namespace}/{meta.name}")

        return handle

    def _on_group(self, event: WatchEvent) -> None:
        group = decode(PodGroup, event.raw)
        key = f"{group.metadata.namespace}/{group.metadata.name}"
        if self.settings.jobs:
            self.jobs.store.on_group(group, gone=event.type == "DELETED")
        if not self.bearers.heeds("PodGroup", key, group.metadata.uid, gone=event.type == "DELETED"):
            return
        touched = {group.spec.queue or self.settings.default_queue}
        if key in self.groups:
            touched.add(self.groups[key][0] or self.settings.default_queue)
        if event.type == "DELETED":
            self.groups.pop(key, None)
        else:
            before = self.groups.get(key)
            self.groups[key] = (group.spec.queue, group.status.phase)
            if before == self.groups[key]:
                return
        for name in touched & self.queues.keys():
            if self.queues[name].status.state in (volcano.CLOSED, volcano.CLOSING):
                self.work.add("queue", name)

    def _on_queue(self, event: WatchEvent) -> None:
        found = decode(Queue, event.raw)
        name = found.metadata.name
        if not self.bearers.heeds("Queue", name, found.metadata.uid, gone=event.type == "DELETED"):
            return
        if event.type == "DELETED":
            self.queues.pop(name, None)
            return
        self.queues[name] = found
        self.work.add("queue", name)

    # -- pages --------------------------------------------------------------------------------------------------

    async def _metrics_page(self) -> bytes:
        return self.metrics_text().encode()

    def metrics_text(self) -> str:
        groups = ((owner or self.settings.default_queue, phase or volcano.PENDING) for owner, phase in self.groups.values())
        return controller_page(self.queues, groups, self.jobs.completed, self.jobs.failed, self.jobs.latency)


def _belongs(pod: Pod, uid: str) -> bool:
    owner = podgroup.controlling_owner(pod)
    return owner is not None and owner.uid == uid and not pod.metadata.deletion_timestamp
