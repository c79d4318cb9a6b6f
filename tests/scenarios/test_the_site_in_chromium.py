"""The documents' site as a reader has it: opened from disk in a real browser, searched in English and in Chinese.

`make docs` and `make browser` install what it takes; without either it is skipped, with the reason.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from pathlib import Path

import pytest
from kit import site

if not importlib.util.find_spec("zensical"):
    pytest.skip("the extra `docs` is not installed: make docs", allow_module_level=True)
pytest.importorskip("playwright", reason="the extra `browser` is not installed: make browser")

from playwright.async_api import Browser, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the PATH")
SEARCHES = (
    ("index.html", "binpack", "Card policies"),
    ("zh/index.html", "显存", "限制如何生效"),
    ("zh/concepts/queues.html", "抢占", "Pumice 与其他项目"),
)


def test_the_site_is_searched_from_disk_in_both_languages_and_asks_nobody(tmp_path: Path) -> None:
    assert site.build(tmp_path / "site", tmp_path / "scratch") == []
    asyncio.run(every_search(tmp_path / "site"))


async def every_search(home: Path) -> None:
    async with async_playwright() as player:
        flags = ["--no-sandbox", "--disable-gpu", "--no-proxy-server"]
        browser = await player.chromium.launch(executable_path=CHROMIUM, args=flags)
        try:
            for page, words, wanted in SEARCHES:
                assert wanted in (said := await found(browser, home / page, words)), (page, words, said)
        finally:
            await browser.close()


async def found(browser: Browser, page: Path, words: str) -> str:
    """What the search of a page shows for some words."""
    tab = await browser.new_page()
    elsewhere: list[str] = []
    tab.on("request", lambda asked: None if asked.url.startswith(("file:", "data:", "about:")) else elsewhere.append(asked.url))
    tab.on("pageerror", lambda error: elsewhere.append(str(error)))
    await tab.goto(page.as_uri())
    await tab.wait_for_selector("label[for=__search]", state="attached")
    await tab.keyboard.press("Control+k")
    await tab.locator("input[aria-autocomplete=list]").fill(words)
    results = tab.locator("[id$='-results']")
    await results.locator("a, li, [role=option]").first.wait_for(timeout=60_000)
    text = await results.inner_text()
    await tab.close()
    assert elsewhere == []
    return text
