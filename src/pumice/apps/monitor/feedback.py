"""The monitor's word to the containers: less important work waits for more important work on the same card, and a container
that is alone at work runs without its core limit (spec nvidia-device-plugin 18.5, hami-core 12).

Each round reads every region afresh, decides (``node.feedback``) and writes only what changes, four bytes at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from pumice.adapters.region.pages import core_limits_on, hold_back
from pumice.adapters.region.reader import header_of
from pumice.adapters.region.writer import write_feedback, write_pulse
from pumice.apps.monitor.reader import NodeReader, Seat, Snapshot
from pumice.apps.service.own_node import OwnNode
from pumice.devices.nvidia_vgpu.node.grants import goes_first
from pumice.model.errors import Unavailable
from pumice.node.accounts import Key
from pumice.node.feedback import Tenant, feedback
from pumice.ports.clock import Clock
from pumice.ports.region import BadRegion

log = logging.getLogger("pumice.monitor")


FLOOR = 5
"""Percent of its cards' time that a container without a core limit keeps while it is held back."""


def _floor(seat: Seat) -> int:
    """Return the percent of its cards' time that a held-back container keeps: its core limit, else ``FLOOR``."""
    return min((device.cores for device in seat.devices if device.cores > 0), default=FLOOR)


class FeedbackRounds:
    """``reader`` tells which cards a pod's containers were given, and what their regions say: a region is written by its tenant,
    and says neither cards nor priority for certain. Only containers that were given cards and have not ended are spoken to.
    ``max_wait``: seconds that launches wait at the most before they go on for a round; 0: without end."""

    def __init__(self, reader: NodeReader, own: OwnNode, every: float = 5.0, max_wait: float = 60.0) -> None:
        self._reader, self._own, self._every = reader, own, every
        self._patience = max(1, round(max_wait / every)) if max_wait > 0 and every > 0 else 0
        self._waited: dict[Key, int] = {}
        self._warned: set[Path] = set()
        self._turn, self._over = threading.Lock(), False
        self.waiting: frozenset[Key] = frozenset()
        """Whose launches wait since the last round."""

    async def run(self, clock: Clock) -> None:
        """Rounds for ever; when it ends nobody is left waiting for a word that would not come."""
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        try:
            while True:
                await clock.sleep(self._every)
                snapshot = await self._reader.snapshot()
                await asyncio.to_thread(self.round, snapshot)
        finally:
            with self._turn:  # a round may still be under way in its thread
                self._over = True
                self._release(self._reader.last)

    def round(self, snapshot: Snapshot) -> None:
        """One round over these containers."""
        with self._turn:
            if not self._over:
                self._round(snapshot)

    def _round(self, snapshot: Snapshot) -> None:
        tenants, paths = self._tenants(snapshot)
        words = feedback(tenants, patience=self._patience)
        for key, word in words.items():
            self._write(paths[key], word.recent, word.limited)
        told = {key: tenant.recent for key, tenant in tenants.items()}
        told |= {key: word.recent for key, word in words.items() if word.recent is not None}
        waiting = frozenset(key for key, recent in told.items() if recent < 0)
        for key in waiting:
            self._beat(paths[key], self._every, _floor(snapshot.seats[key]))
        for key in (self.waiting & told.keys()) - waiting:
            self._beat(paths[key], None)
        for uid, container in sorted(waiting ^ self.waiting):
            log.info("container %s pod_uid=%s container=%s",
                     "waits for more important work" if (uid, container) in waiting else "goes on", uid, container)  # fmt: skip
        self.waiting = waiting
        self._waited = {key: self._waited.get(key, 0) + 1 for key in waiting}
        self._warned.intersection_update(paths.values())

    def _tenants(self, snapshot: Snapshot) -> tuple[Mapping[Key, Tenant], dict[Key, Path]]:
        tenants: dict[Key, Tenant] = {}
        paths: dict[Key, Path] = {}
        for key, seat in snapshot.seats.items():
            if seat.claims is not None and seat.path is not None and not seat.ended:
                recent, limited = seat.claims.recent_kernel, core_limits_on(seat.path)
                limited = seat.claims.utilization_switch != 0 if limited is None else limited
                uuids = tuple(device.uuid for device in seat.devices)
                first = goes_first(seat.pod, seat.container)
                tenants[key] = Tenant(uuids, -seat.pod.priority, recent, limited, self._waited.get(key, 0), first)
                paths[key] = seat.path
        return tenants, paths

    def _write(self, path: Path, recent: int | None, limited: bool | None) -> None:
        try:
            write_feedback(path, recent, limited)
        except (BadRegion, Unavailable) as error:
            if path not in self._warned:
                self._warned.add(path)
                log.warning("no feedback: %s", error)

    def _beat(self, path: Path, every: float | None, floor: int = 0) -> None:
        """Tell a container that is held back that the monitor lives, else it goes on by itself: on its limits page, which leaves
        it its floor, or in its region."""
        hold_back(path, floor, every or self._every)
        with contextlib.suppress(Unavailable):
            write_pulse(path, every)

    def _release(self, snapshot: Snapshot) -> None:
        """Everybody who may have been told to wait, by this round or the one under way when the end came."""
        for seat in snapshot.seats.values():
            if seat.path is None or seat.ended:
                continue
            with contextlib.suppress(BadRegion):
                if header_of(seat.path).recent_kernel < 0:
                    self._write(seat.path, 0, None)
                    self._beat(seat.path, None)
