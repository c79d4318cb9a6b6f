"""The scheduler's informers: watches in, changes of the scheduler's state out (Volcano pkg/scheduler/cache).

An event changes the state at once and synchronously. What cannot be read is set aside, counted and logged; the watch goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from pumice.apps.service.watches import ABSENT_OR_FORBIDDEN, SELDOM, Handler, Watcher, object_of
from pumice.devices.protocol import ReportSource
from pumice.journal.recorder import Doorway
from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster, Resource, WatchEvent
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import KINDS, Drop, DropPod, ForgetReports, Lacking, Put, PutPod
from pumice.scheduler.state.jobs import Task
from pumice.wire import kinds, kubernetes, volcano
from pumice.wire.objects import ConfigMap, Meta, Node, Pod, decode
from pumice.wire.volcano import PodGroup

log = logging.getLogger("pumice.scheduler")

REPORTS = "device reports"
LISTS: tuple[tuple[str, Resource, str, bool], ...] = (
    ("nodes", kinds.NODES, "Node", False),
    ("namespaces", kinds.NAMESPACES, "Namespace", True),
    ("priorityclasses", kinds.PRIORITY_CLASSES, "PriorityClass", False),
    ("queues", volcano.QUEUES, "Queue", False),
    ("resourcequotas", kinds.RESOURCE_QUOTAS, "ResourceQuota", True),
    ("hypernodes", volcano.HYPER_NODES, "HyperNode", True),
    ("services", kinds.SERVICES, "Service", True),
    ("replicationcontrollers", kinds.REPLICATION_CONTROLLERS, "ReplicationController", True),
    ("replicasets", kinds.REPLICA_SETS, "ReplicaSet", True),
    ("statefulsets", kinds.STATEFUL_SETS, "StatefulSet", True),
    ("budgets", kinds.DISRUPTION_BUDGETS, "PodDisruptionBudget", True),
    ("podgroups", volcano.POD_GROUPS, "PodGroup", False),
    ("pods", kinds.PODS, "Pod", False),
)
STORAGE = (
    ("claims", kinds.PERSISTENT_VOLUME_CLAIMS, "PersistentVolumeClaim", True),
    ("volumes", kinds.PERSISTENT_VOLUMES, "PersistentVolume", True),
    ("storageclasses", kinds.STORAGE_CLASSES, "StorageClass", True),
    ("csinodes", kinds.CSI_NODES, "CSINode", True),
    ("csidrivers", kinds.CSI_DRIVERS, "CSIDriver", True),
    ("capacities", kinds.CSI_STORAGE_CAPACITIES, "CSIStorageCapacity", True),
    ("attachments", kinds.VOLUME_ATTACHMENTS, "VolumeAttachment", True),
)
"""Lists by name, and whether a new object under a name replaces the old one whole."""
DECODED = ("Node", "Pod", "PodGroup", "Service", "ReplicationController", "ReplicaSet", "StatefulSet")
"""Kinds of which the watch decodes the slice itself."""


CLAIMS = (
    ("deviceclasses", kinds.DEVICE_CLASSES, "DeviceClass", True),
    ("resourceslices", kinds.RESOURCE_SLICES, "ResourceSlice", True),
    ("resourceclaims", kinds.RESOURCE_CLAIMS, "ResourceClaim", True),
)
"""Claims of devices: a cluster may be without, or let us see nothing of them."""


class NodeSeen(Protocol):
    def __call__(self, meta: Meta, *, gone: bool) -> None: ...


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
    pod_over: Callable[[str], None] = lambda uid: None
    """Told of the UID of each pod that has ended or is gone."""
    node_seen: NodeSeen = lambda meta, *, gone: None
    """Told of each node that the watch shows."""

    enter: Doorway = field(default=None, repr=False)  # type: ignore[assignment]
    """The way of all that is told to the engine."""
    _watcher: Watcher = field(init=False, repr=False)
    _of_claims: Watcher = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.enter = self.enter or Doorway(self.engine)
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
        own: dict[str, Handler] = {"Node": self._on_node, "PodGroup": self._on_group, "Pod": self._on_pod}
        return [
            (name, resource, (Pod if kind == "Pod" else KINDS[kind].slice_) if kind in DECODED else None,
             own.get(kind) or self._handler(kind, heeded))
            for name, resource, kind, heeded in (*LISTS, *(STORAGE if volumes else ()), *CLAIMS)
        ]  # fmt: skip

    def _lacks(self, name: str, answer: str) -> None:
        """Pods with claims say that there are none."""
        if self.engine.state.device_claims.lacking.get(name, "") != answer:
            self.enter(Lacking(name, answer))
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

        def handle(event: WatchEvent) -> None:
            found = decode(ConfigMap, event.raw)
            where = f"{found.metadata.namespace}/{found.metadata.name}"
            if self._heeds(REPORTS, where, found.metadata.uid, event):
                self.enter((Drop if event.type == "DELETED" else Put)("ConfigMap", found))

        try:
            await self.watch(REPORTS, kinds.CONFIGMAPS, handle, source.namespace, label_selector=source.label)
        finally:
            self.enter(ForgetReports())

    def _take(self, name: str, handle: Handler, event: WatchEvent) -> None:
        self.changes += 1
        if not self._watcher.taken(name, handle, event):
            self.set_aside += 1
        if not self.wake.is_set() and (self.engine.needs_cycle or self.engine.outdated or self.engine.state.groups.unsaid):
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
            self.enter(DropPod(pod))
        else:
            state = self.engine.state
            known = len(state.tasks)
            self.enter(PutPod(pod, self.clock.monotonic()))
            if len(state.tasks) > known and not pod.spec.node_name and self.synced.is_set():
                self.seen(state.tasks[pod.metadata.uid])
        if event.type == "DELETED" or pod.status.phase in ("Succeeded", "Failed"):
            self.pod_over(pod.metadata.uid)

    def _on_node(self, event: WatchEvent) -> None:
        node = object_of(Node, event)
        labels, chosen = node.metadata.labels, self.node_selector
        self.node_seen(node.metadata, gone=event.type == "DELETED")
        gone = event.type == "DELETED" or (chosen and not any(labels.get(key) == value for key, value in chosen))
        self.enter((Drop if gone else Put)("Node", node))

    def _on_group(self, event: WatchEvent) -> None:
        group = object_of(PodGroup, event)
        gone = event.type == "DELETED"
        self.enter((Drop if gone else Put)("PodGroup", group))
        if gone:
            self.group_gone(group.metadata.namespace, group.metadata.name)

    def _handler(self, kind: str, heeded: bool) -> Handler:
        """Return what hands an object of that kind over. ``heeded``: a new object under a name replaces the old one whole."""
        slice_ = KINDS[kind].slice_

        def handle(event: WatchEvent) -> None:
            found = msgspec.json.decode(event.raw) if slice_ is None else object_of(slice_, event)
            if heeded:
                meta = object_of(ConfigMap, event).metadata if slice_ is None else found.metadata
                if not self._heeds(kind, f"{meta.namespace}/{meta.name}", meta.uid, event):
                    return
            self.enter((Drop if event.type == "DELETED" else Put)(kind, found))

        return handle

    def _heeds(self, kind: str, name: str, uid: str, event: WatchEvent) -> bool:
        return self.engine.state.uids.heeds(kind, name, uid, gone=event.type == "DELETED")
