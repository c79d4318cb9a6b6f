"""The last configuration that was taken, and whose pods it is taken for, kept in a ConfigMap beside the scheduler's own.

``pumice explain``, ``fits``, ``dump`` and ``top`` learn from it which pods are ours, and answer by its configuration while the
one that stands there is refused.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import kinds
from pumice.wire.names import LAST_GOOD

log = logging.getLogger("pumice.scheduler")

RETRY = 5.0


@dataclass(slots=True)
class LastGood:
    """``beside`` is namespace/name of the ConfigMap that people write."""

    cluster: Cluster
    clock: Clock
    beside: str
    _data: dict[str, str | None] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, key: str, text: str | None) -> None:
        if self._data.get(key, "") != text:
            self._data[key] = text
            self._changed.set()

    async def run(self) -> None:
        """Write for ever."""
        namespace, _, name = self.beside.partition("/")
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.cluster.patch(kinds.CONFIGMAPS, f"{name}{LAST_GOOD}", {"data": dict(self._data)}, namespace)
            except ApiError as error:
                if error.code in (403, 404, 422):  # an installation without it: explain can only name what is refused then
                    log.info("the last good configuration is not kept: %s", error)
                    continue
                self._changed.set()
                await self.clock.sleep(max(RETRY, error.retry_after))
