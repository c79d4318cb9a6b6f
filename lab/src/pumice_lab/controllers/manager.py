"""The manager of the controllers: keys that were enqueued are reconciled, and what is decided then is written."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from pumice.effects.backoff import Backoff
from pumice.effects.performer import Performer
from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Create, Delete, Event, Patch, Requeue, Severity
from pumice.effects.work_queue import WorkQueue
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.wire import kinds
from pumice_lab.apiserver.fairness import Seats
from pumice_lab.controllers import (
    cronjob,
    daemonset,
    deployment,
    disruption,
    endpoints,
    garbage,
    job,
    namespaces,
    nodes,
    replicaset,
    resource_claims,
    single_steps,
    statefulset,
    storage,
)
from pumice_lab.controllers.common import Action, Finalize, InOrder, RemoveFolder, controller_of, selector_of
from pumice_lab.controllers.enqueueing import COLLECTED, DOUBTED, GARBAGE, ORPHANS, PUBLISHED, Enqueuer, Followed, Key

log = logging.getLogger("pumice.kube-controllers")
_WRITES, _WORKERS = 16, 64  # at a time
_RESTS = 7.0
"""A write is followed by so many times its time without one: where all 16 have much to write, two are under way at a time."""
_TOGETHER = 0.005
"""Seconds in which what changes of one object is looked at together."""
_AGAIN = Backoff(1.0, 30.0)


@dataclass(frozen=True, slots=True)
class ControllersSettings:
    """The settings of the controllers. ``ca_certificate``: published to every namespace as ConfigMap kube-root-ca.crt.
    ``roots``: for each node, where lies what its pods make at paths that the machine does not have."""

    ca_certificate: Path | None = None
    roots: tuple[Path, ...] = ()


class Controllers:
    def __init__(self, settings: ControllersSettings, cluster: Cluster, clock: Clock, rng: random.Random) -> None:
        self.cluster, self.clock, self.roots = cluster, clock, settings.roots
        self.root_ca = settings.ca_certificate.read_text() if settings.ca_certificate else ""
        self.enqueuer = Enqueuer(cluster, clock, FOLLOWED, lambda key: self.work.add(*key), self._later)
        self.caches = self.enqueuer.caches
        self.events = EventRecorder(cluster, clock, "kube-controllers", log, counts=True)
        self.performer = Performer(cluster, self.events)
        self.work = WorkQueue(clock, rng, self._reconcile, rest=_TOGETHER)
        self._due: dict[Key, float] = {}
        """When that is looked at which is looked at later."""
        self._seats = Seats(_WRITES, _RESTS)
        self._absent: dict[str, bool] = {}
        self._refused: dict[Key, tuple[str, int]] = {}
        """Why the last pods of a controller were not made, and how often in a row."""

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None) -> None:
        for resource in (*self.enqueuer.full, *COLLECTED):
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
            everything = [stopping, *tasks]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            await self.caches.close()

    async def _work(self, ready: asyncio.Event | None) -> None:
        await self.caches.all_synced.wait()
        self.enqueuer.find_orphans()
        if ready is not None:
            ready.set()
        await self.work.run(_WORKERS)

    async def _reconcile(self, controller: Resource, uid: str) -> None:
        key = (controller, uid)
        if self._due.get(key, inf) <= self.clock.monotonic():
            del self._due[key]
        try:
            actions = await self._decide(controller, uid)
            again = [a.seconds for a in actions if isinstance(a, Requeue)]
            if again:
                self._later(key, min(again))
            pods = [action for action in actions if isinstance(action, Create) and action.resource == kinds.PODS]
            others = [action for action in actions if not (isinstance(action, Create) and action.resource == kinds.PODS)]
            if not others:
                await self._make_pods(key, pods)
            else:
                await asyncio.gather(self._make_pods(key, pods), *(self._carry_out(action) for action in others))
        except ApiError as error:
            if error.code == 409:
                self._later(key, 0.05)
            elif error.code != 404:
                log.warning("not done kind=%s uid=%s cause=%s", controller.plural, uid, error)
                self._later(key, _AGAIN.pause(max(0, self._refused.get(key, ("", 0))[1] - 1)))
        except Exception:  # an object that nobody can act on harms only itself
            log.exception("cannot reconcile kind=%s uid=%s", controller.plural, uid)

    async def _decide(self, controller: Resource, uid: str) -> Sequence[Action]:
        caches, now = self.caches, self.clock.now()
        if controller == GARBAGE:
            return await self._collect(uid)
        if controller == DOUBTED:
            return await self._look_for(uid)
        if controller == ORPHANS:
            return nodes.orphans(self.caches.pods_on(uid)) if (kinds.NODES, "", uid) not in caches.names else []
        if controller == PUBLISHED:
            return namespaces.published(uid, self.root_ca)
        obj = caches.get(controller, uid)
        if obj is None:
            return []
        if controller == storage.VOLUMES:
            return storage.reconcile_volume(obj, await self._claim_of(obj), now)
        if controller == kinds.RESOURCE_CLAIMS:
            return resource_claims.reconcile_claim(obj, await self._pods_of(obj))
        return RECONCILERS[controller][0](self, obj, uid, now)

    def _look_at_node(self, node: dict[str, Any], now: float) -> list[Action]:
        """A node that never had a lease has no kubelet to wait for (hollow nodes)."""
        name = node["metadata"]["name"]
        silent = self.enqueuer.silence(name)
        if not nodes.sends_away(node) and (silent is None or silent < nodes.GRACE):
            return nodes.reconcile(node, silent, [], now) if silent is not None else []
        pods = self.caches.pods_on(name)
        actions = nodes.reconcile(node, silent, pods, now) if silent is not None else []
        changed = any(isinstance(action, Patch) and action.resource == kinds.NODES for action in actions)
        return actions if changed else [*actions, *nodes.evict(node, pods, now)]

    def _selected(self, resource: Resource, uid: str) -> list[dict[str, Any]]:
        members = self.enqueuer.selecting.members((resource, uid))
        return [pod for member in members if (pod := self.caches.get(kinds.PODS, member))]

    def _claimed(self, resource: Resource, uid: str) -> list[dict[str, Any]]:
        """Its pods, and others that it selects."""
        found = [*self.caches.owned(kinds.PODS, uid), *self._selected(resource, uid)]
        return list({pod["metadata"]["uid"]: pod for pod in found}.values())

    def _sets_for(self, deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Its ReplicaSets, and those of its namespace that nobody owns."""
        meta = deployment["metadata"]
        free = [rs for rs in self.caches.every(kinds.REPLICA_SETS)
                if rs["metadata"]["namespace"] == meta["namespace"] and controller_of(rs) is None]  # fmt: skip
        return [*self.caches.owned(kinds.REPLICA_SETS, meta["uid"]), *free]

    def _claims_in(self, namespace: str) -> dict[str, dict[str, Any]]:
        every = self.caches.every(storage.CLAIMS)
        return {claim["metadata"]["name"]: claim for claim in every if claim["metadata"]["namespace"] == namespace}

    def _scale(self, pod: Mapping[str, Any]) -> tuple[str, int] | None:
        """Return how many pods the Deployment wants that made this one, or the ReplicaSet or -Controller where none did."""
        found, owner = None, controller_of(pod)
        for kind in (kinds.REPLICA_SETS, kinds.REPLICATION_CONTROLLERS, kinds.STATEFUL_SETS, kinds.DEPLOYMENTS):
            above = self.caches.get(kind, owner["uid"]) if owner else None
            if above is not None:
                found, owner = (above["metadata"]["uid"], int(above["spec"].get("replicas", 1))), controller_of(above)
        return found

    async def _collect(self, uid: str) -> Sequence[Action]:
        vertex = self.caches.graph.objects.get(uid)
        if vertex is None:
            return []
        for owner in vertex.metadata.owner_references:
            if owner.uid not in self.caches.graph.objects and owner.uid not in self._absent:
                await self._ask_for_owner(owner, vertex.metadata.namespace)
        return garbage.collect(vertex, self.caches.graph, self._absent)

    async def _look_for(self, uid: str) -> Sequence[Action]:
        """Forget an object that the API server has no more."""
        vertex = self.caches.graph.objects.get(uid)
        if vertex is not None:
            meta = vertex.metadata
            if await self._seen(vertex.resource, meta.name, meta.namespace, uid) is None:
                self.caches.drop(vertex.resource, meta)
        return []

    async def _claim_of(self, volume: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The claim that the volume is bound to. What has lost its claim may be deleted, with what is in it."""
        reference = volume["spec"].get("claimRef") or {}
        uid, name = reference.get("uid"), reference.get("name")
        if not uid or not name:
            return None
        known = self.caches.get(storage.CLAIMS, uid)
        return known or await self._seen(storage.CLAIMS, name, reference.get("namespace", ""), uid)

    async def _pods_of(self, claim: Mapping[str, Any]) -> dict[str, Mapping[str, Any] | None]:
        """The pods that a ResourceClaim names as its consumers or its owner, by their uids."""
        meta = claim["metadata"]
        named = {one["uid"]: one["name"] for one in (claim.get("status") or {}).get("reservedFor") or ()
                 if not one.get("apiGroup") and one["resource"] == "pods"}  # fmt: skip
        named |= {owner["uid"]: owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "Pod"}
        return {uid: self.caches.get(kinds.PODS, uid) or await self._seen(kinds.PODS, name, meta["namespace"], uid)
                for uid, name in named.items()}  # fmt: skip

    async def _seen(self, resource: Resource, name: str, namespace: str, uid: str) -> Mapping[str, Any] | None:
        """That very object, by the API server: a cache may be behind, and who is not there is gone only when that says so."""
        try:
            found = await self.cluster.get(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        return found if found["metadata"]["uid"] == uid else None

    async def _ask_for_owner(self, owner: garbage.Owner, namespace: str) -> None:
        resource = self._resource_of(owner)
        if resource is None:
            return  # a kind that we do not know: nothing is concluded
        if await self._seen(resource, owner.name, namespace if resource.namespaced else "", owner.uid) is not None:
            return
        self._absent[owner.uid] = True
        while len(self._absent) > 10_000:
            self._absent.pop(next(iter(self._absent)))

    def _resource_of(self, owner: garbage.Owner) -> Resource | None:
        group, _, version = owner.api_version.rpartition("/")
        for crd in self.caches.every(kinds.CRDS):
            spec = crd["spec"]
            if spec["names"]["kind"] == owner.kind and spec["group"] == group:
                return Resource(group, version, spec["names"]["plural"], spec["scope"] == "Namespaced")
        plural = owner.kind.lower() + ("es" if owner.kind.endswith("s") else "s")
        for resource in self.caches.watched():
            if resource.group == group and resource.plural in (plural, plural.replace("ys", "ies")):
                return resource
        return None

    async def _make_pods(self, key: Key, made: Sequence[Create]) -> None:
        """One, then two, four, eight: where the first is refused (a quota, a policy) the rest is not tried, as by Kubernetes."""
        size = 1
        while made:
            batch, made = made[:size], made[size:]
            try:
                await asyncio.gather(*(self._carry_out(action) for action in batch))
            except ApiError as error:
                if error.code not in (404, 409):
                    self._refused[key] = (error.message, self._refused.get(key, ("", 0))[1] + 1)
                    self._tell_refusal(batch[0].obj["metadata"], error)
                raise
            size *= 2
        self._refused.pop(key, None)

    def _tell_refusal(self, meta: dict[str, Any], error: ApiError) -> None:
        if (owner := controller_of({"metadata": meta})) is not None:
            self.events.record(_on_owner(owner, meta, "Warning", "FailedCreate", f"Error creating: {error.message}"))

    async def _carry_out(self, action: Action) -> None:
        if isinstance(action, InOrder):
            for step in action.steps:
                await self._carry_out(step)
            return
        async with self._seats.turn(_namespace(action)):
            match action:
                case Create(resource):
                    made = await self.performer.create(action)
                    self.caches.put(resource, made)
                    self._tell_owner(resource, made["metadata"], "SuccessfulCreate", "Created pod")
                case Patch(resource):
                    self.caches.put(resource, await self.performer.patch(action))
                case Delete():
                    await self._delete(action)
                case Finalize(namespace):
                    await self.cluster.update(kinds.NAMESPACES, namespace, subresource="finalize")
                case RemoveFolder(path):
                    await asyncio.to_thread(_remove, self.roots, path)
                case Event():
                    self.events.record(action)

    async def _delete(self, action: Delete) -> None:
        answer = await self.performer.delete(action)
        if ((answer or {}).get("metadata") or {}).get("deletionTimestamp"):
            assert answer is not None
            self.caches.put(action.resource, answer)
            if not action.propagation:  # a controller's decision, not the collector's
                self._tell_owner(action.resource, answer["metadata"], "SuccessfulDelete", "Deleted pod")

    def _tell_owner(self, resource: Resource, meta: dict[str, Any], reason: str, text: str) -> None:
        owner = controller_of({"metadata": meta})
        if resource == kinds.PODS and owner is not None:
            self.events.record(_on_owner(owner, meta, "Normal", reason, f"{text}: {meta['name']}"))

    def _later(self, key: Key, seconds: float) -> None:
        due = self.clock.monotonic() + seconds
        if due < self._due.get(key, inf):
            self._due[key] = due
            self.work.add_later(*key, seconds)


Reconcile = Callable[[Controllers, dict[str, Any], str, float], list[Action]]


def _replicas_of(kind: Resource) -> Reconcile:
    return lambda c, obj, uid, now: replicaset.reconcile(
        obj, c._claimed(kind, uid), now, kind, c._refused.get((kind, uid), ("", 0))[0])  # fmt: skip


def _unserved(kind: Resource) -> Reconcile:
    return lambda c, obj, uid, now: single_steps.reconcile_unserved(kind, obj)


RECONCILERS: Mapping[Resource, tuple[Reconcile, Followed]] = {
    kinds.DEPLOYMENTS: (lambda c, obj, uid, now: deployment.reconcile(obj, c._sets_for(obj), now), Followed(owner="Deployment")),
    kinds.REPLICA_SETS: (_replicas_of(kinds.REPLICA_SETS), Followed(owner="ReplicaSet", selector=replicaset.selector_of)),
    kinds.REPLICATION_CONTROLLERS: (_replicas_of(kinds.REPLICATION_CONTROLLERS),
                                    Followed(owner="ReplicationController", selector=replicaset.selector_of)),
    kinds.DAEMON_SETS: (lambda c, obj, uid, now: daemonset.reconcile(
        obj, c.caches.every(kinds.NODES), c.caches.owned(kinds.PODS, uid), now), Followed(owner="DaemonSet")),
    kinds.JOBS: (lambda c, obj, uid, now: job.reconcile(obj, c._claimed(kinds.JOBS, uid), now),
                 Followed(owner="Job", selector=selector_of)),
    kinds.CRON_JOBS: (lambda c, obj, uid, now: cronjob.reconcile(obj, c.caches.owned(kinds.JOBS, uid), now),
                      Followed(owner="CronJob")),
    kinds.STATEFUL_SETS: (
        lambda c, obj, uid, now: statefulset.reconcile(
            obj, c._claimed(kinds.STATEFUL_SETS, uid), c.caches.owned(statefulset.REVISIONS, uid),
            c._claims_in(obj["metadata"]["namespace"]), now), Followed(owner="StatefulSet", selector=selector_of)),
    kinds.NAMESPACES: (lambda c, obj, uid, now: namespaces.reconcile(
        obj, c.caches.in_namespace(obj["metadata"]["name"]), c.root_ca, now), Followed()),
    kinds.CLUSTER_ROLES: (
        lambda c, obj, uid, now: single_steps.reconcile_role(obj, c.caches.every(kinds.CLUSTER_ROLES)), Followed()),
    single_steps.POLICIES: (lambda c, obj, uid, now: single_steps.reconcile_policy(obj), Followed()),
    kinds.RESOURCE_QUOTAS: (lambda c, obj, uid, now: single_steps.reconcile_quota(obj), Followed()),
    **{kind: (_unserved(kind), Followed()) for kind in single_steps.UNSERVED},
    kinds.SERVICES: (
        lambda c, obj, uid, now: endpoints.reconcile(
            obj, c._selected(kinds.SERVICES, uid), c.caches.owned(kinds.ENDPOINT_SLICES, uid),
            c.caches.named(kinds.ENDPOINTS, obj["metadata"])),
        Followed(changed=False, owner="Service", selector=endpoints.selector_of)),
    kinds.DISRUPTION_BUDGETS: (
        lambda c, obj, uid, now: disruption.reconcile(obj, c._selected(kinds.DISRUPTION_BUDGETS, uid), c._scale, now),
        Followed(changed=False, selector=lambda budget: (budget.get("spec") or {}).get("selector"))),
    kinds.PODS: (
        lambda c, obj, uid, now: resource_claims.reconcile_pod(
            obj, lambda kind, namespace, name: c.caches.named(kind, {"namespace": namespace, "name": name}),
            c.caches.owned(kinds.RESOURCE_CLAIMS, uid)), Followed(changed=False)),
    storage.CLAIMS: (
        lambda c, obj, uid, now: storage.reconcile_claim(
            obj, c.caches.every(storage.VOLUMES), c.caches.every(storage.CLASSES),
            (pod for pod in c.caches.every(kinds.PODS) if pod["metadata"]["namespace"] == obj["metadata"]["namespace"]), now),
        Followed(changed=False)),
    kinds.NODES: (lambda c, obj, uid, now: c._look_at_node(obj, now), Followed(changed=False)),
}  # fmt: skip
FOLLOWED: Mapping[Resource, Followed] = {kind: how for kind, (_, how) in RECONCILERS.items()}
"""By kind, the events after which an object is looked at."""


def _namespace(action: Action) -> str:
    """Namespaces come one after the other."""
    match action:
        case Create(_, obj):
            return str(obj["metadata"].get("namespace", ""))
        case Patch() | Delete() | Event():
            return action.namespace
    return ""


def _on_owner(owner: Mapping[str, Any], meta: Mapping[str, Any], type_: Severity, reason: str, message: str) -> Event:
    return Event(owner["kind"], owner["apiVersion"], meta["namespace"], owner["name"], owner["uid"], type_, reason, message)


def _remove(roots: Sequence[Path], path: str) -> None:
    """Below each of the roots; what the machine itself has at that path stays. Pods write there, so no link is followed, and each
    folder is opened in the one before it: what is looked at is what is removed."""
    *above, last = (part for part in path.split("/") if part)
    for root in roots:
        with suppress(OSError), ExitStack() as opened:
            folder = None
            for part in (str(root), *above):
                folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                opened.callback(os.close, folder)
            shutil.rmtree(last, ignore_errors=True, dir_fd=folder)


async def run(settings: ControllersSettings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:
    """Run all controllers until ``stop``. ``ready``: every cache has seen its kind once."""
    await Controllers(settings, cluster, clock, rng).run(stop, ready)
