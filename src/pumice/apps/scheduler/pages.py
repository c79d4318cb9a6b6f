"""``/explain?pod=NAMESPACE/NAME`` of the scheduler: the answer of ``pumice explain``, worked out in a process of its own.

The process is forked off the scheduler and answers from the ledger as it stands: a question costs the scheduler a wait on a pipe
and never a part of a cycle. One question at a time; a few wait, and more than that are turned away. Pods that are not in the
ledger are nobody's here, and cost nothing. Where others than this machine reach the page, it answers those who may get the pod.

Serves the scheduler's metrics: a page is made in slices, so that cycles go on between them, and one that nothing has changed
since is served again as it is.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from pumice.apps.scheduler.forked import ask
from pumice.apps.service.reviewed import Reviewed
from pumice.effects.tasks import in_slices
from pumice.metrics.scheduler import SchedulerMetrics

KEPT_PAGE = 32 * 2**20
"""Bytes up to which the page itself is kept beside its lines; joining the lines of a longer one takes some 10 ms."""


@dataclass(slots=True)
class MetricsPage:
    """The page of metrics, rendered in slices. ``changes`` tells a value that differs whenever the engine's state may have
    changed. ``slice_``: seconds of rendering before everybody else has a turn."""

    metrics: SchedulerMetrics
    changes: Callable[[], object]
    slice_: float = 0.002
    _kept: tuple[object, bytes] = (None, b"")

    async def fresh(self) -> bytes:
        """The page, made in slices."""
        stamp = self._stamp()  # before the first slice: what changes during the others counts for the next page
        if stamp != self._kept[0]:
            await in_slices(self.metrics.prepare(), self.slice_)
        return self._page(stamp)

    def at_once(self) -> bytes:
        """The page, made in one go."""
        return self._page(self._stamp())

    def _page(self, stamp: object) -> bytes:
        if stamp == self._kept[0]:
            return self._kept[1]
        made = self.metrics.page()
        self._kept = (stamp, made) if len(made) < KEPT_PAGE else (None, b"")
        return made

    def _stamp(self) -> object:
        return self.changes(), self.metrics.stamp()


PATIENCE = 10.0
"""A forked child answers in well under a second, unless a lock was held by another thread at the moment of the fork."""
MOST_WAITING = 8
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(slots=True)
class ExplainPage:
    """The page that explains a pod. ``knows``: whether the ledger has the pod; ``known``: what it says of it as JSON, to be
    asked in a forked child."""

    knows: Callable[[str, str], bool]
    known: Callable[[str, str], bytes]
    patience: float = PATIENCE
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _here: int = 0

    async def answer(self, request: web.Request, guard: Reviewed | None = None) -> web.Response:
        namespace, slash, name = request.query.get("pod", "").rpartition("/")
        namespace = namespace if slash else "default"
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(namespace):
            return _answer(400, {"error": "ask for /explain?pod=NAMESPACE/NAME"})
        if self._here >= MOST_WAITING:
            return _answer(503, {"error": f"{MOST_WAITING} questions wait already; ask again"})
        self._here += 1
        try:
            async with asyncio.timeout(self.patience):
                if guard is not None:
                    denied = await guard.may_get_pod(request.headers.get("Authorization", ""), namespace, name)
                    if denied is not None:
                        return _answer(denied.status, {"error": denied.reason})
                return await self._explain(namespace, name)
        except TimeoutError:
            return _answer(504, {"error": f"no answer within {self.patience:.0f} s"})
        finally:
            self._here -= 1

    async def _explain(self, namespace: str, name: str) -> web.Response:
        async with self._turn:
            if self.knows(namespace, name) and (found := await ask(lambda: self.known(namespace, name))):
                return web.Response(body=found, content_type="application/json")
        text = f"no pod {namespace}/{name} that this scheduler places; `pumice explain` asks the API server about any"
        return _answer(404, {"error": text})


def _answer(code: int, body: dict[str, str]) -> web.Response:
    return web.Response(status=code, text=json.dumps(body) + "\n", content_type="application/json")
