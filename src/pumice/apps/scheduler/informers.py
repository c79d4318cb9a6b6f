"""The scheduler's informers: watches in, changes of the scheduler's state out (Volcano pkg/scheduler/cache).

An event changes the state at once and synchronously. What cannot be read is set aside, counted and logged; the watch goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumice.apps.service.watches import Handler, Watcher, object_of
from pumice.devices.protocol import ReportSource
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster, Json, Resource, WatchEvent
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.jobs import Task
from pumice.wire import kinds, volcano
from pumice.wire.objects import ConfigMap, Node, Pod, ResourceQuota, Workload, decode
from pumice.wire.topology import HyperNode
from pumice.wire.volcano import PodGroup, PriorityClass, Queue

log = logging.getLogger("pumice.scheduler")

REPORTS = "device reports"


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

    def __post_init__(self) -> None:
        self._watcher = Watcher(self.cluster, self.clock, log, self.arrived)

    def watches(self, *, volumes: bool = True) -> list[Coroutine[Any, Any, None]]:
        """One endless watch per kind, each of which is waited for before the first decision."""
        state = self.engine.state
        watched: list[tuple[str, Resource, Handler, type[Any] | None]] = [
            ("nodes", kinds.NODES, self._on_node, Node),
            ("namespaces", kinds.NAMESPACES, self._on_namespace, None),
            ("priorityclasses", kinds.PRIORITY_CLASSES, self._on_priority_class, None),
            ("queues", volcano.QUEUES, self._on_queue, None),
            ("resourcequotas", kinds.RESOURCE_QUOTAS, self._on_quota, None),
            ("hypernodes", volcano.HYPER_NODES, self._on_hyper_node, None),
            ("services", kinds.SERVICES, self._on_workload("Service"), Workload),
            ("replicationcontrollers", kinds.REPLICATION_CONTROLLERS, self._on_workload("ReplicationController"), Workload),
            ("replicasets", kinds.REPLICA_SETS, self._on_workload("ReplicaSet"), Workload),
            ("statefulsets", kinds.STATEFUL_SETS, self._on_workload("StatefulSet"), Workload),
            ("budgets", kinds.DISRUPTION_BUDGETS, self._on_budget, None),
            ("podgroups", volcano.POD_GROUPS, self._on_group, PodGroup),
            ("pods", kinds.PODS, self._on_pod, Pod),
        ]
        if volumes:
            kept = state.volumes
            storage = [
                ("claims", kinds.PERSISTENT_VOLUME_CLAIMS, kept.put_claim, kept.drop_claim),
                ("volumes", kinds.PERSISTENT_VOLUMES, kept.put_volume, kept.drop_volume),
                ("storageclasses", kinds.STORAGE_CLASSES, kept.put_class, kept.drop_class),
                ("csinodes", kinds.CSI_NODES, kept.put_csi_node, kept.drop_csi_node),
                ("csidrivers", kinds.CSI_DRIVERS, kept.put_driver, kept.drop_driver),
                ("capacities", kinds.CSI_STORAGE_CAPACITIES, kept.put_capacity, kept.drop_capacity),
                ("attachments", kinds.VOLUME_ATTACHMENTS, kept.put_attachment, kept.drop_attachment),
            ]
            watched += [(name, resource, self._on_json(name, put, drop), None) for name, resource, put, drop in storage]
        self.unsynced.update(name for name, _, _, _ in watched)
        return [self.watch(name, resource, handle, kind=kind) for name, resource, handle, kind in watched]

    async def watch(
        self, name: str, resource: Resource, handle: Handler, namespace: str = "", field_selector: str = "",
        kind: type[Any] | None = None, label_selector: str = "",
    ) -> None:  # fmt: skip
        """Watch one kind for ever."""
        await self._watcher.watch(
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

    def _on_quota(self, event: WatchEvent) -> None:
        quota = object_of(ResourceQuota, event)
        if event.type == "DELETED":
            self.engine.state.quotas.drop(quota.metadata.namespace, quota.metadata.name)
        else:
            self.engine.state.quotas.put(quota)

    def _on_group(self, event: WatchEvent) -> None:
        group = object_of(PodGroup, event)
        if event.type == "DELETED":
            self.engine.state.groups.drop_group(group)
            self.group_gone(group.metadata.namespace, group.metadata.name)
        else:
            self.engine.state.groups.put_group(group)

    def _on_queue(self, event: WatchEvent) -> None:
        queue = decode(Queue, event.raw)
        if event.type == "DELETED":
            self.engine.state.groups.drop_queue(queue.metadata.name, queue.metadata.uid)
        else:
            self.engine.state.groups.put_queue(queue)

    def _on_hyper_node(self, event: WatchEvent) -> None:
        found = decode(HyperNode, event.raw)
        name = found.metadata.name
        if self._heeds("HyperNode", name, found.metadata.uid, event):
            if event.type == "DELETED":
                self.engine.state.hyper_nodes.drop(name)
            else:
                self.engine.state.hyper_nodes.put(found)

    def _on_namespace(self, event: WatchEvent) -> None:
        meta = decode(ConfigMap, event.raw).metadata  # only its metadata counts
        if self._heeds("Namespace", meta.name, meta.uid, event):
            self.engine.state.bookings.put_namespace(meta.name, None if event.type == "DELETED" else meta.labels)

    def _on_priority_class(self, event: WatchEvent) -> None:
        cls = decode(PriorityClass, event.raw)
        if event.type == "DELETED":
            self.engine.state.groups.drop_priority_class(cls.metadata.name, cls.metadata.uid)
        else:
            self.engine.state.groups.put_priority_class(cls)

    def _on_workload(self, kind: str) -> Handler:
        workloads = self.engine.state.classes.workloads

        def handle(event: WatchEvent) -> None:
            found = object_of(Workload, event)
            meta = found.metadata
            if self._heeds(kind, f"{meta.namespace}/{meta.name}", meta.uid, event):
                workloads.put(kind, meta.namespace, meta.name, None if event.type == "DELETED" else found.spec.selector)

        return handle

    def _on_budget(self, event: WatchEvent) -> None:
        budget, budgets = msgspec.json.decode(event.raw), self.engine.state.budgets
        meta = budget.get("metadata") or {}
        name = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        if self._heeds("PodDisruptionBudget", name, meta.get("uid", ""), event):
            (budgets.drop if event.type == "DELETED" else budgets.put)(budget)

    def _on_json(self, kind: str, put: Callable[[Json], None], drop: Callable[[Json], None]) -> Handler:
        def handle(event: WatchEvent) -> None:
            obj = msgspec.json.decode(event.raw)
            meta = obj.get("metadata") or {}
            if self._heeds(kind, f"{meta.get('namespace', '')}/{meta.get('name', '')}", meta.get("uid", ""), event):
                (drop if event.type == "DELETED" else put)(obj)
                self.engine.state.volumes.changed()

        return handle

    def _heeds(self, kind: str, name: str, uid: str, event: WatchEvent) -> bool:
        return self.engine.state.uids.heeds(kind, name, uid, gone=event.type == "DELETED")
