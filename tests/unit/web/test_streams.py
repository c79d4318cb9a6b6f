"""The streams by which open pages hear of news."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from kit.fake_cluster import FakeCluster
from kit.objects import node

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import TOKEN, OpenPage, open_page

from pumice.web.server import QUICKEST, SHARE, SLOWEST, processor_time
from pumice.web.views import Shown, Views

WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


def look(at: Callable[[OpenPage, FakeCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster = FakeCluster()
        cluster.put(node("n1", cards=1))
        async with open_page(cluster) as page:
            await at(page, cluster)

    asyncio.run(asyncio.wait_for(run(), 100))


def test_an_open_page_hears_of_a_change_in_the_cluster() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        async with page.session.get(f"{page.address}/events", headers=WITH_TOKEN) as stream:
            assert stream.headers["Content-Type"] == "text/event-stream"

            async def news() -> int:
                async with asyncio.timeout(60):
                    while not (line := await stream.content.readline()).startswith(b"data: "):
                        pass
                return int(line.removeprefix(b"data: "))

            first = await news()
            cluster.put(node("n2", cards=1))
            assert await news() > first

    look(at)


def test_news_come_the_more_seldom_the_more_processor_time_views_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the drawing: what a view works out, and two views at a time are counted once."""
    monkeypatch.setattr("pumice.web.server.QUICKEST", SLOWEST)

    async def at_work(views: Views, query: dict[str, str]) -> Shown:
        begin = time.thread_time()
        while time.thread_time() - begin < 0.1:
            await asyncio.sleep(0)
        return Shown("missing", "Nothing", {"text": ""})

    monkeypatch.setattr(Views, "cluster", at_work)
    monkeypatch.setattr(Views, "pods", at_work)

    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        begin = processor_time()
        await asyncio.gather(page.get(""), page.get("pods"))
        assert 0.1 <= page.server.spent <= processor_time() - begin

    look(at)


def test_work_that_the_longest_pause_does_not_make_up_for_lengthens_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()

    async def at_once(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        page.server.spent = 100 * SLOWEST * SHARE
        told = page.server.tell()
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "sleep", at_once)
            with pytest.raises(KeyboardInterrupt):
                told.send(None)

    look(at)
    assert slept == [SLOWEST, SLOWEST, QUICKEST]


def test_more_open_pages_than_are_served_are_told_to_come_again_and_one_that_closes_makes_room() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        page.server.streams_at_most = 3
        streams = [await page.session.get(f"{page.address}/events", headers=WITH_TOKEN) for _ in range(3)]
        answer = await page.get("events")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "60")
        assert (await page.get("")).status == 200
        streams[0].close()
        async with asyncio.timeout(60):
            while page.server.streams > 2:
                await asyncio.sleep(0.02)
        async with page.session.get(f"{page.address}/events", headers=WITH_TOKEN) as again:
            assert again.status == 200
        for each in streams[1:]:
            each.close()

    look(at)
