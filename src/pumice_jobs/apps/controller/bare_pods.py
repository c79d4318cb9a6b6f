"""PodGroups of pods that name none, and of the ReplicaSets and StatefulSets that own them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from pumice.apps.service.watches import object_of
from pumice.effects.performer import Performer
from pumice.effects.vocabulary import Create
from pumice.effects.work_queue import WorkQueue
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, Resource, WatchEvent
from pumice.wire import kinds, volcano
from pumice.wire.objects import ConfigMap, Pod, convert, decode
from pumice.wire.volcano import group_name_for
from pumice_jobs.apps.controller.job_effects import lasting
from pumice_jobs.controllers import podgroup

log = logging.getLogger("pumice.controller")

BOUND = "pod"
UNBOUND = "unbound pod"
"""The kind of a pod that still waits for its node; once it has one, its group comes behind the Bindings of others."""
BEHIND = 0.2
"""Seconds for which a bare pod's PodGroup leaves the API server to the Binding: the scheduler does not need the group."""
BEHIND_A_BURST = 1.0
"""Seconds longer for which it does amid a burst, where its pod waits for its node, and for its turn."""
BEHIND_OTHERS = 10.0
"""Seconds longer for which the PodGroup of a pod that is bound leaves it to the Bindings of others, at most, while many come."""
REFUSED = 300.0
"""Seconds after which a PodGroup that was refused is asked for again."""


@dataclass(slots=True)
class BarePods:
    """The pods without a Job, and their PodGroups. ``groups`` are the PodGroups that are there, by key: (queue, phase)."""

    cluster: Cluster
    clock: Clock
    performer: Performer
    work: WorkQueue
    groups: dict[str, tuple[str, str]]
    moves: Moves
    scheduler_names: Collection[str]
    inherit_owner_annotations: bool
    pods: dict[str, Pod] = field(default_factory=dict)
    """Pods of ours without a group, by uid."""
    owners: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    """ReplicaSets and StatefulSets by uid: generation and annotations as last looked at."""
    scaled: dict[str, Resource] = field(default_factory=dict)

    async def reconcile(self, kind: str, key: str) -> None:
        if kind in self.scaled:
            await self._reconcile_owner(self.scaled[kind], *key.split("/"))
            return
        pod = self.pods.get(key)
        if pod is not None and not (kind == UNBOUND and pod.spec.node_name):
            await self._reconcile_pod(pod)

    def on_pod(self, event: WatchEvent) -> None:
        self.heed(object_of(Pod, event), gone=event.type == "DELETED", new=event.type == "ADDED")

    def heed(self, pod: Pod, *, gone: bool, new: bool = True) -> None:
        if gone or not (podgroup.needs_group(pod, self.scheduler_names) or self._names_none_that_is_there(pod, new=new)):
            self.pods.pop(pod.metadata.uid, None)
            return
        known = self.pods.get(pod.metadata.uid)
        self.pods[pod.metadata.uid] = pod
        if known is None and not pod.spec.node_name:
            self.work.add_later(UNBOUND, pod.metadata.uid, BEHIND, put_off=BEHIND_A_BURST)
        elif pod.spec.node_name and not (known is not None and known.spec.node_name):
            self.moves.one()
            self.work.add_later(BOUND, pod.metadata.uid, 0.0, put_off=BEHIND_OTHERS)

    def _names_none_that_is_there(self, pod: Pod, *, new: bool) -> bool:
        """A pod whose Binding named the group that we make. One that went later is not made again."""
        if not (new or pod.metadata.uid in self.pods) or not podgroup.names_its_own(pod, self.scheduler_names):
            return False
        return f"{pod.metadata.namespace}/{podgroup.group_name(pod)}" not in self.groups

    def on_owner(self, kind: Resource) -> Callable[[WatchEvent], None]:
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

    async def _reconcile_pod(self, pod: Pod) -> None:
        name = podgroup.group_name(pod)
        exists = f"{pod.metadata.namespace}/{name}" in self.groups
        annotations = {} if exists else await self._owner_annotations(pod)
        actions = podgroup.reconcile_pod(
            pod, group_exists=exists, owner_annotations=annotations, scheduler_names=self.scheduler_names,
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
            self.work.add_later(BOUND, pod.metadata.uid, REFUSED)
            return
        self.pods.pop(pod.metadata.uid, None)

    async def _perform(self, effect: podgroup.Action) -> None:
        """An answer that only says that somebody was faster is none to raise."""
        try:
            await self.performer.perform(effect)
        except ApiError as error:
            faster = (409,) if isinstance(effect, Create) else (404, 409, 422) if effect.resource == kinds.PODS else (404, 409)
            if error.code not in faster:
                raise
        if isinstance(effect, Create):
            meta = effect.obj["metadata"]
            self.groups.setdefault(f"{meta['namespace']}/{meta['name']}", ("", volcano.PENDING))

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
        return podgroup.passed_on(annotations, inherit=self.inherit_owner_annotations)

    async def _reconcile_owner(self, kind: Resource, namespace: str, name: str) -> None:
        """A ReplicaSet or StatefulSet: its group goes or follows."""
        try:
            owner = await self.cluster.get(kind, name, namespace)
            group = await self.cluster.get(volcano.POD_GROUPS, group_name_for(owner["metadata"]["uid"]), namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return
        chosen = ",".join(f"{k}={v}" for k, v in (owner["spec"].get("selector", {}).get("matchLabels") or {}).items())
        items = (await self.cluster.list(kinds.PODS, namespace, label_selector=chosen))["items"] if chosen else []
        uid = owner["metadata"]["uid"]
        members = [pod for pod in (convert(Pod, item) for item in items) if _belongs(pod, uid)]
        newest = max(members, key=lambda pod: pod.metadata.creation_timestamp, default=None)
        for effect in podgroup.reconcile_owner(owner, group, newest, self._passed_on(owner)):
            try:
                await self._perform(effect)
            except ApiError as error:
                log.warning("%s", error)


def _belongs(pod: Pod, uid: str) -> bool:
    owner = podgroup.controlling_owner(pod)
    return owner is not None and owner.uid == uid and not pod.metadata.deletion_timestamp


# -- A count of pods that move just now ------------------------------------------------------------------------------

# Where they are many, the API server then has more urgent work than what only tells.

MANY, MOMENT = 16, 0.25
"""Moves of pods (bare ones that are bound, and all of Jobs'), and the seconds within which so many are many."""


@dataclass(slots=True)
class Moves:
    clock: Clock
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=MANY))

    def one(self) -> None:
        """A pod was seen to move."""
        self._last.append(self.clock.monotonic())

    def are_many(self) -> bool:
        return len(self._last) == MANY and self.clock.monotonic() - self._last[0] < MOMENT
