"""Keeps the record of share-hours (``controllers.share_hours``): bound pods and nodes by watch, use from the nodes' pages, a
ConfigMap for each day by writes that fail where somebody else has written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from msgspec import Struct
from msgspec import field as field_of

from pumice.adapters.scraping import page
from pumice.apps.service.watches import object_of
from pumice.claims.objects import Result, slice_of
from pumice.metrics.claims import claim_uses
from pumice.metrics.monitor import PodUse, is_of_claim, of_claim, pod_uses
from pumice.metrics.npu import slice_uses
from pumice.model.errors import Unavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, WatchEvent
from pumice.wire import kinds, names
from pumice.wire.batch import Container as ContainerStatus
from pumice.wire.held_shares import NodeCards, cards_of, limits_of, owner_of, request_of, shares_of
from pumice.wire.kubernetes import COMPONENT
from pumice.wire.nvidia_vgpu import group_key
from pumice.wire.objects import Meta, Quantities, Resources
from pumice.wire.share_hours import DAY, KEPT_DAYS, Day, clean, config_map_of, parse, render
from pumice.wire.times import seconds
from pumice_jobs.controllers.claimed_shares import Published, held_of
from pumice_jobs.controllers.share_hours import Accountant, ShareOwner, Use

log = logging.getLogger("pumice.controller")

LOOK_EVERY = 60.0
"""Seconds between two looks at the monitors."""
WRITE_EVERY = 300.0
PATIENCE, AT_ONCE, LARGEST = 5.0, 32, 8 << 20
"""Of one monitor's page: seconds, how many at once, bytes."""
MONITOR_NAMESPACE = "kube-system"
BOUND_PODS = "spec.nodeName!="

Fetch = Callable[[str, float, int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Source:
    """A daemon of nodes whose page tells what shares of these kinds use, ``by_claim`` or not (None: either). ``names``: the label
    ``name`` or the component of its pods. ``own_cores``: cores stand there as percent of what the share has, not of the card."""

    names: frozenset[str]
    port: int
    kinds: frozenset[str]
    read: Callable[[str], dict[tuple[str, str], PodUse]]
    by_claim: bool | None = None
    own_cores: bool = False

    def tells_of(self, owner: ShareOwner) -> bool:
        return self.by_claim in (None, is_of_claim(owner.pod)) and all(share.kind in self.kinds for _, share in owner.parts)


SOURCES = (
    Source(frozenset({"volcano-vgpu-monitor"}), 9394, frozenset({"vgpu", "mig", "whole"}), partial(pod_uses, apart=True)),
    Source(frozenset({"pumice-dra-driver-npu"}), 9396, frozenset({"npu"}), claim_uses, by_claim=True),
    Source(frozenset({"hami-ascend-device-plugin", "ascend-mindcluster-plugin"}), 9395, frozenset({"npu"}), slice_uses,
           by_claim=False, own_cores=True),
)  # fmt: skip
_SOURCE_OF = {name: source for source in SOURCES for name in source.names}


class AccountedContainer(Struct, gc=False):
    resources: Resources = field_of(default_factory=Resources)


class AccountedSpec(Struct, rename="camel", gc=False):
    node_name: str = ""
    containers: list[AccountedContainer] = []
    resource_claims: list[dict[str, Any]] = []


class AccountedCondition(Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class AccountedStatus(Struct, rename="camel", gc=False):
    phase: str = ""
    pod_ip: str = field_of(default="", name="podIP")
    start_time: str | None = None
    conditions: list[AccountedCondition] = []
    container_statuses: list[ContainerStatus] = []
    extended_resource_claim_status: dict[str, Any] | None = None


class AccountedPod(Struct, rename="camel", gc=False):
    """A bound pod as far as accounts go."""

    metadata: Meta = field_of(default_factory=Meta)
    spec: AccountedSpec = field_of(default_factory=AccountedSpec)
    status: AccountedStatus = field_of(default_factory=AccountedStatus)


class Address(Struct, gc=False):
    type: str = ""
    address: str = ""


class AccountedNodeStatus(Struct, gc=False):
    capacity: Quantities = {}
    addresses: list[Address] = []


class AccountedNode(Struct, gc=False):
    metadata: Meta = field_of(default_factory=Meta)
    status: AccountedNodeStatus = field_of(default_factory=AccountedNodeStatus)


@dataclass(slots=True)
class ShareHours:
    """The account of hours of shares. ``queue_of``: the queue of a PodGroup, by key; empty where it is not there. ``queues``:
    the names of all."""

    cluster: Cluster
    clock: Clock
    namespace: str
    queue_of: Callable[[str], str]
    queues: Mapping[str, object]
    default_queue: str
    fetch: Fetch = page
    accountant: Accountant = field(default_factory=Accountant)
    _nodes: dict[str, NodeCards] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)
    """Of the nodes."""
    _monitors: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)
    """The port of a source and its node to its pod: UID and address."""
    _fresh: dict[str, AccountedPod] = field(default_factory=dict)
    """Pods of which is not settled yet what they hold: other lists may not be there."""
    _on: dict[str, str] = field(default_factory=dict)
    """UID of a pod with shares to its node."""
    _looked: int = 0
    _published: Published = field(default_factory=Published)
    _claimants: dict[str, AccountedPod] = field(default_factory=dict)
    """Pods with claims, by UID; those of ``_left`` are gone, and known until the next look: lists are told in any order."""
    _left: set[str] = field(default_factory=set)
    _fresh_claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    _of_claims: dict[str, tuple[str, tuple[Result, ...]]] = field(default_factory=dict)
    """UID of a claim to that of its present allocation, which holds the shares, and what that is: pods come and go under it."""

    # -- watches ------------------------------------------------------------------------------------------------

    def on_node(self, event: WatchEvent) -> None:
        node = object_of(AccountedNode, event)
        name = node.metadata.name
        if event.type == "DELETED":
            self._addresses.pop(name, None)  # its cards stay known: pods of it may still be told of
            return
        self._nodes[name] = cards_of(node.metadata, node.status.capacity)
        self._addresses[name] = next((each.address for each in node.status.addresses if each.type == "InternalIP"), "")

    def on_pod(self, event: WatchEvent) -> None:
        pod, gone = object_of(AccountedPod, event), event.type == "DELETED"
        meta = pod.metadata
        named = meta.labels.get("name") or meta.labels.get(COMPONENT, "")
        if meta.namespace == MONITOR_NAMESPACE and (source := _SOURCE_OF.get(named)) is not None:
            self._on_monitor(pod, source, gone=gone)
        if pod.spec.resource_claims or pod.status.extended_resource_claim_status:
            self._claimants[meta.uid] = pod
            if gone:
                self._left.add(meta.uid)
        if gone:
            waiting = self._fresh.pop(meta.uid, None)
            if waiting is not None:
                self._take(waiting)
            self.accountant.ended(meta.uid, self._now(), there=False)
            self._on.pop(meta.uid, None)
        elif meta.uid in self.accountant.holders:
            if pod.status.phase in ("Succeeded", "Failed"):
                self.accountant.ended(meta.uid, _end(pod) or self._now())
        elif pod.spec.node_name and (meta.uid in self._fresh or _has_devices(meta.annotations)):
            self._fresh[meta.uid] = pod

    def _on_monitor(self, pod: AccountedPod, source: Source, *, gone: bool) -> None:
        at, uid = (source.port, pod.spec.node_name), pod.metadata.uid
        if gone or not pod.status.pod_ip:
            self._monitors = {at: found for at, found in self._monitors.items() if found[0] != uid}
        else:
            self._monitors[at] = uid, pod.status.pod_ip

    def on_slice(self, event: WatchEvent) -> None:
        slice_ = object_of(dict, event)
        if event.type == "DELETED":
            self._published.drop(str(slice_["metadata"]["name"]))
        else:
            self._published.put(slice_of(slice_))

    def on_claim(self, event: WatchEvent) -> None:
        """A claim holds what it is allocated as long as it is reserved for somebody, however many pods that are."""
        claim = object_of(dict, event)
        uid = str(claim["metadata"]["uid"])
        held = tuple(held_of(claim)) if event.type != "DELETED" and _consumer(claim) else ()
        if held and self._of_claims.get(uid, ("", held))[1] == held:
            if uid not in self._of_claims:
                self._fresh_claims[uid] = claim
            return
        waiting = self._fresh_claims.pop(uid, None)
        if waiting is not None:
            self._take_claim(uid, waiting)
        if (owner := self._of_claims.pop(uid, ("", ()))[0]) != "":
            self.accountant.ended(owner, self._now(), there=False)
            self._on.pop(owner, None)
        if held:  # a watch that was cut missed that it was free in between
            self._fresh_claims[uid] = claim

    def _take_claim(self, uid: str, claim: dict[str, Any]) -> bool:
        """Return whether it is settled what a claim holds: for the queue of the first pod that has it, from its Binding on."""
        pod, shares, now = self._claimants.get(_consumer(claim)), self._published.shares_of(claim), self._now()
        if pod is None or shares is None:
            return False
        meta, namespace, name = pod.metadata, str(claim["metadata"]["namespace"]), str(claim["metadata"]["name"])
        queue, start = self._queue(meta), min(_start(pod) or now, now)
        parts = tuple(((namespace, queue, clean(share.model), share.kind), share) for share in shares)
        run = namespace, queue, clean(owner_of(meta)), ""
        owner = f"{uid} {meta.uid}"
        self._of_claims[uid] = owner, tuple(held_of(claim))
        self.accountant.held(ShareOwner(owner, of_claim(namespace, name), run, parts, start))
        self._on[owner] = next(held_of(claim)).pool
        return True

    def _take(self, pod: AccountedPod) -> None:
        """Settle what a pod holds; its annotations and its queue as they are now count for all its life."""
        meta, now = pod.metadata, self._now()
        limits = limits_of(container.resources for container in pod.spec.containers)
        shares = shares_of(meta.annotations, limits, self._nodes.get(pod.spec.node_name, NodeCards()))
        if not shares:
            return
        queue = self._queue(meta)
        end = (_end(pod) or now) if pod.status.phase in ("Succeeded", "Failed") else inf
        start = min(_start(pod) or now, now)
        parts = tuple(((meta.namespace, queue, clean(share.model), share.kind), share) for share in shares)
        run = meta.namespace, queue, clean(owner_of(meta)), clean(request_of(limits))
        self.accountant.held(ShareOwner(meta.uid, (meta.namespace, meta.name), run, parts, start, max(end, start)))
        self._on[meta.uid] = pod.spec.node_name

    def _queue(self, meta: Meta) -> str:
        group = group_key(meta.namespace, meta.annotations)
        for name in (self.queue_of(group) if group else "", meta.annotations.get(names.QUEUE_NAME, "")):
            if name in self.queues:
                return name
        return self.default_queue

    # -- the leader's work --------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Keep the record for ever; what fails is tried again at the next look."""
        written = -inf
        while True:
            try:
                for pod in self._fresh.values():
                    self._take(pod)
                self._fresh.clear()
                self._fresh_claims = {uid: one for uid, one in self._fresh_claims.items() if not self._take_claim(uid, one)}
                for uid in self._left:
                    self._claimants.pop(uid, None)
                self._left.clear()
                if self.accountant.day is None:
                    await self._adopt_latest()
                await self._look()
                if self.clock.monotonic() >= written + WRITE_EVERY:
                    await self.write()
                    written = self.clock.monotonic()
            except ApiError as error:
                log.warning("the record of share-hours waits: %s", error)
            except Exception:  # an account that fails must not end the controllers of Jobs
                log.exception("the record of share-hours waits")
            await self.clock.sleep(LOOK_EVERY)

    async def write(self) -> None:
        """Write all that is due by now, a day after the other; what comes due meanwhile waits for the next time."""
        now, steady = self.clock.now(), self.clock.monotonic()
        while (day := self.accountant.settle(now, steady)) is not None:
            try:
                day.version = await self._store(day)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
                log.info("another has written %s; going on from there", config_map_of(day.number))
                await self._adopt_latest()
                return
            fresh = self.accountant.day is None or self.accountant.day.number != day.number
            self.accountant.written(day)
            if fresh:
                await self._forget(day.number)

    async def _store(self, day: Day) -> str:
        """Raises ApiError 409 where the ConfigMap is not as it was read, or is there already."""
        name, meta = config_map_of(day.number), {"resourceVersion": day.version}
        if day.version:
            answer = await self.cluster.patch(kinds.CONFIGMAPS, name, {"metadata": meta, "data": render(day)}, self.namespace)
        else:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": render(day)}
            answer = await self.cluster.create(kinds.CONFIGMAPS, body, self.namespace)
        return str(answer["metadata"]["resourceVersion"])

    async def _adopt_latest(self) -> None:
        """Read the last record there is. Where it says nothing, what we last wrote of that day counts, or it is begun anew."""
        now = self.clock.now()
        for number in range(int(now // DAY) + 1, int(now // DAY) - KEPT_DAYS, -1):
            try:
                found = await self.cluster.get(kinds.CONFIGMAPS, config_map_of(number), self.namespace)
            except ApiError as error:
                if error.code == 404:
                    continue
                raise
            try:
                day, bad = parse(number, found.get("data") or {})
            except ValueError as error:
                known = self.accountant.day
                log.error("ConfigMap %s: %s; it is written anew", config_map_of(number), error)
                begun = Day(number, min(self._now(), (number + 1) * DAY * 1000))
                day, bad = known if known is not None and known.number == number else begun, 0
            if bad:
                log.error("ConfigMap %s: %d lines say nothing and are left out", config_map_of(number), bad)
            day.version = str(found["metadata"]["resourceVersion"])
            self.accountant.adopt(day, self._now())
            return
        self.accountant.adopt(Day(int(now // DAY), self._now()), self._now())

    async def _forget(self, number: int) -> None:
        """Delete the days that are older than they are kept."""
        for old in range(number - KEPT_DAYS - 7, number - KEPT_DAYS + 1):
            try:
                await self.cluster.delete(kinds.CONFIGMAPS, config_map_of(old), self.namespace)
            except ApiError as error:
                if error.code != 404:
                    log.warning("cannot delete %s: %s", config_map_of(old), error)

    # -- the monitors -------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Ask the pages of all nodes on which shares are held; who does not answer in time tells nothing."""
        begin, self._looked = self._looked, self._now()
        of_page: dict[tuple[str, Source], list[ShareOwner]] = {}
        for uid, node in self._on.items():
            owner = self.accountant.holders.get(uid)
            if owner is not None and owner.end == inf:
                for source in (one for one in SOURCES if one.tells_of(owner)):
                    of_page.setdefault((node, source), []).append(owner)
        if not of_page or not 0 < self._looked - begin <= 3 * LOOK_EVERY * 1000:
            return  # after a pause nothing is known of what was used in it
        turns = asyncio.Semaphore(AT_ONCE)
        uses: dict[tuple[str, str], Use] = {}

        async def ask(node: str, source: Source, holders: list[ShareOwner]) -> None:
            at = source.port, node
            address = self._monitors[at][1] if at in self._monitors else self._addresses.get(node, "")
            host = f"[{address}]" if ":" in address else address
            if not host:
                return
            try:
                async with turns:
                    text = await self.fetch(f"http://{host}:{source.port}/metrics", PATIENCE, LARGEST)
                    reported = source.read(text)
            except Unavailable as error:
                log.debug("the page of %s at port %d tells nothing: %s", node, source.port, error)
                return
            for owner in holders:  # a page is believed of the pods of its node alone
                if owner.pod in reported:
                    uses[owner.pod] = _use(reported[owner.pod], owner, own_cores=source.own_cores)

        try:
            async with asyncio.timeout(LOOK_EVERY * 0.8):
                await asyncio.gather(*(ask(*page_, holders) for page_, holders in of_page.items()))
        except TimeoutError:
            log.warning("not all monitors have answered within %gs", LOOK_EVERY * 0.8)
        self.accountant.used(begin, self._looked, uses)

    def _now(self) -> int:
        return int(self.clock.now() * 1000)


def _use(reported: PodUse, owner: ShareOwner, *, own_cores: bool = False) -> Use:
    """Parts of cards, by the part of its limit that a pod uses."""
    memory = sum(share.memory for _, share in owner.parts)
    used = reported.used / reported.limit * memory if reported.used is not None and reported.limit else None
    sliced = any(share.kind == "mig" for _, share in owner.parts)  # whose cores no driver counts by instance
    whole = sum(share.limit_cores for _, share in owner.parts) if own_cores else 1.0
    return Use(used, reported.cores / 100 * whole if reported.cores is not None and not sliced else None)


def _consumer(claim: Mapping[str, Any]) -> str:
    """The UID of the pod for which it was reserved first."""
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    return next((str(one.get("uid", "")) for one in reserved if isinstance(one, Mapping) and one.get("resource") == "pods"), "")


def _has_devices(notes: Mapping[str, str]) -> bool:
    """Return whether a pod may hold shares: the annotations of all device types begin with their domains."""
    return any(key in _DEVICE_KEYS or key.startswith(_NPU_KEYS) for key in notes)


_DEVICE_KEYS = frozenset((names.VGPU_IDS, names.GPU_INDEX))
_NPU_KEYS = (names.HUAWEI, f"{names.HAMI_DOMAIN}/")


def _start(pod: AccountedPod) -> int:
    """Return when it was bound, as the API server says; else when the kubelet took it. 0 where nobody says."""
    bound = [each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "True"]
    reported = (*(each.last_transition_time for each in bound), pod.status.start_time, pod.metadata.creation_timestamp)
    return int(next((at for at in map(seconds, reported) if at), 0.0) * 1000)


def _end(pod: AccountedPod) -> int:
    """Return when the last of its containers ended; 0 where none says."""
    ended = (each.state.terminated for each in pod.status.container_statuses)
    return int(max((seconds(each.finished_at) for each in ended if each is not None), default=0.0) * 1000)
