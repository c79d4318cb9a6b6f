"""The page in a real browser: Debian's Chromium without a screen, by Playwright, judged by axe-core's rules.

`make browser` installs what it takes; without it these are skipped, with the reason.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kit.fake_cluster import FakeCluster
from kit.objects import VGPU, group, node, pod, queue

pytest.importorskip("jinja2", reason="the extra `web` is not installed")
pytest.importorskip("playwright", reason="the extra `browser` is not installed: make browser")
pytest.importorskip("axe_playwright_python", reason="the extra `browser` is not installed: make browser")

from axe_playwright_python.async_playwright import Axe
from kit.web_page import TOKEN, OpenPage, ReviewingCluster, open_for_viewers, open_page
from playwright.async_api import Browser, Page, async_playwright

from pumice.web.guard import Guard

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the PATH")
HOSTILE = '"><img src=x onerror=window.hacked=1><script>window.hacked=1</script>'
PAGES = (
    "", "node?name=n1", "card?node=n1&uuid=GPU-n1-0", "pods", "pod?namespace=default&name=a", "pod?namespace=default&name=late",
    "waiting", "queues", "queue?name=team", "jobs", "job?namespace=default&name=g", "changes", "search?q=n", "nope", "login",
)  # fmt: skip


def some_cluster() -> FakeCluster:
    placed = pod("a", cards=1, mib=3000, cores=30, nodeName="n1")
    placed["metadata"]["annotations"] |= {
        f"{VGPU}-ids-new": "GPU-n1-0,NVIDIA,3000,30:", f"{VGPU}-node": "n1", f"{VGPU}-time": "1",
    }  # fmt: skip
    placed["status"] = {"phase": "Running"}
    hostile = pod("odd", mib=9000)
    hostile["status"]["conditions"] = [{"type": HOSTILE, "status": HOSTILE, "reason": HOSTILE, "message": HOSTILE}]
    hostile["spec"]["containers"][0]["name"] = HOSTILE
    cluster = FakeCluster()
    cluster.put(node("n1", cards=2, labels={"example.com/x": HOSTILE}), node("n2"), placed, pod("late", mib=9000), hostile,
                queue("team"), group("g", minimum=2, queue="team"),
                *(pod(f"m{i}", mib=6000, group="g") for i in range(2)))  # fmt: skip
    return cluster


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as player:
        flags = ["--no-sandbox", "--disable-gpu", "--no-proxy-server"]
        browser = await player.chromium.launch(executable_path=CHROMIUM, args=flags)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def tab(
    browser: Browser, page: OpenPage, tolerated: tuple[str, ...] = ("404",), **options: Any
) -> AsyncIterator[Page]:
    """A tab of a browser that has the cookie. What it says on its console, and asks of others, ends the test."""
    context = await browser.new_context(**options)
    made = await context.new_page()
    wrong: list[str] = []
    made.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("request", lambda asked: None if asked.url.startswith(page.address) else wrong.append(asked.url))
    made.on("dialog", lambda dialog: wrong.append(dialog.message))
    try:
        await made.goto(f"{page.address}/?token={TOKEN}")
        yield made
        assert [text for text in wrong if not any(code in text for code in tolerated)] == []
    finally:
        await context.close()


def look(at: Callable[[Browser, OpenPage, FakeCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster = some_cluster()
        async with open_page(cluster) as page, chromium() as browser:
            await at(browser, page, cluster)

    asyncio.run(asyncio.wait_for(run(), 280))


def test_the_token_leaves_the_address_and_no_script_reads_the_cookie() -> None:
    async def at(browser: Browser, page: OpenPage, cluster: FakeCluster) -> None:
        async with tab(browser, page) as shown:
            assert shown.url == f"{page.address}/"
            assert await shown.evaluate("document.cookie") == ""
            assert await shown.title() == "Cluster · Pumice"
            assert TOKEN not in await shown.content()
            assert "2 nodes" in await shown.inner_text("main")

    look(at)


def test_an_open_page_shows_what_changes_without_being_loaded_again() -> None:
    async def at(browser: Browser, page: OpenPage, cluster: FakeCluster) -> None:
        async with tab(browser, page) as shown:
            await shown.goto(f"{page.address}/pods")
            await shown.evaluate("window.same = 1")
            cluster.put(pod("newcomer", mib=100))
            await shown.wait_for_selector("text=default/newcomer", timeout=60_000)
            assert await shown.evaluate("window.same") == 1

    look(at)


HUNDREDS = """async (times) => {
  for (let i = 0; i < times; i++) {
    tag = "";
    document.querySelector("main").append(document.createElement("p"));
    await refresh();
  }
}"""


def test_a_tab_that_is_left_open_for_hundreds_of_changes_grows_no_more_and_is_live_still() -> None:
    """A tab that hears of something each minute of a day loads itself 1,440 times."""

    async def at(browser: Browser, page: OpenPage, cluster: FakeCluster) -> None:
        async with tab(browser, page) as shown:
            devtools = await shown.context.new_cdp_session(shown)

            async def counted(times: int) -> dict[str, int]:
                await shown.evaluate(HUNDREDS, times)
                rounds: list[dict[str, int]] = []
                for _ in range(5):  # one collection may leave the document that was parsed last
                    await devtools.send("HeapProfiler.collectGarbage")
                    rounds.append(await devtools.send("Memory.getDOMCounters"))
                    await shown.evaluate("new Promise(requestAnimationFrame)")
                return {what: min(found[what] for found in rounds) for what in rounds[0]}

            before = await counted(30)
            after = await counted(300)
            assert all(after[what] - before[what] < 270 for what in before), (before, after)  # not one for each change
            assert page.server.streams == 1
            await shown.goto(f"{page.address}/pods")
            cluster.put(pod("newcomer", mib=100))
            await shown.wait_for_selector("text=default/newcomer", timeout=60_000)

    look(at)


def test_a_page_whose_server_was_started_anew_asks_for_the_new_token() -> None:
    async def at(browser: Browser, page: OpenPage, cluster: FakeCluster) -> None:
        async with tab(browser, page, tolerated=("401", "404")) as shown:
            await shown.goto(f"{page.address}/pods")
            page.server.guard = Guard("another token")
            cluster.put(pod("another", mib=100))
            await shown.wait_for_selector("#token", timeout=60_000)

    look(at)


def test_what_strangers_wrote_runs_nowhere() -> None:
    async def at(browser: Browser, page: OpenPage, cluster: FakeCluster) -> None:
        async with tab(browser, page) as shown:
            for path in ("node?name=n1", "pod?namespace=default&name=odd", f"search?q={HOSTILE}", f"?q={HOSTILE}"):
                await shown.goto(f"{page.address}/{path}")
                assert await shown.evaluate("window.hacked") is None, path
                assert "onerror=window.hacked" in await shown.content(), path

    look(at)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_every_page_passes_the_rules_of_axe_core_and_fits_a_phone(scheme: str, width: int) -> None:
    async def at(browser: Browser, page: OpenPage, cluster: FakeCluster) -> None:
        rules, broken = Axe(), []
        async with tab(browser, page, color_scheme=scheme, viewport={"width": width, "height": 800}) as shown:
            for path in PAGES:
                await shown.goto(f"{page.address}/{path}")
                found: Sequence[Any] = (await rules.run(shown)).response["violations"]
                broken += [(path, each["id"], each["nodes"][0]["html"][:200]) for each in found]
                wide = await shown.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                if wide > 0:
                    broken.append((path, "wider than the screen by", wide))
        assert broken == []

    look(at)


def test_a_keyboard_reaches_everything_and_the_first_key_skips_the_menu() -> None:
    async def at(browser: Browser, page: OpenPage, cluster: FakeCluster) -> None:
        async with tab(browser, page) as shown:
            await shown.keyboard.press("Tab")
            assert await shown.evaluate("document.activeElement.className") == "skip"
            await shown.keyboard.press("Enter")
            assert await shown.evaluate("document.activeElement.id") == "main"
            reached = set()
            for _ in range(60):
                await shown.keyboard.press("Tab")
                reached.add(await shown.evaluate("document.activeElement.getAttribute('href') || document.activeElement.id"))
            assert {"card?node=n1&uuid=GPU-n1-0", "node?name=n1", "q", "sort"} <= reached

    look(at)


# -- In the cluster, where the API server's proxy lets no Authorization through --------------------------------------


def viewed(at: Callable[[Page, OpenPage, ReviewingCluster], Awaitable[None]]) -> None:
    """A tab without any token, in front of the page as a Deployment serves it."""

    async def run() -> None:
        cluster = ReviewingCluster()
        cluster.put(*(obj for plural in ("nodes", "pods", "queues", "podgroups") for obj in some_cluster().all(plural)))
        cluster.users, cluster.rights = {"typed-once": "admin"}, {"admin": {("*", "")}}
        async with open_for_viewers(cluster) as (page, _), chromium() as browser:
            context = await browser.new_context(viewport={"width": 360, "height": 800})
            shown, wrong = await context.new_page(), list[str]()
            shown.on("pageerror", lambda error: wrong.append(str(error)))
            shown.on("request", lambda asked: wrong.append(asked.url) if "typed-once" in asked.url else None)
            await shown.goto(f"{page.address}/pods")
            await at(shown, page, cluster)
            assert wrong == []

    asyncio.run(asyncio.wait_for(run(), 280))


def test_a_token_that_was_typed_once_opens_page_after_page_and_is_kept_nowhere() -> None:
    async def at(shown: Page, page: OpenPage, cluster: ReviewingCluster) -> None:
        await shown.fill("#token", "nobody's")
        await shown.keyboard.press("Enter")
        await shown.wait_for_selector("#wrong:not([hidden])")
        await shown.fill("#token", "typed-once")
        await shown.keyboard.press("Enter")
        await shown.wait_for_selector("text=default/late")
        await shown.evaluate("window.same = 1")
        await shown.click("text=default/late")
        await shown.wait_for_selector("h1:has-text('Pod default/late')")
        assert shown.url == f"{page.address}/pod?namespace=default&name=late"
        await shown.fill("#search", "n1")
        await shown.keyboard.press("Enter")
        await shown.wait_for_selector("h1:has-text('Search: n1')")
        await shown.go_back()
        await shown.wait_for_selector("h1:has-text('Pod default/late')")
        await shown.click("text=Pods")
        await shown.wait_for_selector("text=default/late")
        cluster.put(pod("newcomer", mib=100))
        await shown.wait_for_selector("text=default/newcomer", timeout=60_000)
        assert await shown.evaluate("window.same") == 1
        kept = "document.cookie + JSON.stringify([localStorage, sessionStorage]) + document.documentElement.outerHTML"
        assert "typed-once" not in await shown.evaluate(kept)
        assert (await Axe().run(shown)).response["violations"] == []
        await shown.reload()
        await shown.wait_for_selector("#token")
        assert "default/late" not in await shown.content()
        assert (await Axe().run(shown)).response["violations"] == []

    viewed(at)


def test_a_token_that_ends_takes_what_it_showed_out_of_the_tab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumice.web.rights.TOKEN_KEPT", 0.2)

    async def at(shown: Page, page: OpenPage, cluster: ReviewingCluster) -> None:
        await shown.fill("#token", "typed-once")
        await shown.keyboard.press("Enter")
        await shown.wait_for_selector("text=default/late")
        cluster.users.clear()
        cluster.put(pod("newcomer", mib=100))
        await shown.wait_for_selector("#token", timeout=60_000)
        assert "default/late" not in await shown.content()

    viewed(at)
