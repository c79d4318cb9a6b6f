"""``/explain?pod=NAMESPACE/NAME`` of the scheduler: the answer of ``pumice explain``, worked out in a process of its own.

The process is forked off the scheduler and answers from the books as they stand: a question costs the scheduler a wait on a pipe
and never a part of a cycle. One question at a time; a few wait, and more than that are turned away. Pods that are not in the
books are nobody's here, and cost nothing. Where others than this machine reach the page, it answers those who may get the pod.
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

PATIENCE = 10.0
"""A forked child answers in well under a second, unless a lock was held by another thread at the moment of the fork."""
MOST_WAITING = 8
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(slots=True)
class ExplainPage:
    """``knows``: whether the books have the pod; ``known``: what they say of it as JSON, to be asked in a forked child."""

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
