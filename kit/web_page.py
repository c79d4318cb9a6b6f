"""The page of ``pumice web`` before an API server that only remembers, through real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import aiohttp

from kit.fake_cluster import FakeCluster
from pumice.apps.service.stopping import until
from pumice.ports.cluster import ApiError, Cluster, Json, Resource
from pumice.web.following import Configuration, Following, WallClock
from pumice.web.guard import Guard
from pumice.web.monitors import Monitors
from pumice.web.server import Server, served
from pumice.web.viewers import Hub, Viewers
from pumice.web.views import ClusterSite, Views
from pumice_lab.first_objects import SCHEDULER_CONF

TOKEN = "the-token-of-the-tests"


@dataclass
class Answer:
    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def words(self) -> str:
        """Return the text that a person reads, in one line."""
        return words_of(self.text)


@dataclass
class OpenPage:
    """A page server that runs. ``get`` has the token unless told otherwise."""

    port: int
    server: Server
    following: Following
    session: aiohttp.ClientSession

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def get(self, path: str = "", *, token: str | None = TOKEN, method: str = "GET", **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        async with self.session.request(method, f"{self.address}/{path}", headers=sent, allow_redirects=False) as answer:
            return Answer(answer.status, await answer.text(), answer.headers)

    async def synced(self) -> None:
        """Wait until every list is complete."""
        async with asyncio.timeout(60):
            while self.following.unsynced:
                await asyncio.sleep(0.01)


async def built_in(cluster: Cluster) -> Configuration:
    """The configuration that a new cluster is given."""
    return Configuration(SCHEDULER_CONF, "")


@asynccontextmanager
async def open_page(cluster: FakeCluster, *, synced: bool = True) -> AsyncIterator[OpenPage]:
    following = Following(cluster, built_in)
    await following.start()
    server = Server(ClusterSite(following, Views(following, Monitors(cluster, following.clock))), Guard(TOKEN))
    stop = asyncio.Event()
    async with served(server, "127.0.0.1", 0) as port, aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        work = asyncio.ensure_future(until(stop, following.run()))
        page = OpenPage(port, server, following, session)
        try:
            if synced:
                await page.synced()
            yield page
        finally:
            stop.set()
            await work


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def words_of(html: str) -> str:
    """The text of a document, its spaces made one."""
    parser = _Words()
    parser.feed(html)
    return " ".join(" ".join(parser.found).split())


# -- For many viewers, each with rights of his own -------------------------------------------------------------------


class ReviewingCluster(FakeCluster):
    """One that knows tokens: ``users`` by token, ``rights`` by user name as (plural, namespace), an empty namespace for all."""

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, str] = {}
        self.rights: dict[str, set[tuple[str, str]]] = {}
        self.reviewed = 0
        self.away = False

    async def create(self, resource: Resource, obj: Json, namespace: str = "", **more: Any) -> Json:
        if resource.plural not in ("tokenreviews", "subjectaccessreviews"):
            return await super().create(resource, obj, namespace, **more)
        self.reviewed += 1
        await asyncio.sleep(0)
        if self.away:
            raise ApiError(0, "Timeout", "nobody answers")
        if resource.plural == "tokenreviews":
            user = self.users.get(obj["spec"]["token"])
            return {"status": {"authenticated": user is not None, "user": {"username": user} if user else {}}}
        asked, mine = obj["spec"]["resourceAttributes"], self.rights.get(obj["spec"]["user"], set())
        return {"status": {"allowed": ("*", "") in mine or (asked["resource"], "") in mine
                           or (asked["resource"], asked["namespace"]) in mine}}  # fmt: skip


@asynccontextmanager
async def open_for_viewers(cluster: Cluster, monitors: Monitors | None = None) -> AsyncIterator[tuple[OpenPage, Viewers]]:
    """The page as a Deployment serves it. Each request brings the token of somebody."""
    viewers = Viewers(cluster, built_in, Hub(cluster), monitors or Monitors(cluster, WallClock(), direct=True))
    await viewers.start()
    server = Server(viewers.whole.site, Guard(TOKEN), viewers=viewers)
    try:
        async with served(server, "127.0.0.1", 0) as port, aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            page = OpenPage(port, server, viewers.whole.site.following, session)
            await page.synced()
            yield page, viewers
    finally:
        await viewers.close()
