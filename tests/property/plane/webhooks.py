"""The admission server among the processes of the plane: the API server asks it without sockets, and has no answer while it is
away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import grpc
from kit.fake_cluster import Json
from kit.virtual_time import VirtualClock
from tests.property.history.registry import Op, View, kind
from tests.property.plane.kinds import ADMITTED, WRONG, job_comes, pods_come
from tests.property.plane.processes import Connection
from tests.property.plane.transport import called

from pumice_jobs.apps.webhook import daemon as webhook
from pumice_lab.apiserver import webhooks


class Desk:
    """Who answers, by path, and what is asked."""

    def __init__(self) -> None:
        self.posts: dict[str, Any] = {}
        self.calls: set[asyncio.Task[Any]] = set()

    async def run(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        await webhook.run(webhook.Settings(), cluster=cluster, clock=clock, stop=stop)

    def cut(self) -> None:
        self.posts.clear()
        for call in list(self.calls):
            call.cancel()

    @asynccontextmanager
    async def served(self, routes: Any, host: str, port: int, name: str, posts: Any = None, **more: Any) -> AsyncIterator[int]:
        mine = posts or {}
        self.posts |= mine
        try:
            yield port
        finally:
            self.posts = {path: post for path, post in self.posts.items() if mine.get(path) is not post}

    async def ask(self, backend: Any, client: Json, review: Json, patience: float, largest: int = 0) -> Json:
        post = self.posts.get(client["service"]["path"])
        if post is None:
            raise webhooks.NoAnswer("failed to call webhook: connection refused")
        try:
            response = await called(self.calls, asyncio.create_task(post(_Asked(review))), patience)
        except grpc.aio.AioRpcError as error:
            raise webhooks.NoAnswer(f"failed to call webhook: {error.details()}") from error
        return json.loads(response.body)["response"]  # type: ignore[no-any-return]


class _Asked:
    def __init__(self, review: Json) -> None:
        self._review = review

    async def read(self) -> bytes:
        return json.dumps(self._review).encode()


@contextmanager
def answered_by(desk: Desk) -> Iterator[None]:
    with patch.object(webhook, "served", desk.served), patch.object(webhooks, "ask", desk.ask):
        yield


@kind("a Job comes that no webhook lets in", 5, ADMITTED)
def wrong_job(view: View, rng: Random) -> list[Op] | None:
    """Its minimum is more than there are pods of it."""
    found = job_comes(view, rng)
    assert found is not None
    job = found[0]["object"]
    job["metadata"]["name"] = f"{WRONG}{rng.getrandbits(24):06x}"
    job["spec"]["minAvailable"] = job["spec"]["tasks"][0]["replicas"] + 1
    return found


@kind("something befalls the webhooks while objects come", 6, ADMITTED)
def befallen(view: View, rng: Random) -> list[Op]:
    befalls: list[Op] = [
        {"do": "kill", "process": "webhook", "writes": rng.choice((0, 0, 1)), "done": rng.random() < 0.5, "only": "",
         "at once": rng.random() < 0.7},
        {"do": "end", "process": "webhook"},
        {"do": "fault", "process": "webhook", "only": "", "code": rng.choice((403, 409, 500, 503, 0)),
         "count": rng.choice((1, 5)), "done": False},
        {"do": "away", "process": "webhook", "seconds": rng.choice((6.0, 60.0)), "lists": rng.random() < 0.5},
        {"do": "hang up", "process": "webhook", "forget": rng.random() < 0.5, "seconds": rng.choice((0.0, 30.0))}]  # fmt: skip
    come = [rng.choice((wrong_job, job_comes, pods_come)) for _ in range(3)]
    return [*rng.sample(befalls, rng.choice((1, 2))), *(op for draw in come for op in draw(view, rng) or ())]
