"""The monitor's word to the containers: less important work waits for more important work on the same card, and a container
that is alone at work runs without its core limit (spec nvidia-device-plugin 18.5, hami-core 12).

Each round reads every region afresh, decides (``node.feedback``) and writes only what changes, four bytes at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pumice.adapters.region import ContainerFolders, read_region
from pumice.adapters.region.pages import core_limits_on
from pumice.adapters.region.writer import write_feedback, write_pulse
from pumice.apps.service.own_node import OwnNode
from pumice.model.errors import Unavailable
from pumice.node.feedback import Tenant, feedback
from pumice.node.pods import NodePod
from pumice.node.vgpu.grants import priority
from pumice.ports.clock import Clock
from pumice.ports.region import BadRegion
from pumice.wire.nvidia_vgpu import PodDevice

log = logging.getLogger("pumice.monitor")

Container = tuple[str, str]
"""Pod UID and name of the container."""
Grants = Mapping[str, Sequence[PodDevice]]
"""Devices by name of the container."""


class FeedbackRounds:
    """``folders`` tells where the regions lie, ``grants`` which cards a pod's containers were given: a region is written by its
    tenant, and says neither cards nor priority for certain. Only containers of pods on this node that have not ended are spoken
    to. ``max_wait``: seconds that launches wait at the most before they go on for a round; 0: without end."""

    def __init__(
        self, folders: Callable[[], ContainerFolders], own: OwnNode, grants: Callable[[NodePod], Grants], every: float = 5.0,
        max_wait: float = 60.0,
    ) -> None:  # fmt: skip
        self._folders, self._own, self._grants, self._every = folders, own, grants, every
        self._patience = max(1, round(max_wait / every)) if max_wait > 0 and every > 0 else 0
        self._waited: dict[Container, int] = {}
        self._warned: set[Path] = set()
        self._turn, self._over = threading.Lock(), False
        self.waiting: frozenset[Container] = frozenset()
        """Whose launches wait since the last round."""

    async def run(self, clock: Clock) -> None:
        """Rounds for ever; when it ends nobody is left waiting for a word that would not come."""
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        try:
            while True:
                await clock.sleep(self._every)
                await asyncio.to_thread(self.round, self._own.pods)
        finally:
            with self._turn:  # a round may still be under way in its thread
                self._over = True
                self._release(self._own.pods)

    def round(self, pods: Sequence[NodePod]) -> None:
        """One round over these pods."""
        with self._turn:
            if not self._over:
                self._round(pods)

    def _round(self, pods: Sequence[NodePod]) -> None:
        tenants, paths = self._tenants(pods)
        words = feedback(tenants, patience=self._patience)
        for key, word in words.items():
            self._write(paths[key], word.recent, word.limited)
        told = {key: tenant.recent for key, tenant in tenants.items()}
        told |= {key: word.recent for key, word in words.items() if word.recent is not None}
        waiting = frozenset(key for key, recent in told.items() if recent < 0)
        for key in waiting:
            self._beat(paths[key], self._every)
        for key in (self.waiting & told.keys()) - waiting:
            self._beat(paths[key], None)
        for uid, container in sorted(waiting ^ self.waiting):
            log.info("container %s pod_uid=%s container=%s",
                     "waits for more important work" if (uid, container) in waiting else "goes on", uid, container)  # fmt: skip
        self.waiting = waiting
        self._waited = {key: self._waited.get(key, 0) + 1 for key in waiting}

    def _tenants(self, pods: Sequence[NodePod]) -> tuple[dict[Container, Tenant], dict[Container, Path]]:
        alive = {key: who for pod in pods if not pod.finished for key, who in self._granted(pod).items()}
        folders = self._folders()
        tenants: dict[Container, Tenant] = {}
        paths: dict[Container, Path] = {}
        for key, directory in folders.containers().items():
            if key not in alive:
                continue
            try:
                path = folders.region(directory)
                region = None if path is None else read_region(path)
            except BadRegion as error:
                log.debug("%s", error)
                continue
            if path is not None and region is not None:
                uuids, important = alive[key]
                recent, limited = region.recent_kernel, core_limits_on(path)
                limited = region.utilization_switch != 0 if limited is None else limited
                tenants[key] = Tenant(uuids, important, recent, limited, self._waited.get(key, 0))
                paths[key] = path
        return tenants, paths

    def _granted(self, pod: NodePod) -> dict[Container, tuple[tuple[str, ...], int]]:
        """The cards and the priority of its containers that have not ended."""
        ended = {status.name for status in pod.status.container_statuses if "terminated" in status.state}
        grants = self._grants(pod)
        return {
            (pod.uid, c.name): (tuple(device.uuid for device in grants.get(c.name, ())), priority(c))
            for c in (*pod.spec.init_containers, *pod.spec.containers)
            if c.name not in ended
        }

    def _write(self, path: Path, recent: int | None, limited: bool | None) -> None:
        try:
            write_feedback(path, recent, limited)
        except (BadRegion, Unavailable) as error:
            if path not in self._warned:
                self._warned.add(path)
                log.warning("no feedback: %s", error)

    def _beat(self, path: Path, every: float | None) -> None:
        """Who waits hears that the monitor lives, and goes on by itself otherwise."""
        with contextlib.suppress(Unavailable):
            write_pulse(path, every)

    def _release(self, pods: Sequence[NodePod]) -> None:
        tenants, paths = self._tenants(pods)
        for key, tenant in tenants.items():
            if tenant.recent < 0:
                self._write(paths[key], 0, None)
                self._beat(paths[key], None)
