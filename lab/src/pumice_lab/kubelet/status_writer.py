"""Pod status writes: one at a time per pod, the latest wins, equal ones are dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pumice.effects.backoff import Backoff
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import PODS

log = logging.getLogger("pumice.kubelet")
AGAIN = Backoff(0.1, 10.0)


class StatusWriter:
    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster, self.clock = cluster, clock
        self._wanted: dict[str, tuple[str, str, dict[str, Any]]] = {}  # uid -> (namespace, name, status)
        self._written: dict[str, dict[str, Any]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def write(self, pod: Mapping[str, Any], status: dict[str, Any]) -> None:
        """Returns at once; ``flush`` waits."""
        meta = pod["metadata"]
        uid = meta["uid"]
        if uid not in self._wanted and self._written.get(uid) == status:
            return
        self._wanted[uid] = (meta.get("namespace", ""), meta["name"], status)
        if uid not in self._tasks:
            self._tasks[uid] = asyncio.create_task(self._write(uid), name=f"status of {meta['name']}")

    async def flush(self, uid: str = "") -> None:
        tasks = [task for key, task in self._tasks.items() if not uid or key == uid]
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, uid: str) -> None:
        self._wanted.pop(uid, None)
        self._written.pop(uid, None)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, uid: str) -> None:
        tries = 0
        try:
            while uid in self._wanted:
                namespace, name, status = self._wanted[uid]
                try:
                    # The uid is a precondition: a pod of the same name that came later is not touched.
                    await self.cluster.patch(PODS, name, {"metadata": {"uid": uid}, "status": status}, namespace,
                                             subresource="status", kind="merge")
                except ApiError as error:
                    if error.code in (404, 409, 410):
                        self._wanted.pop(uid, None)
                        return
                    log.warning("pod status not written pod=%s/%s cause=%s", namespace, name, error)
                    await self.clock.sleep(AGAIN.pause(tries))
                    tries += 1
                    continue
                tries = 0
                self._written[uid] = status
                if self._wanted.get(uid, ("", "", {}))[2] is status:
                    del self._wanted[uid]
        finally:
            self._tasks.pop(uid, None)
