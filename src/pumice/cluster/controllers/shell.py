"""The shell around the controllers: watches, queues of dirty objects, and the writes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice.cluster.controllers import daemonset, deployment, garbage, job, namespaces, nodes, replicaset
from pumice.cluster.controllers.actions import Action, Create, Delete, Finalize, LookAgain, Patch, Tell
from pumice.cluster.controllers.caches import Caches
from pumice.cluster.controllers.common import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    controller_of,
    is_deleting,
)
from pumice.cluster.controllers.garbage import Meta
from pumice.cluster.kubelet.events import EventRecorder
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Resource

log = logging.getLogger("pumice.kube-controllers")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
# Kinds beside the controllers' own whose objects are collected with their owners and emptied with their namespace.
COLLECTED = (
    CRDS, Resource("", "v1", "configmaps"), Resource("", "v1", "secrets"), Resource("", "v1", "services"),
    Resource("", "v1", "serviceaccounts"), Resource("", "v1", "endpoints"), Resource("", "v1", "persistentvolumeclaims"),
    Resource("", "v1", "replicationcontrollers"), Resource("", "v1", "podtemplates"), Resource("", "v1", "limitranges"),
    Resource("", "v1", "resourcequotas"), Resource("", "v1", "events"),
    Resource("apps", "v1", "statefulsets"), Resource("apps", "v1", "controllerrevisions"),
    Resource("batch", "v1", "cronjobs"),
    Resource("discovery.k8s.io", "v1", "endpointslices"), Resource("policy", "v1", "poddisruptionbudgets"),
    Resource("autoscaling", "v2", "horizontalpodautoscalers"), Resource("networking.k8s.io", "v1", "networkpolicies"),
    Resource("networking.k8s.io", "v1", "ingresses"), Resource("rbac.authorization.k8s.io", "v1", "roles"),
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings"),
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False),
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False),
)  # fmt: skip
LEASES = Resource("coordination.k8s.io", "v1", "leases")
NODE_LEASES = "kube-node-lease"
_FULL = (PODS, NODES, NAMESPACES, DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, JOBS, CRDS, LEASES)
_OWNER_KINDS = {"ReplicaSet": REPLICA_SETS, "DaemonSet": DAEMON_SETS, "Job": JOBS, "Deployment": DEPLOYMENTS}
GARBAGE = Resource("", "", "garbage")  # the queue of the garbage collector: keys are uids of any kind
ORPHANS = Resource("", "", "orphans")  # the queue of nodes that may be gone: keys are their names
_WRITES = 16  # at a time
_RETRY = 1.0
Key = tuple[Resource, str]  # which controller, which uid


@dataclass(frozen=True, slots=True)
class ControllersSettings:
    """``ca_certificate``: published to every namespace as ConfigMap kube-root-ca.crt."""

    ca_certificate: Path | None = None


class Controllers:
    def __init__(self, settings: ControllersSettings, cluster: Cluster, clock: Clock, dice: random.Random) -> None:
        self.cluster, self.clock = cluster, clock
        self.root_ca = settings.ca_certificate.read_text() if settings.ca_certificate else ""
        self.caches = Caches(cluster, _FULL, self._changed, lambda uid: self._mark(GARBAGE, uid))
        self.events = EventRecorder(cluster, clock, dice, "kube-controllers")
        self._dirty: dict[Key, None] = {}
        self._wake = asyncio.Event()
        self._timers: dict[Key, tuple[float, asyncio.Task[None]]] = {}
        self._slots = asyncio.Semaphore(_WRITES)
        self._busy: dict[Key, asyncio.Task[None]] = {}
        self._absent: dict[str, bool] = {}
        self._renewed: dict[str, tuple[str, float]] = {}  # node -> (its lease's renewTime, when we saw that)

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None) -> None:
        for resource in (*_FULL, *COLLECTED):
            self.caches.watch(resource)
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._work(ready)), asyncio.create_task(self.events.run())]
        stopping = asyncio.create_task(stop.wait())
        try:
            work: list[asyncio.Future[Any]] = [self.caches.broken, *tasks]
            await asyncio.wait([stopping, *work], return_when=asyncio.FIRST_COMPLETED)
            for part in work:
                if part.done():
                    part.result()
        finally:
            timers = [task for _, task in self._timers.values()]
            everything = [stopping, *tasks, *timers, *self._busy.values()]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            await self.caches.close()

    # -- what has to be looked at -----------------------------------------------------------------------------------

    def _changed(self, resource: Resource, meta: Meta, obj: dict[str, Any] | None) -> None:
        if resource in (DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, JOBS, NAMESPACES) and obj is not None:
            self._mark(resource, meta.uid)
        for owner in meta.owner_references:
            kind = _OWNER_KINDS.get(owner.kind)
            if kind is not None and owner.controller:
                self._mark(kind, owner.uid)
        if resource == NODES:
            for uid in self.caches.full[DAEMON_SETS]:
                self._mark(DAEMON_SETS, uid)
            self._mark(NODES, meta.uid)
            if obj is None:
                self._later((ORPHANS, meta.name), nodes.QUARANTINE)
        if resource == LEASES and meta.namespace == NODE_LEASES and obj is not None:
            self._see_lease(meta.name, obj)
        if resource == CRDS and obj is not None:
            self._watch_custom(obj)
        if obj is None and meta.namespace:
            self._mark_namespace(meta.namespace, resource)
        if meta.owner_references or meta.finalizers or obj is None or meta.deletion_timestamp:
            for uid in self.caches.graph.affected_by(meta):
                self._mark(GARBAGE, uid)

    def _mark_namespace(self, name: str, lost: Resource) -> None:
        """Something left the namespace: it may be empty now, or miss what every namespace has."""
        uid = self.caches.names.get((NAMESPACES, "", name))
        namespace = self.caches.get(NAMESPACES, uid) if uid else None
        if uid and namespace and (is_deleting(namespace) or lost in (namespaces.SERVICE_ACCOUNTS, namespaces.CONFIG_MAPS)):
            self._mark(NAMESPACES, uid)

    def _see_lease(self, node: str, lease: dict[str, Any]) -> None:
        renewed, first = str(lease["spec"].get("renewTime") or ""), node not in self._renewed
        if self._renewed.get(node, ("", 0.0))[0] != renewed:
            self._renewed[node] = (renewed, self.clock.monotonic())
            uid = self.caches.names.get((NODES, "", node))
            if uid and (first or (self.caches.get(NODES, uid) or {}).get("spec", {}).get("taints")):
                self._mark(NODES, uid)

    def _look_at_node(self, node: dict[str, Any], now: float) -> list[Action]:
        """A node that never had a lease has no kubelet to wait for (hollow nodes)."""
        name = node["metadata"]["name"]
        if name not in self._renewed:
            return []
        silent = self.clock.monotonic() - self._renewed[name][1]
        return nodes.reconcile(node, silent, self._pods_on(name) if silent >= nodes.GRACE else [], now)

    def _pods_on(self, node: str) -> list[dict[str, Any]]:
        return [pod for pod in self.caches.every(PODS) if pod["spec"].get("nodeName") == node]

    def _find_orphans(self) -> None:
        """Once, at the start: pods of nodes that vanished while nobody watched."""
        known = {node["metadata"]["name"] for node in self.caches.every(NODES)}
        for name in {pod["spec"].get("nodeName") or "" for pod in self.caches.every(PODS)} - known - {""}:
            self._later((ORPHANS, name), nodes.QUARANTINE)

    def _watch_custom(self, crd: dict[str, Any]) -> None:
        spec = crd["spec"]
        version = next((v["name"] for v in spec["versions"] if v.get("storage")), "")
        established = any(c.get("type") == "Established" and c.get("status") == "True"
                          for c in (crd.get("status") or {}).get("conditions") or ())
        if version and established:
            self.caches.watch(Resource(spec["group"], version, spec["names"]["plural"], spec["scope"] == "Namespaced"))

    def _mark(self, controller: Resource, uid: str) -> None:
        self._dirty[controller, uid] = None
        self._wake.set()

    # -- the work -----------------------------------------------------------------------------------------------------

    async def _work(self, ready: asyncio.Event | None) -> None:
        await self.caches.all_synced.wait()
        self._find_orphans()
        if ready is not None:
            ready.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key in [k for k in self._dirty if k not in self._busy]:
                del self._dirty[key]
                task = asyncio.create_task(self._reconcile(key))
                self._busy[key] = task
                task.add_done_callback(lambda _, key=key: self._done(key))  # type: ignore[misc]
            # What became dirty in the meantime is looked at together, a moment later.
            await self.clock.sleep(0.005)

    def _done(self, key: Key) -> None:
        self._busy.pop(key, None)
        if key in self._dirty:
            self._wake.set()

    async def _reconcile(self, key: Key) -> None:
        controller, uid = key
        try:
            actions = await self._decide(controller, uid)
            again = [a.seconds for a in actions if isinstance(a, LookAgain)]
            if again:
                self._later(key, min(again))
            await asyncio.gather(*(self._carry_out(action) for action in actions))
        except ApiError as error:
            if error.code == 409:
                self._later(key, 0.05)
            elif error.code != 404:
                log.warning("not done kind=%s uid=%s cause=%s", controller.plural, uid, error)
                self._later(key, _RETRY)
        except Exception:  # an object that nobody can act on harms only itself
            log.exception("cannot reconcile kind=%s uid=%s", controller.plural, uid)

    async def _decide(self, controller: Resource, uid: str) -> Sequence[Action]:
        caches, now = self.caches, self.clock.now()
        if controller == GARBAGE:
            return await self._collect(uid)
        if controller == ORPHANS:
            return nodes.orphans(self._pods_on(uid)) if (NODES, "", uid) not in caches.names else []
        obj = caches.get(controller, uid)
        if obj is None:
            return []
        table: dict[Resource, Callable[[], list[Action]]] = {
            REPLICA_SETS: lambda: replicaset.reconcile(obj, caches.owned(PODS, uid), now),
            DEPLOYMENTS: lambda: deployment.reconcile(obj, caches.owned(REPLICA_SETS, uid), now),
            DAEMON_SETS: lambda: daemonset.reconcile(obj, caches.every(NODES), caches.owned(PODS, uid), now),
            JOBS: lambda: job.reconcile(obj, caches.owned(PODS, uid), now),
            NODES: lambda: self._look_at_node(obj, now),
            NAMESPACES: lambda: namespaces.reconcile(obj, caches.in_namespace(obj["metadata"]["name"]), self.root_ca),
        }
        return table[controller]()

    async def _collect(self, uid: str) -> Sequence[Action]:
        vertex = self.caches.graph.vertices.get(uid)
        if vertex is None:
            return []
        for owner in vertex.meta.owner_references:
            if owner.uid not in self.caches.graph.vertices and owner.uid not in self._absent:
                await self._ask_for_owner(owner, vertex.meta.namespace)
        return garbage.collect(vertex, self.caches.graph, self._absent)

    async def _ask_for_owner(self, owner: garbage.Owner, namespace: str) -> None:
        """A cache may be behind: an owner is gone only when the API server says so."""
        resource = self._resource_of(owner)
        if resource is None:
            return  # a kind that we do not know: nothing is concluded
        try:
            found = await self.cluster.get(resource, owner.name, namespace if resource.namespaced else "")
            if found["metadata"]["uid"] == owner.uid:
                return
        except ApiError as error:
            if error.code != 404:
                raise
        self._absent[owner.uid] = True
        while len(self._absent) > 10_000:
            self._absent.pop(next(iter(self._absent)))

    def _resource_of(self, owner: garbage.Owner) -> Resource | None:
        group, _, version = owner.api_version.rpartition("/")
        for crd in self.caches.every(CRDS):
            spec = crd["spec"]
            if spec["names"]["kind"] == owner.kind and spec["group"] == group:
                return Resource(group, version, spec["names"]["plural"], spec["scope"] == "Namespaced")
        plural = owner.kind.lower() + ("es" if owner.kind.endswith("s") else "s")
        for resource in self.caches.watched():
            if resource.group == group and resource.plural in (plural, plural.replace("ys", "ies")):
                return resource
        return None

    async def _carry_out(self, action: Action) -> None:
        async with self._slots:
            match action:
                case Create(resource, obj):
                    made = await self.cluster.create(resource, obj)
                    self.caches.put(resource, made)
                    self._tell_owner(resource, made["metadata"], "SuccessfulCreate", "Created pod")
                case Patch(resource, namespace, name, body, uid, subresource):
                    if uid:
                        body = {**body, "metadata": {**body.get("metadata", {}), "uid": uid}}
                    self.caches.put(resource, await self.cluster.patch(resource, name, body, namespace,
                                                                       subresource=subresource))
                case Delete():
                    await self._delete(action)
                case Finalize(namespace):
                    await self.cluster.update(NAMESPACES, namespace, subresource="finalize")
                case Tell(about, kind, reason, message):
                    self.events.record(about, kind, reason, message)  # type: ignore[arg-type]

    async def _delete(self, action: Delete) -> None:
        try:
            answer = await self.cluster.delete(action.resource, action.name, action.namespace, grace=action.grace,
                                               uid=action.uid, propagation=action.propagation)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return
        if (answer.get("metadata") or {}).get("deletionTimestamp"):
            self.caches.put(action.resource, answer)
            if not action.propagation:  # a controller's decision, not the collector's
                self._tell_owner(action.resource, answer["metadata"], "SuccessfulDelete", "Deleted pod")

    def _tell_owner(self, resource: Resource, meta: dict[str, Any], reason: str, text: str) -> None:
        owner = controller_of({"metadata": meta})
        if resource == PODS and owner is not None:
            about = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": {
                "name": owner["name"], "uid": owner["uid"], "namespace": meta["namespace"]}}
            self.events.record(about, "Normal", reason, f"{text}: {meta['name']}")

    def _later(self, key: Key, seconds: float) -> None:
        due = self.clock.monotonic() + seconds
        before = self._timers.get(key)
        if before is not None:
            if before[0] <= due:
                return
            before[1].cancel()
        self._timers[key] = (due, asyncio.create_task(self._ring(key, seconds)))

    async def _ring(self, key: Key, seconds: float) -> None:
        await self.clock.sleep(seconds)
        self._timers.pop(key, None)
        self._mark(*key)


async def run(settings: ControllersSettings, *, cluster: Cluster, clock: Clock, dice: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:
    """Run all controllers until ``stop``. ``ready``: every cache has seen its kind once."""
    await Controllers(settings, cluster, clock, dice).run(stop, ready)
