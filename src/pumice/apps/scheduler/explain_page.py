"""``/explain?pod=NAMESPACE/NAME`` of the scheduler: the answer of ``pumice explain``, worked out in a process of its own.

For a pod that the scheduler knows, the process is forked off it and answers from the books as they stand; for another one it
reads the API server itself. Either way a question costs the scheduler a wait on a pipe and never a part of a cycle. One question
at a time; the next ones wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from pumice.apps.scheduler.forked import ask

PATIENCE = 60.0
FORKED_PATIENCE = 10.0
"""A forked child answers in well under a second, unless a lock was held by another thread at the moment of the fork."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(slots=True)
class ExplainPage:
    """``kubeconfig`` empty: the pod's service account, or the usual place."""

    kubeconfig: str = ""
    scheduler_names: tuple[str, ...] = ()
    patience: float = PATIENCE
    known: Callable[[str, str], bytes] | None = None
    """The JSON for (namespace, name) out of our own books, to be asked in a forked child; empty when they do not know."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, request: web.Request) -> web.Response:
        namespace, slash, name = request.query.get("pod", "").rpartition("/")
        namespace = namespace if slash else "default"
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(namespace):
            return _answer(400, {"error": "ask for /explain?pod=NAMESPACE/NAME"})
        try:
            async with asyncio.timeout(self.patience), self._turn:
                if found := await self._from_the_books(namespace, name):
                    return web.Response(body=found, content_type="application/json")
                code, out, err = await self._ask(namespace, name)
        except TimeoutError:
            return _answer(504, {"error": f"no answer within {self.patience:.0f} s"})
        if code:
            text = err.strip().splitlines()[-1:] or ["no answer"]
            return _answer(404 if "no pod" in text[0] else 502, {"error": text[0].removeprefix("pumice: ")})
        return web.Response(text=out, content_type="application/json")

    async def _from_the_books(self, namespace: str, name: str) -> bytes | None:
        known = self.known
        if known is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(FORKED_PATIENCE, self.patience)):
                return await ask(lambda: known(namespace, name))
        return None

    async def _ask(self, namespace: str, name: str) -> tuple[int, str, str]:
        arguments = ["-m", "pumice", "explain", "pod", name, "-n", namespace, "-o", "json"]
        arguments += [word for scheduler in self.scheduler_names for word in ("--scheduler-name", scheduler)]
        arguments += ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=pipe, stderr=pipe)
        try:
            out, err = await child.communicate()
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        return child.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _answer(code: int, body: dict[str, str]) -> web.Response:
    return web.Response(status=code, text=json.dumps(body) + "\n", content_type="application/json")
