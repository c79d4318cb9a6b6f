"""The scheduler's informers: watches in, changes of the scheduler's state out (Volcano pkg/scheduler/cache).

An event changes the state at once and synchronously. What cannot be read is set aside, counted and logged; the watch goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from pumice.apps.service.watches import ABSENT_OR_FORBIDDEN, SELDOM, Handler, Watcher, object_of
from pumice.devices.protocol import ReportSource
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster, Resource, WatchEvent
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Task
from pumice.wire import kinds, kubernetes, volcano
from pumice.wire.objects import ConfigMap, Node, Pod, ResourceQuota, Workload, decode
from pumice.wire.topology import HyperNode
from pumice.wire.volcano import PodGroup, PriorityClass, Queue

log = logging.getLogger("pumice.scheduler")

REPORTS = "device reports"
WORKLOADS = (
    ("services", kinds.SERVICES, "Service"),
    ("replicationcontrollers", kinds.REPLICATION_CONTROLLERS, "ReplicationController"),
    ("replicasets", kinds.REPLICA_SETS, "ReplicaSet"),
    ("statefulsets", kinds.STATEFUL_SETS, "StatefulSet"),
)
STORAGE = (
    ("claims", kinds.PERSISTENT_VOLUME_CLAIMS, "PersistentVolumeClaim"),
    ("volumes", kinds.PERSISTENT_VOLUMES, "PersistentVolume"),
    ("storageclasses", kinds.STORAGE_CLASSES, "StorageClass"),
    ("csinodes", kinds.CSI_NODES, "CSINode"),
    ("csidrivers", kinds.CSI_DRIVERS, "CSIDriver"),
    ("capacities", kinds.CSI_STORAGE_CAPACITIES, "CSIStorageCapacity"),
    ("attachments", kinds.VOLUME_ATTACHMENTS, "VolumeAttachment"),
)


CLAIMS = (
    ("deviceclasses", kinds.DEVICE_CLASSES),
    ("resourceslices", kinds.RESOURCE_SLICES),
    ("resourceclaims", kinds.RESOURCE_CLAIMS),
)
"""Claims of devices: a cluster may be without, or let us see nothing of them."""


@dataclass(slots=True)
class Informers:
    """The watches of one scheduler. ``wake`` is set when there is something for a cycle to do."""

    cluster: Cluster
    clock: Clock
    engine: Engine
    wake: asyncio.Event
    node_selector: tuple[tuple[str, str], ...] = ()
    """Label pairs; when there are any, only nodes that carry one of them take part."""
    unsynced: set[str] = field(default_factory=set)
    """Names of the lists that are not complete yet."""
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    """Every list is complete: decisions may be made."""
    set_aside: int = 0
    """Events whose object could not be read."""
    changes: int = 0
    """Events taken so far."""
    group_gone: Callable[[str, str], None] = lambda namespace, name: None
    """Told of each PodGroup that is gone."""
    seen: Callable[[Task], None] = lambda task: None
    """Told of each pod of ours that appears after the first lists and waits for a node."""

    _watcher: Watcher = field(init=False, repr=False)
    _of_claims: Watcher = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._watcher = Watcher(self.cluster, self.clock, log, self.arrived)
        self._of_claims = Watcher(
            self.cluster, self.clock, log, self.arrived, ABSENT_OR_FORBIDDEN, SELDOM, self._lacks
        )

    def watches(self, *, volumes: bool = True) -> list[Coroutine[Any, Any, None]]:
        """One endless watch per kind, each of which is waited for before the first decision."""
        watched = self.handlers(volumes=volumes)
        self.unsynced.update(name for name, _, _, _ in watched)
        return [self.watch(name, resource, handle, kind=kind) for name, resource, kind, handle in watched]

    def handlers(self, *, volumes: bool = True) -> list[tuple[str, Resource, type[Any] | None, Handler]]:
        """Return what takes the events of each kind, by the name of its list. A slice of its objects is named where the watch
        decodes them."""
        state, on = self.engine.state, self._handler
        groups, bookings, hyper_nodes, quotas = state.groups, state.bookings, state.hyper_nodes, state.quotas
        found: list[tuple[str, Resource, type[Any] | None, Handler]] = [
            ("nodes", kinds.NODES, Node, self._on_node),
            ("namespaces", kinds.NAMESPACES, None, on(
                ConfigMap, lambda o: bookings.put_namespace(o.metadata.name, o.metadata.labels),
                lambda o: bookings.put_namespace(o.metadata.name, None), "Namespace")),
            ("priorityclasses", kinds.PRIORITY_CLASSES, None, on(
                PriorityClass, groups.put_priority_class, lambda o: groups.drop_priority_class(o.metadata.name, o.metadata.uid))),
            ("queues", volcano.QUEUES, None, on(
                Queue, groups.put_queue, lambda o: groups.drop_queue(o.metadata.name, o.metadata.uid))),
            ("resourcequotas", kinds.RESOURCE_QUOTAS, None, on(
                ResourceQuota, quotas.put, lambda o: quotas.drop(o.metadata.namespace, o.metadata.name), "ResourceQuota")),
            ("hypernodes", volcano.HYPER_NODES, None, on(
                HyperNode, hyper_nodes.put, lambda o: hyper_nodes.drop(o.metadata.name), "HyperNode")),
            *(self._workloads(*row) for row in WORKLOADS),
            ("budgets", kinds.DISRUPTION_BUDGETS, None, on(None, state.budgets.put, state.budgets.drop, "PodDisruptionBudget")),
            ("podgroups", volcano.POD_GROUPS, PodGroup, self._on_group),
            ("pods", kinds.PODS, Pod, self._on_pod),
        ]  # fmt: skip
        put, drop = state.volumes.put, state.volumes.drop
        for name, resource, kind in STORAGE if volumes else ():
            found.append((name, resource, None, on(None, partial(put, kind), partial(drop, kind), kind)))
        claims = state.device_claims
        ways = (
            (claims.put_class, claims.drop_class), (claims.put_slice, claims.drop_slice), (claims.put_claim, claims.drop_claim),
        )  # fmt: skip
        found += [(name, kind, None, on(None, *way)) for (name, kind), way in zip(CLAIMS, ways, strict=True)]
        return found

    def _lacks(self, name: str, answer: str) -> None:
        """Pods with claims say that there are none."""
        self.engine.state.device_claims.lacks(name, answer)
        self.wake.set()

    async def watch(
        self, name: str, resource: Resource, handle: Handler, namespace: str = "", field_selector: str = "",
        kind: type[Any] | None = None, label_selector: str = "",
    ) -> None:  # fmt: skip
        """Watch one kind for ever."""
        watcher = self._of_claims if resource.group == kubernetes.DEVICES else self._watcher
        await watcher.watch(
            name, resource, lambda event: self._take(name, handle, event), namespace, field_selector, kind, label_selector
        )

    async def watch_configmap(self, name: str, where: str, take: Callable[[ConfigMap | None], None]) -> None:
        """Hand over the ConfigMap ``where`` (namespace/name) whenever it changes; None when it is gone."""
        namespace, _, wanted = where.partition("/")

        def handle(event: WatchEvent) -> None:
            found = decode(ConfigMap, event.raw)
            if found.metadata.name == wanted and self._heeds(name, wanted, found.metadata.uid, event):
                take(None if event.type == "DELETED" else found)

        await self.watch(name, kinds.CONFIGMAPS, handle, namespace, f"metadata.name={wanted}")

    async def watch_reports(self, source: ReportSource) -> None:
        """Follow the ConfigMaps in which others tell of nodes; what they said is forgotten when nobody follows them any more."""
        bookings = self.engine.state.bookings

        def handle(event: WatchEvent) -> None:
            found = decode(ConfigMap, event.raw)
            where = f"{found.metadata.namespace}/{found.metadata.name}"
            if self._heeds(REPORTS, where, found.metadata.uid, event):
                bookings.put_report(where, None if event.type == "DELETED" else source.read(found))

        try:
            await self.watch(REPORTS, kinds.CONFIGMAPS, handle, source.namespace, label_selector=source.label)
        finally:
            bookings.forget_reports()

    def _take(self, name: str, handle: Handler, event: WatchEvent) -> None:
        self.changes += 1
        if not self._watcher.taken(name, handle, event):
            self.set_aside += 1
        if not self.wake.is_set() and (self.engine.stirred or self.engine.outdated or self.engine.state.groups.unsaid):
            self.wake.set()

    def arrived(self, name: str) -> None:
        """Note that the awaited object of that name has arrived."""
        self.unsynced.discard(name)
        if not self.unsynced:
            self.synced.set()
        self.wake.set()

    # -- kinds --------------------------------------------------------------------------------------------------

    def _on_pod(self, event: WatchEvent) -> None:
        pod = object_of(Pod, event)
        if event.type == "DELETED":
            self.engine.state.pods.drop(pod)
        else:
            state = self.engine.state
            known = len(state.tasks)
            state.pods.put(pod, self.clock.monotonic())
            if len(state.tasks) > known and not pod.spec.node_name and self.synced.is_set():
                self.seen(state.tasks[pod.metadata.uid])

    def _on_node(self, event: WatchEvent) -> None:
        node = object_of(Node, event)
        labels, chosen = node.metadata.labels, self.node_selector
        if event.type == "DELETED" or (chosen and not any(labels.get(key) == value for key, value in chosen)):
            self.engine.state.bookings.drop_node(node.metadata.name, node.metadata.uid)
        else:
            self.engine.state.bookings.put_node(node)

    def _on_group(self, event: WatchEvent) -> None:
        group = object_of(PodGroup, event)
        if event.type == "DELETED":
            self.engine.state.groups.drop_group(group)
            self.group_gone(group.metadata.namespace, group.metadata.name)
        else:
            self.engine.state.groups.put_group(group)

    def _workloads(self, name: str, resource: Resource, kind: str) -> tuple[str, Resource, type[Any], Handler]:
        """Services and controllers, of which the selectors count."""
        put = self.engine.state.classes.workloads.put
        handler = self._handler(
            Workload, lambda o: put(kind, o.metadata.namespace, o.metadata.name, o.spec.selector),
            lambda o: put(kind, o.metadata.namespace, o.metadata.name, None), kind,
        )  # fmt: skip
        return name, resource, Workload, handler

    def _handler(
        self, slice_: type[Any] | None, put: Callable[[Any], None], drop: Callable[[Any], None], heeded: str = ""
    ) -> Handler:
        """Return what hands an object over, read as that slice (None: as it is). ``heeded``: the name for a kind of which a new
        object under a name replaces the old one whole."""

        def handle(event: WatchEvent) -> None:
            gone = event.type == "DELETED"
            found = msgspec.json.decode(event.raw) if slice_ is None else object_of(slice_, event)
            if heeded:
                meta = object_of(ConfigMap, event).metadata if slice_ is None else found.metadata
                if not self._heeds(heeded, f"{meta.namespace}/{meta.name}", meta.uid, event):
                    return
            (drop if gone else put)(found)

        return handle

    def _heeds(self, kind: str, name: str, uid: str, event: WatchEvent) -> bool:
        return self.engine.state.uids.heeds(kind, name, uid, gone=event.type == "DELETED")
