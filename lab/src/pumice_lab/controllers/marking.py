"""Reconcile keys: an event in, the keys of the controllers that it concerns out, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster, Resource
from pumice.wire import kinds
from pumice.wire.conditions import holds
from pumice_lab.controllers import nodes, storage
from pumice_lab.controllers.caches import Caches
from pumice_lab.controllers.common import controller_of, is_deleting
from pumice_lab.controllers.garbage import Meta
from pumice_lab.controllers.namespaces import ROOT_CA
from pumice_lab.controllers.selecting import Key, Selecting
from pumice_lab.controllers.watched import FULL, NODE_LEASES, OWNER_KINDS, RECONCILED, SELECTORS

GARBAGE = Resource("", "", "garbage")  # the queue of the garbage collector: keys are uids of any kind
PUBLISHED = Resource("", "", "published")  # the queue of certificates that were changed: keys are namespaces
ORPHANS = Resource("", "", "orphans")  # the queue of nodes that may be gone: keys are their names
_GATHERED = 0.1  # seconds of pods' changes that are looked at together by whoever selects them


class Marking:
    """``mark`` and ``later`` take a key that is to be looked at, now or in so many seconds."""

    def __init__(self, cluster: Cluster, clock: Clock, mark: Callable[[Key], None], later: Callable[[Key, float], None]) -> None:
        self._clock, self._put, self._later = clock, mark, later
        self.caches = Caches(cluster, FULL, self._changed, lambda uid: self._mark(GARBAGE, uid))
        self.selecting = Selecting(lambda name: (
            pod for v in self.caches.in_namespace(name)
            if v.resource == kinds.PODS and (pod := self.caches.get(kinds.PODS, v.meta.uid))))  # fmt: skip
        self._published: dict[str, str] = {}  # namespace -> at which version its certificate was looked at
        self._renewed: dict[str, tuple[str, float]] = {}  # node -> (its lease's renewTime, when we saw that)

    def silence(self, node: str) -> float | None:
        """Seconds since the node's lease was renewed; None of a node that never had one."""
        return self._clock.monotonic() - self._renewed[node][1] if node in self._renewed else None

    def find_orphans(self) -> None:
        """Once, at the start: pods of nodes that vanished while nobody watched."""
        known = {node["metadata"]["name"] for node in self.caches.every(kinds.NODES)}
        for name in {pod["spec"].get("nodeName") or "" for pod in self.caches.every(kinds.PODS)} - known - {""}:
            self._later((ORPHANS, name), nodes.QUARANTINE)

    def _changed(self, resource: Resource, meta: Meta, obj: dict[str, Any] | None) -> None:
        if resource in RECONCILED and obj is not None:
            self._mark(resource, meta.uid)
        if resource in SELECTORS:
            self.selecting.put((resource, meta.uid), meta.namespace, SELECTORS[resource](obj) if obj else None)
            self._mark(resource, meta.uid)
        if resource == kinds.PODS:
            self._mark_its_node(obj)
            owners = {owner.uid for owner in meta.owner_references}  # they are told below
            for key in self.selecting.see(meta.uid, meta.namespace, obj):
                if key[1] not in owners:
                    self._later(key, _GATHERED)
        for owner in meta.owner_references:
            kind = OWNER_KINDS.get(owner.kind)
            if kind is not None and owner.controller:
                self._mark(kind, owner.uid)
        if resource == kinds.CONFIGMAPS and meta.name == ROOT_CA and self._published.get(meta.namespace) != meta.resource_version:
            self._published[meta.namespace] = meta.resource_version
            self._put((PUBLISHED, meta.namespace))
        if resource == kinds.REPLICA_SETS and obj is not None and controller_of(obj) is None:
            for deployment in self.caches.every(kinds.DEPLOYMENTS):
                if deployment["metadata"]["namespace"] == meta.namespace:
                    self._mark(kinds.DEPLOYMENTS, deployment["metadata"]["uid"])
        if resource == kinds.NODES:
            for uid in self.caches.full[kinds.DAEMON_SETS]:
                self._mark(kinds.DAEMON_SETS, uid)
            self._mark(kinds.NODES, meta.uid)
            if obj is None:
                self._later((ORPHANS, meta.name), nodes.QUARANTINE)
        if resource == kinds.LEASES and meta.namespace == NODE_LEASES and obj is not None:
            self._see_lease(meta.name, obj)
        if resource == kinds.CRDS and obj is not None:
            self._watch_custom(obj)
        if resource in storage.KINDS or (resource == kinds.PODS and obj is None):
            full = self.caches.full
            for kind, uid in storage.concerned(resource, meta, obj, full[storage.CLAIMS], full[storage.VOLUMES]):
                self._mark(kind, uid)
        if resource == kinds.CLUSTER_ROLES:
            for uid in self.caches.full[kinds.CLUSTER_ROLES]:
                self._mark(kinds.CLUSTER_ROLES, uid)
        if obj is None and meta.namespace:
            self._mark_namespace(meta.namespace, resource)
        if meta.owner_references or meta.finalizers or obj is None or meta.deletion_timestamp:
            for uid in self.caches.graph.affected_by(meta):
                self._mark(GARBAGE, uid)

    def _mark_namespace(self, name: str, lost: Resource) -> None:
        """Something left the namespace: it may be empty now, or miss what every namespace has."""
        uid = self.caches.names.get((kinds.NAMESPACES, "", name))
        namespace = self.caches.get(kinds.NAMESPACES, uid) if uid else None
        if uid and namespace and (is_deleting(namespace) or lost in (kinds.SERVICE_ACCOUNTS, kinds.CONFIGMAPS)):
            self._mark(kinds.NAMESPACES, uid)

    def _mark_its_node(self, pod: dict[str, Any] | None) -> None:
        """Where the node sends pods away, or there is none: whoever makes a pod may name what never was."""
        name = pod["spec"].get("nodeName", "") if pod else ""
        uid = self.caches.names.get((kinds.NODES, "", name))
        if name and not uid:
            self._later((ORPHANS, name), nodes.QUARANTINE)
        if uid and nodes.sends_away(self.caches.get(kinds.NODES, uid) or {}):
            self._mark(kinds.NODES, uid)

    def _see_lease(self, node: str, lease: dict[str, Any]) -> None:
        renewed, first = str(lease["spec"].get("renewTime") or ""), node not in self._renewed
        if self._renewed.get(node, ("", 0.0))[0] != renewed:
            self._renewed[node] = (renewed, self._clock.monotonic())
            uid = self.caches.names.get((kinds.NODES, "", node))
            if uid and (first or (self.caches.get(kinds.NODES, uid) or {}).get("spec", {}).get("taints")):
                self._mark(kinds.NODES, uid)

    def _watch_custom(self, crd: dict[str, Any]) -> None:
        spec = crd["spec"]
        version = next((v["name"] for v in spec["versions"] if v.get("storage")), "")
        if version and holds(crd, "Established"):
            self.caches.watch(Resource(spec["group"], version, spec["names"]["plural"], spec["scope"] == "Namespaced"))

    def _mark(self, controller: Resource, uid: str) -> None:
        self._put((controller, uid))
