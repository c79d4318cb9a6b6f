"""The pages of one machine without a cluster, asked for by HTTP: what drivers, bookings and regions say, and what they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

import aiohttp
from kit.web_page import TOKEN, words_of

from pumice.adapters.bookings.book import BookedCard, Booking
from pumice.local.place import Place
from pumice.local.shares import CardShare, Share
from pumice.model.errors import Unavailable
from pumice.ports.cards import CardReading
from pumice.web.guard import Guard
from pumice.web.machine_site import FRESH, Looked, MachineSite
from pumice.web.server import Server, served
from pumice.wire.nvidia_vgpu import PodDevice

MIB = 1 << 20


class FakeClock:
    """Stands still but for ``advance``."""

    def __init__(self, at: float) -> None:
        self.at, self._moved = at, asyncio.Event()

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        end = self.at + seconds
        while self.at < end:
            await self._moved.wait()

    async def advance(self, seconds: float) -> None:
        self.at += seconds
        self._moved.set()
        self._moved = asyncio.Event()
        await asyncio.sleep(0.05)


CARDS = (CardReading(0, "GPU-0", 1200 * MIB, 8000 * MIB, 70, name="Tesla T4"),
         CardReading(1, "GPU-1", 0, 8000 * MIB, -1, name="Tesla T4"))  # fmt: skip


def program(name: str, *cards: tuple[int, int, int, int, int], command: str = "train.py", note: str = "") -> Share:
    """Of each card index, MiB and percent that it is limited to, and MiB and percent in use."""
    made = Booking(name, 4711, 1, 1000, ["python", command], [BookedCard(index, "Tesla T4", 8000) for index, *_ in cards],
                   f"/run/{name}/vgpu.cache", {}, 100.0)  # fmt: skip
    return Share(made, Place(made.id), (4711, 4712), tuple(  # type: ignore[arg-type]
        CardShare(BookedCard(index, "Tesla T4", 8000), PodDevice(f"GPU-{index}", memory, cores), used * MIB, busy)
        for index, memory, cores, used, busy in cards
    ), note=note)  # fmt: skip


Get = Callable[..., Awaitable[tuple[int, str, str]]]


def look(found: Callable[[], Looked], at: Callable[[Get, MachineSite, FakeClock], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = FakeClock(1000.0)
        site = MachineSite("workstation", found, clock)
        async with served(Server(site, Guard(TOKEN)), "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:

            async def get(path: str = "") -> tuple[int, str, str]:
                """(status, words, HTML)."""
                headers = {"Authorization": f"Bearer {TOKEN}"}
                async with session.get(f"http://127.0.0.1:{port}/{path}", headers=headers) as answer:
                    text = await answer.text()
                    return answer.status, words_of(text), text

            await at(get, site, clock)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_cards_are_bars_of_the_programs_on_them_with_limit_and_use_apart() -> None:
    async def at(get: Get, site: MachineSite, clock: FakeClock) -> None:
        status, words, text = await get()
        assert (status, "Machine workstation" in words) == (200, True)
        assert "limit 3000 of 8000 MiB (38 %)" in words
        assert "In use: 1200 MiB of 8000 MiB (15 %), busy 70 %" in words
        assert "the driver does not tell how busy it is" in words
        assert "3000 MiB 50 % 900 MiB, 40 % of cores" in words
        assert 'aria-label="Memory of card 0: 3000 of 8000 MiB promised (38 %)"' in text
        assert "r1: 3000 MiB" in words
        status, words, _ = await get("card?node=workstation&uuid=GPU-1")
        assert "Nobody is on it" in words

    look(lambda: Looked(5.0, CARDS, (program("r1", (0, 3000, 50, 900, 40)),)), at)


def test_a_program_has_a_page_with_each_of_its_cards_and_is_found_by_command_and_pid() -> None:
    shares = (program("r1", (0, 3000, 50, 900, 40), (1, 2000, 0, 100, 0)), program("r2", (1, 100, 0, 1, 0), command="other"))

    async def at(get: Get, site: MachineSite, clock: FakeClock) -> None:
        _, words, text = await get("program?id=r1")
        assert "python train.py" in words
        assert "3000 MiB 900 MiB" in words
        assert "2000 MiB 100 MiB" in words
        assert "no limit -" in words
        assert "4711, and 1 more processes in the share" in words
        assert 'href="card?node=workstation&amp;uuid=GPU-1"' in text
        for query, there in (("train", True), ("4711", True), ("nope", False), ("", True)):
            assert ("r1" in (await get(f"programs?q={query}"))[1]) is there, query
        assert (await get("program?id=nope"))[0] == 404
        assert (await get("card?uuid=nope"))[0] == 404
        assert (await get("pods"))[0] == 404

    look(lambda: Looked(5.0, CARDS, shares), at)


def test_a_region_that_cannot_be_read_is_unknown_with_its_cause_and_never_0() -> None:
    async def at(get: Get, site: MachineSite, clock: FakeClock) -> None:
        for path in ("", "card?uuid=GPU-0", "program?id=r1"):
            _, words, _ = await get(path)
            assert "unknown: damaged, it ends in the middle" in words, path
            assert " 0 MiB, " not in words, path

    looked = Looked(5.0, CARDS[:1], (program("r1", (0, 3000, 50, 0, 0), note="damaged, it ends in the middle"),))
    look(lambda: looked, at)


def test_a_card_that_is_booked_and_that_no_driver_tells_of_is_shown() -> None:
    async def at(get: Get, site: MachineSite, clock: FakeClock) -> None:
        _, words, _ = await get()
        assert "No NVIDIA driver answers here" in words
        assert "limit 3000 of 8000 MiB" in words
        assert "In use:" not in words

    look(lambda: Looked(5.0, (), (program("r1", (0, 3000, 50, 900, 40)),), ("No NVIDIA driver answers here.",)), at)


def test_a_driver_that_goes_away_leaves_the_last_figures_and_says_of_when_they_are() -> None:
    away = False

    def found() -> Looked:
        if away:
            raise Unavailable("the driver was unloaded")
        return Looked(5.0, CARDS, ())

    async def at(get: Get, site: MachineSite, clock: FakeClock) -> None:
        nonlocal away
        assert "could not be looked at" not in (await get())[1]
        away = True
        await clock.advance(FRESH + 1)
        await asyncio.sleep(0.6)  # pages are kept for half a second
        _, words, _ = await get()
        assert "The machine could not be looked at: the driver was unloaded" in words
        assert "Tesla T4" in words
        assert "Figures of 1970-01-01 00:00:05 UTC" in words

    look(found, at)


def test_the_machine_is_looked_at_once_for_many_and_not_at_all_when_nobody_looks() -> None:
    looks = 0

    def found() -> Looked:
        nonlocal looks
        looks += 1
        return Looked(float(looks), CARDS, (program("r1", (0, 3000, 50, looks, 40)),))

    async def at(get: Get, site: MachineSite, clock: FakeClock) -> None:
        await asyncio.gather(*(get(f"programs?q={number}") for number in range(30)))
        assert (looks, site.version) == (1, 1)
        open_pages = 0
        keeping = asyncio.ensure_future(site.keep_fresh(lambda: open_pages > 0))
        await clock.advance(10)
        assert looks == 1
        open_pages = 1
        await clock.advance(FRESH)
        async with asyncio.timeout(30):
            while looks < 2:
                await asyncio.sleep(0.01)
        keeping.cancel()

    look(found, at)


@pytest.mark.parametrize("word", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 31337*31337 }}"])
def test_a_command_line_is_text(word: str) -> None:
    async def at(get: Get, site: MachineSite, clock: FakeClock) -> None:
        for path in ("programs", "program?id=r1"):
            _, words, text = await get(path)
            assert word in words
            assert not any(made in text for made in ("<script>alert", "<img", "982007569"))

    look(lambda: Looked(5.0, CARDS, (program("r1", (0, 3000, 50, 900, 40), command=word),)), at)
