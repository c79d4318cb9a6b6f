"""The own node and the pods on it, kept up to date by watches, and the Events about them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from pumice.apps.service.watches import Watcher
from pumice.effects.recorder import EventRecorder
from pumice.effects.tasks import Signal
from pumice.node.pods import NodePod
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, WatchEvent
from pumice.wire.kinds import NODES, PODS
from pumice.wire.objects import Node, convert, decode

log = logging.getLogger("pumice.node")

UNTOLD_AGAIN = 1.0
"""Seconds after which the API server is asked again for pods of which the watch may never tell."""
OF_A_LIST = 1 << 20
"""Numbers that each list takes: of its pods those that the watch tells of afterwards, in their order, come before the rest."""


class OwnNode:
    """A node's view of itself. ``tasks`` keep it; reading is by ``pods``, ``node`` and the two signals."""

    def __init__(self, cluster: Cluster, name: str, *, clock: Clock, rng: random.Random, component: str) -> None:
        self.name, self.clock = name, clock
        self._cluster, self.rng = cluster, rng
        self.recorder = EventRecorder(cluster, clock, component, log, host=name)
        self._pods: dict[str, NodePod] = {}
        self._gone: set[str] | None = None
        """Pods that the watch took away while a list is on its way."""
        self._arrivals = 0
        self._listed: int | None = None
        """The number of those that the present list of the watch has brought."""
        self._untold: dict[str, Iterator[int]] = {}
        """Pods that a list past the watch has brought and the watch itself has not told of, with the numbers of that list."""
        self.node: Node | None = None
        self.pods_changed, self.node_changed = Signal(), Signal()
        self.pods_synced, self.node_synced = asyncio.Event(), asyncio.Event()
        self._anew = asyncio.Event()
        """The watch was listed anew without some whom only a list past it had brought."""

    @property
    def pods(self) -> list[NodePod]:
        return list(self._pods.values())

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """The tasks that keep the view current, to be run side by side for as long as it is needed."""
        return [self._watch_pods(), self._watch_node(), self._ask_for_the_untold()]

    async def relist(self) -> None:
        """Ask for the pods now, past the watch. What the watch has told meanwhile counts more than an older list; who was known
        before and is not in it is gone."""
        gone: set[str] = set()
        self._gone = gone
        before = set(self._pods)
        try:
            listed = await self._cluster.list(PODS, field_selector=f"spec.nodeName={self.name}")
        finally:
            self._gone = None
        before_them = itertools.count(self._arrivals + 1)
        number = self._number_of_a_list()
        for item in listed.get("items", []):
            with suppress(msgspec.ValidationError):
                pod = convert(NodePod, item)
                known = self._pods.get(pod.uid)
                before.discard(pod.uid)
                if pod.uid not in gone and (known is None or _version(pod) >= _version(known)):
                    if known is None:
                        self._untold[pod.uid] = before_them
                    self._keep(pod, number)
        for uid in before:
            self.forget(uid)

    def passed_over(self, uid: str) -> None:
        """The kubelet did not take that pod up in its turn: it comes after everybody who is there."""
        if (pod := self._pods.get(uid)) is not None:
            self._untold.pop(uid, None)
            self._arrivals += 1
            pod.arrival = self._arrivals

    def forget(self, uid: str) -> None:
        """That pod is gone, although the watch has not told so yet."""
        self._untold.pop(uid, None)
        if self._pods.pop(uid, None) is not None:
            self.pods_changed.fire()

    async def _watch_pods(self) -> None:
        watcher = Watcher(self._cluster, self.clock, log, lambda _: self._pods_arrived())
        take = partial(watcher.taken, "pods of this node", self._on_pod)
        await watcher.watch("pods of this node", PODS, take, field_selector=f"spec.nodeName={self.name}")

    async def _watch_node(self) -> None:
        watcher = Watcher(self._cluster, self.clock, log, lambda _: self._arrived(self.node_synced, self.node_changed))
        take = partial(watcher.taken, "this node", self._on_node)
        await watcher.watch("this node", NODES, take, field_selector=f"metadata.name={self.name}")

    async def _ask_for_the_untold(self) -> None:
        """Forget pods that only a list past the watch brought, and that went before the watch was listed anew."""
        while True:
            await self._anew.wait()
            with suppress(ApiError):
                await self.relist()
                self._anew.clear()
            await self.clock.sleep(UNTOLD_AGAIN)

    def _pods_arrived(self) -> None:
        self._listed = None
        if self._untold:
            self._anew.set()
        self._arrived(self.pods_synced, self.pods_changed)

    def _arrived(self, synced: asyncio.Event, changed: Signal) -> None:
        synced.set()
        changed.fire()

    def _on_pod(self, event: WatchEvent) -> None:
        pod = decode(NodePod, event.raw)
        if event.type == "DELETED":
            self._pods.pop(pod.uid, None)
            self._untold.pop(pod.uid, None)
            if self._gone is not None:
                self._gone.add(pod.uid)
        elif event.listed:
            self._untold.pop(pod.uid, None)
            self._listed = self._number_of_a_list() if self._listed is None else self._listed
            self._keep(pod, self._listed)
        elif (before_the_rest := self._untold.pop(pod.uid, None)) is not None:
            self._pods[pod.uid].arrival = next(before_the_rest)
            self._keep(pod, 0)
        else:
            self._arrivals += 1
            self._keep(pod, self._arrivals)
        self.pods_changed.fire()

    def _on_node(self, event: WatchEvent) -> None:
        self.node = None if event.type == "DELETED" else decode(Node, event.raw)
        self.node_changed.fire()

    def _number_of_a_list(self) -> int:
        """The arrival of everybody whom one list brings: in which order they came it does not say."""
        if self.pods_synced.is_set():
            self._arrivals += OF_A_LIST
        return self._arrivals

    def _keep(self, pod: NodePod, arrival: int) -> None:
        """``arrival``: of a pod that was not known."""
        known = self._pods.get(pod.uid)
        pod.arrival, pod.seen = (arrival, _version(pod)) if known is None else (known.arrival, known.seen)
        self._pods[pod.uid] = pod


def _version(pod: NodePod) -> int:
    """Later versions are greater numbers (Kubernetes says so since 1.35 and did so before)."""
    text = pod.metadata.resource_version
    return int(text) if text.isdecimal() else 0
