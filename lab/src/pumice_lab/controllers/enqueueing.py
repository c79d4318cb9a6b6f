"""Reconcile keys: an event in, the keys of the controllers that it concerns out, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pumice.ports.clock import Clock
from pumice.ports.cluster import Cluster, Resource
from pumice.wire import kinds
from pumice.wire.objects import holds, selects
from pumice_lab.controllers import nodes, resource_claims, statefulset, storage
from pumice_lab.controllers.caches import Caches
from pumice_lab.controllers.common import View, controller_of, is_deleting
from pumice_lab.controllers.garbage import Meta, affected_by
from pumice_lab.controllers.namespaces import ROOT_CA

GARBAGE = Resource("", "", "garbage")  # the queue of the garbage collector: keys are uids of any kind
PUBLISHED = Resource("", "", "published")  # the queue of certificates that were changed: keys are namespaces
ORPHANS = Resource("", "", "orphans")  # the queue of nodes that may be gone: keys are their names
DOUBTED = Resource("", "", "doubted")  # the queue of objects that may be gone unseen: keys are uids of any kind
_GATHERED = 0.1  # seconds of pods' changes that are looked at together by whoever selects them


@dataclass(frozen=True, slots=True)
class Followed:
    """The events by which an object is enqueued: whenever it changes (``changed``), for the objects that name it as their
    controller by this kind (``owner``), and for the pods that its ``selector`` takes."""

    changed: bool = True
    owner: str = ""
    selector: Callable[[Mapping[str, Any]], dict[str, Any] | None] | None = None


class Enqueuer:
    """The event handlers of all controllers. ``mark`` and ``later`` take a key that is to be looked at, now or in so many
    seconds."""

    def __init__(self, cluster: Cluster, clock: Clock, followed: Mapping[Resource, Followed], mark: Callable[[Key], None],
                 later: Callable[[Key, float], None]) -> None:  # fmt: skip
        self._clock, self._followed, self._put, self._later = clock, followed, mark, later
        self._owners = {how.owner: kind for kind, how in followed.items() if how.owner}
        self.full = (*(kind for kind, how in followed.items() if how.changed), *FULL)
        self.caches = Caches(
            cluster, self.full, self._changed, lambda uid: mark((GARBAGE, uid)), lambda uid: mark((DOUBTED, uid)))  # fmt: skip
        self.selecting = Selecting(lambda name: (
            pod for v in self.caches.in_namespace(name)
            if v.resource == kinds.PODS and (pod := self.caches.get(kinds.PODS, v.metadata.uid))))  # fmt: skip
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
        how = self._followed.get(resource)
        if how is not None and how.changed and obj is not None:
            self._mark(resource, meta.uid)
        if how is not None and how.selector is not None:
            self.selecting.put((resource, meta.uid), meta.namespace, how.selector(obj) if obj else None)
            self._mark(resource, meta.uid)
        if resource == kinds.PODS:
            self._mark_its_node(obj)
            owners = {owner.uid for owner in meta.owner_references}  # they are told below
            for key in self.selecting.see(meta.uid, meta.namespace, obj):
                if key[1] not in owners:
                    self._later(key, _GATHERED)
        for owner in meta.owner_references:
            kind = self._owners.get(owner.kind)
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
        if resource in CLAIMING and (resource != kinds.PODS or self.caches.full[kinds.RESOURCE_CLAIMS] or obj):
            pods, claims = self.caches.full[kinds.PODS], self.caches.full[kinds.RESOURCE_CLAIMS]
            for kind, uid in resource_claims.concerned(resource, meta, obj, pods.values(), claims):
                self._mark(kind, uid)
        if resource == kinds.CLUSTER_ROLES:
            for uid in self.caches.full[kinds.CLUSTER_ROLES]:
                self._mark(kinds.CLUSTER_ROLES, uid)
        if obj is None and meta.namespace:
            self._mark_namespace(meta.namespace, resource)
        if meta.owner_references or meta.finalizers or obj is None or meta.deletion_timestamp:
            for uid in affected_by(self.caches.graph, meta):
                self._mark(GARBAGE, uid)

    def _mark_namespace(self, name: str, lost: Resource) -> None:
        """Something left the namespace: it may be empty now, or miss what every namespace has."""
        uid = self.caches.names.get((kinds.NAMESPACES, "", name))
        namespace = self.caches.get(kinds.NAMESPACES, uid) if uid else None
        if uid and namespace and (is_deleting(namespace) or lost in (kinds.SERVICE_ACCOUNTS, kinds.CONFIGMAPS)):
            self._mark(kinds.NAMESPACES, uid)

    def _mark_its_node(self, pod: dict[str, Any] | None) -> None:
        """Enqueue the node where it sends pods away, or there is none: whoever makes a pod may name what never was."""
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


# -- Which pods a selector takes, kept as selectors and pods come and go ---------------------------------------------

# Nobody looks through all pods for one that changed.

Key = tuple[Resource, str]  # a kind that selects, and a uid
Labels = Mapping[str, str]
_Place = tuple[str, str, str]  # a namespace, and a label that whoever is taken must have (empty: none is sure)


class Selecting:
    def __init__(self, pods_in: Callable[[str], Iterable[View]]) -> None:
        """``pods_in`` a namespace: asked once for each new selector."""
        self._pods_in = pods_in
        self._selectors: dict[Key, tuple[_Place, View]] = {}
        self._at: dict[_Place, set[Key]] = {}
        self._members: dict[Key, set[str]] = {}
        self._of: dict[str, set[Key]] = {}

    def put(self, key: Key, namespace: str, selector: View | None) -> None:
        """The selector is new or another one; None takes nobody."""
        place = (namespace, *next(iter(sorted(((selector or {}).get("matchLabels") or {}).items())), ("", "")))
        if self._selectors.get(key) == (place, selector):
            return
        self.drop(key)
        if selector is not None:
            self._selectors[key] = (place, selector)
            self._at.setdefault(place, set()).add(key)
            for pod in self._pods_in(namespace):
                if selects(selector, _labels(pod)):
                    self._take(key, pod["metadata"]["uid"])

    def drop(self, key: Key) -> None:
        known = self._selectors.pop(key, None)
        if known is None:
            return
        for uid in self._members.pop(key, ()):
            self._of[uid].discard(key)
        self._at[known[0]].discard(key)
        if not self._at[known[0]]:
            del self._at[known[0]]

    def see(self, uid: str, namespace: str, pod: View | None) -> set[Key]:
        """A pod has changed, or is gone. Whose it was, and is."""
        before = self._of.pop(uid, set())
        for key in before:
            self._members[key].discard(uid)
        if pod is None or not self._selectors:
            return before
        labels = _labels(pod)
        places = [(namespace, "", ""), *((namespace, name, value) for name, value in labels.items())]
        now = {key for place in places for key in self._at.get(place, ()) if selects(self._selectors[key][1], labels)}
        for key in now:
            self._take(key, uid)
        return before | now

    def members(self, key: Key) -> Iterable[str]:
        return sorted(self._members.get(key, ()))

    def _take(self, key: Key, uid: str) -> None:
        self._members.setdefault(key, set()).add(uid)
        self._of.setdefault(uid, set()).add(key)


def _labels(pod: View) -> Labels:
    return pod["metadata"].get("labels") or {}


# -- The kinds that are watched ---------------------------------------------------------------------------------------

NODE_LEASES = "kube-node-lease"
CLAIMING = (kinds.PODS, kinds.RESOURCE_CLAIMS, kinds.RESOURCE_CLAIM_TEMPLATES)
FULL = (kinds.PODS, kinds.NODES, kinds.CRDS, kinds.LEASES, kinds.SERVICES, kinds.ENDPOINT_SLICES, kinds.ENDPOINTS,
        kinds.DISRUPTION_BUDGETS, *CLAIMING[1:], statefulset.REVISIONS, *storage.KINDS)  # fmt: skip
"""Their objects are kept whole, as are those that are reconciled whenever they change."""
_RBAC, _HOOKS = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_CORE = ("configmaps", "secrets", "serviceaccounts", "podtemplates", "limitranges", "events")
COLLECTED = (
    *(Resource("", "v1", plural) for plural in _CORE), Resource(_RBAC, "v1", "roles"), Resource(_RBAC, "v1", "rolebindings"),
    *(Resource(group, "v1", plural, namespaced=False) for group, plural in (
        (kinds.RESOURCE_SLICES.group, kinds.RESOURCE_SLICES.plural),
        (_RBAC, "clusterrolebindings"), (_HOOKS, "mutatingwebhookconfigurations"),
        (_HOOKS, "validatingwebhookconfigurations"))),
)  # fmt: skip
"""Beside those: collected with their owners, and emptied with their namespace."""
