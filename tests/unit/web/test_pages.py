"""The pages of a cluster, asked for by HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest
from kit import claims, fake_cluster
from kit.fake_cluster import FakeCluster
from kit.objects import VGPU, group, node, pod, queue

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import OpenPage, open_page

from pumice.ports.cluster import ApiError
from pumice.web.monitors import Monitors
from pumice.web.rendering import Templates

Json = dict[str, Any]


def placed(name: str, on: str, card: int, mib: int, cores: int = 0, **more: Any) -> Json:
    """A pod that runs with a share of a card."""
    made = pod(name, cards=1, mib=mib, cores=cores or None, nodeName=on, **more)
    made["metadata"]["annotations"] |= {
        f"{VGPU}-ids-new": f"GPU-{on}-{card},NVIDIA,{mib},{cores}:", f"{VGPU}-node": on, f"{VGPU}-time": "1",
    }  # fmt: skip
    made["status"] = {"phase": "Running"}
    return made


def look(*objects: Json, at: Callable[[OpenPage, FakeCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster = FakeCluster()
        cluster.put(*objects)
        async with open_page(cluster) as page:
            await at(page, cluster)

    asyncio.run(asyncio.wait_for(run(), 100))


def test_a_cluster_shows_each_card_with_its_shares_and_nodes_without_cards_with_the_cause() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        answer = await page.get()
        assert answer.status == 200
        assert "2 nodes" in answer.words
        assert "2 pods hold a part of a card" in answer.words
        assert "5000/8000 MiB, 30 %, 2/10 shares" in answer.words
        assert "it registers no cards (no annotation volcano.sh/node-vgpu-register)" in answer.words
        assert "default/a: 3000 MiB" in answer.words
        assert 'aria-label="Memory of card 0: 5000 of 8000 MiB promised (62 %)"' in answer.text

    look(node("n1", cards=2), node("n2"), placed("a", "n1", 0, 3000, 30), placed("b", "n1", 0, 2000), at=at)


def test_memory_that_is_promised_twice_is_seen_as_more_than_all() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        card = await page.get("card?node=n1&uuid=GPU-n1-0")
        assert "limit 12000 of 8000 MiB (150 %)" in card.words
        assert "More is promised than there is" in card.words
        assert 'class="over"' in card.text
        assert "12000 (75 %)" in (await page.get()).words

    look(node("n1", cards=2), placed("a", "n1", 0, 6000), placed("b", "n1", 0, 6000), at=at)


def test_a_pod_that_waits_says_why_card_by_card_and_what_would_let_it_in() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        answer = await page.get("pod?namespace=default&name=late")
        assert "0/1 nodes are unavailable" in answer.words
        assert "Why not there: 1 of 1 nodes refuse it" in answer.words
        assert "wants memory 4000 MiB, 2000 MiB is free" in answer.words
        assert "ask for memory 3000 MiB instead of 4000" in answer.words

    look(node("n1", cards=2), placed("a", "n1", 0, 6000), placed("b", "n1", 1, 5000), pod("late", mib=4000), at=at)


def test_a_pod_with_its_card_by_claim_shows_what_it_uses_and_one_with_other_devices_says_nothing_of_cards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def told(what: str) -> str:
        return ('hami_vgpu_memory_used_bytes{container="c",device_uuid="u",namespace="default",pod="p",zone="vGPU",claim="c"} '
                "3145728") if what == "metrics" else "{}"  # fmt: skip

    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        assert "Used now: 3 MiB" in (await page.get("pod?name=p")).words
        assert "Used now" not in (await page.get("pod?name=other")).words

    monkeypatch.setattr(Monitors, "_page", lambda self, name, what="metrics": told(what))
    pods = [pod(name, nodeName="n1", resourceClaims=[{"name": "mine", "resourceClaimName": "c"}]) for name in ("p", "other")]
    for each in pods:
        each["status"] = {"phase": "Running"}
    look(node("n1", cards=1), *pods, at=at)


def test_what_nobody_tells_is_unknown_with_its_cause_and_never_0() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        answer = await page.get("node?name=n1")
        assert "What is used now is unknown: no monitor runs on n1" in answer.words
        row = re.search(r'default/a</a>.*?</tr>', answer.text, re.DOTALL)
        assert row is not None
        assert "unknown: no monitor runs on n1" in row[0]
        assert "Asked 3000 MiB, limit 3000 MiB, in use unknown: no monitor runs on n1" in (await page.get("")).words

    look(node("n1", cards=1), placed("a", "n1", 0, 3000), at=at)


HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'><svg/onload=alert(1)>", "javascript:alert(1)",
    "{{ 31337*31337 }}{% x %}", "</title><script>alert(1)</script>", "\u202egnp.exe", "&lt;b&gt;", "a" * 5000,
)  # fmt: skip
WORDS = """html head meta title link script body a header nav ul ol li form label input button p main h1 h2 h3 footer time strong
    dl dt dd div table caption thead tbody tr th td section details summary svg rect span select option code"""
OURS = frozenset(WORDS.split())
"""The elements that our templates write."""


class Tags(HTMLParser):
    """Collects what in a document is not of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.strange: list[str] = []
        self.scripts = 0
        self.svg = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag not in OURS:
            self.strange.append(f"<{tag}>")
        for name, value in attrs:
            leads = name in ("href", "src", "action") and re.match(r"[\s\x00-\x1f]*(?:[a-z+.-]+:|/)", value or "", re.IGNORECASE)
            if leads or name.startswith("on") or name in ("style", "srcdoc", "formaction", "xlink:href"):
                self.strange.append(f"{tag} {name}={value}")


@pytest.mark.parametrize("word", HOSTILE)
def test_names_and_annotations_of_strangers_are_text(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served = {"resourceclaims": "ResourceClaim", "resourceslices": "ResourceSlice", "deviceclasses": "DeviceClass"}
    for plural, kind in served.items():
        monkeypatch.setitem(fake_cluster.KINDS, plural, kind)
        monkeypatch.setitem(fake_cluster.PLURALS, kind, plural)
    plain = word.replace(",", "").replace(":", "")
    odd = node("n1", cards=1, register=f"GPU-x{plain},10,8000,NVIDIA-{plain},true,hami-core:", labels={"example.com/x": word},
               taints=[{"key": word, "effect": "NoSchedule"}])  # fmt: skip
    late = pod("late", mib=9000)
    late["metadata"]["name"] = word
    late["status"]["conditions"] = [{"type": word, "status": word, "reason": word, "message": word}]
    late["spec"]["containers"][0]["name"] = word
    claim = {"kind": "ResourceClaim", **claims.claim(claims.asks(word, deviceClassName=word), name=word)}
    offered = {"kind": "ResourceSlice",
               **claims.published(claims.device("d", attributes={"productName": {"string": word}}) | {"name": word})}  # fmt: skip
    claimer = pod("claimer", tolerations=[{"operator": "Exists"}], resourceClaims=[{"name": word, "resourceClaimName": word}])
    part = quote(word[:150], safe="")
    paths = ("pod?name=claimer", "",
             "node?name=n1", "pods", "waiting", "queues", "jobs", "changes", f"search?q={part}", f"?q={part}", part,
             f"pod?namespace=default&name={quote(word)}", f"queue?name={part}", f"node?name={part}",
             f"card?node=n1&uuid=GPU-x{quote(plain)}", f"card?node=n1&uuid={part}", f"login?next={part}")  # fmt: skip

    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        seen = 0
        for path in paths:
            answer = await page.get(path)
            assert answer.status in (200, 404), (path, answer.status, answer.text[:500])
            tags = Tags()
            tags.feed(answer.text)
            assert (tags.strange, tags.scripts <= 1) == ([], True), path
            seen += word[:100] in answer.words
            assert path != "pod?name=claimer" or word[:50] in answer.words
            assert "982007569" not in answer.words  # what a template engine would make of one of them
        assert seen > 5 or "  " in word or word.startswith("&")

    claim["metadata"]["namespace"] = "default"
    look(odd, late, claim, offered, claimer, queue("q"), at=at)


def test_who_has_no_token_sees_nothing_of_the_cluster() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        for path in ("", "pods", "node?name=n1", "events", "nope"):
            answer = await page.get(path, token=None)
            assert (answer.status, "n1" in answer.words) == (401, False), path
        assert (await page.get("", token="wrong")).status == 401
        assert (await page.get("?token=wrong", token=None)).status == 401
        assert (await page.get("static/web.css", token=None)).status == 200

    look(node("n1", cards=1), at=at)


def test_the_token_in_the_address_is_exchanged_for_a_cookie_that_no_script_reads_and_leaves_the_address() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        answer = await page.get("node?name=n1&token=the-token-of-the-tests", token=None)
        assert (answer.status, answer.headers["Location"]) == (303, "node?name=n1")
        cookie = answer.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
        assert "the-token" not in cookie
        name, _, value = cookie.partition(";")[0].partition("=")
        assert name == f"pumice-web-{page.port}"
        assert "n1" in (await page.get("node?name=n1", token=None, Cookie=f"{name}={value}")).words
        assert (await page.get("", token=None, Cookie=f"{name}={value}x")).status == 401

    look(node("n1", cards=1), at=at)


def test_a_typed_token_opens_the_page_that_was_asked_for_and_no_page_of_others() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        for after, expected in (("pod?name=a", "pod?name=a"), ("//evil.example", "./"), ("https://evil.example", "./"),
                                ("", "./"), ("x\r\nSet-Cookie: a=b", "./"), ("javascript:alert(1)", "./")):  # fmt: skip
            form = {"token": "the-token-of-the-tests", "next": after}
            async with page.session.post(f"{page.address}/login", data=form, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, expected)
        async with page.session.post(f"{page.address}/login", data={"token": "no"}, allow_redirects=False) as answer:
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
        elsewhere = {"Origin": "https://evil.example"}
        async with page.session.post(f"{page.address}/login", data={"token": "no"}, headers=elsewhere) as answer:
            assert answer.status == 403
        async with page.session.post(f"{page.address}/login", data={"token": "x" * 100_000}) as answer:
            assert answer.status in (400, 401, 413)

    look(at=at)


def test_a_site_that_gives_this_machine_its_own_name_is_refused() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        assert (await page.get("", Host="evil.example")).status == 421
        assert (await page.get("", Host=f"localhost:{page.port}")).status == 200

    look(at=at)


def test_every_answer_forbids_frames_foreign_scripts_and_being_kept() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        for path in ("", "nope", "static/web.js", "static/nope", "login"):
            headers = (await page.get(path)).headers
            assert "script-src 'self'" in headers["Content-Security-Policy"], path
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
        text = (await page.get()).text
        assert not re.findall(r"""(?:src|href|action)=["'](?:[a-z]+:|/)""", text)

    look(node("n1", cards=1), at=at)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(method: str) -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        before = cluster.store.version
        assert (await page.get("pods", method=method)).status == 405
        assert cluster.store.version == before

    look(at=at)


def test_a_page_that_has_not_changed_is_not_sent_again_and_one_that_has_is() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        tag = (await page.get("node?name=n1")).headers["ETag"]
        assert (await page.get("node?name=n1", If_None_Match=tag)).status == 304
        cluster.put(placed("a", "n1", 0, 3000))
        async with asyncio.timeout(30):
            while (answer := await page.get("node?name=n1", If_None_Match=tag)).status == 304:
                await asyncio.sleep(0.05)
        assert "default/a" in answer.words

    look(node("n1", cards=1), at=at)


def test_when_the_api_server_is_away_the_page_says_since_when_its_figures_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumice.web.following.PROBE", 0.05)
    monkeypatch.setattr("pumice.web.following.SILENT_AFTER", 0.3)

    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        async def away(verb: str, path: str) -> None:
            raise ApiError(0, "Unreachable", "no route to host")

        cluster.gate, open_gate = away, cluster.gate
        cluster.hang_up()
        async with asyncio.timeout(30):
            while "These figures are old" not in (answer := await page.get()).words:
                await asyncio.sleep(0.05)
        assert "has not answered since 20" in answer.words
        assert "n1" in answer.words
        told = await page.get("pod?namespace=default&name=a")
        assert "could not be read" in told.words
        assert "runs on n1" in told.words
        cluster.gate = open_gate
        async with asyncio.timeout(30):
            while "These figures are old" in (await page.get()).words:
                await asyncio.sleep(0.05)

    look(node("n1", cards=1), placed("a", "n1", 0, 3000), at=at)


def test_what_the_credentials_may_not_list_is_said_and_the_rest_is_shown() -> None:
    async def run() -> None:
        cluster = FakeCluster()
        cluster.put(node("n1", cards=1), placed("a", "n1", 0, 3000))

        async def no_pods(verb: str, path: str) -> None:
            if path.endswith("/pods"):
                raise ApiError(403, "Forbidden", 'pods is forbidden: User "eve" cannot list resource "pods"')

        cluster.gate = no_pods
        async with open_page(cluster) as page:
            answer = await page.get()
            assert "Who holds what is unknown: pods could not be listed (403 Forbidden: pods is forbidden" in answer.words
            assert "GPU" in answer.text

    asyncio.run(asyncio.wait_for(run(), 60))


def test_before_the_lists_are_complete_the_page_says_so() -> None:
    async def run() -> None:
        cluster = FakeCluster()
        cluster.put(node("n1", cards=1), pod("late", mib=9000))
        here = asyncio.Event()

        async def slow(verb: str, path: str) -> None:
            if path.endswith("/pods"):
                await here.wait()

        cluster.gate = slow
        async with open_page(cluster, synced=False) as page:
            async with asyncio.timeout(30):
                while page.following.unsynced != {"pods"}:
                    await asyncio.sleep(0.01)
            assert "Not complete yet: pods are still being listed" in (await page.get()).words
            assert "Why it waits is unknown: the lists are not complete yet" in (await page.get("pod?name=late")).words
            assert (await page.get("queues")).status == 404
            here.set()
            await page.synced()
            await asyncio.sleep(1)
            assert "Not complete yet" not in (await page.get("jobs")).words
            assert "0/1 nodes are unavailable" in (await page.get("pod?name=late")).words

    asyncio.run(asyncio.wait_for(run(), 60))


def test_queues_are_a_tree_with_who_waits_in_each() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        assert "team" in (await page.get("queues")).words
        answer = await page.get("queue?name=team")
        assert "0 have a place, 1 wait" in answer.words
        assert "default/g (1 pod): " in answer.words
        assert (await page.get("queue?name=nope")).status == 404

    look(node("n1", cards=1), queue("team"), group("g", minimum=1, queue="team"), pod("late", mib=9000, group="g"), at=at)


def test_a_queue_with_less_than_it_deserves_names_who_borrows_what_it_waits_for() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        answer = await page.get("queue?name=poor")
        assert "Who borrows what it waits for It has less than it deserves. rich : 2 cpu" in answer.words
        assert "Who borrows" not in (await page.get("queue?name=rich")).words

    groups = group("r", minimum=1, queue="rich"), group("p", minimum=1, queue="poor")
    pods = pod("holds", cpu="6", group="r", nodeName="n1"), pod("late", cpu="4", group="p")
    look(node("n1", cpu="8"), queue("rich"), queue("poor"), *groups, *pods, at=at)


def test_a_gang_says_how_many_members_lack_a_place() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        assert "default/g" in (await page.get("jobs")).words
        answer = await page.get("job?namespace=default&name=g")
        assert "waits, 2 of 2 members lack a place" in answer.words
        assert "m0" in answer.words
        assert "default/g" in (await page.get("waiting")).words
        assert (await page.get("job?namespace=default&name=nope")).status == 404

    members = [pod(f"m{i}", mib=6000, group="g") for i in range(2)]
    look(node("n1", cards=1), group("g", minimum=2), *members, at=at)


def test_search_finds_pods_nodes_cards_queues_and_jobs_by_a_part_of_a_name() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        for text, found in (("ZEB", "Nodes (1) zebra"), ("alp", "Pods (1) default/alpha"), ("gpu-zebra-1", "GPU-zebra-1"),
                            ("nothing", "Nothing that is known"), ("", "Write a part of a name")):  # fmt: skip
            assert found in (await page.get(f"search?q={text}")).words, text

    look(node("zebra", cards=2), placed("alpha", "zebra", 0, 10), at=at)


def test_long_lists_come_in_pages_that_lead_to_each_other() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        for path, last in (("", 3), ("?sort=fill&page=2", 3), ("?page=99", 3), ("?page=-1", 3), ("?page=x", 3), ("pods", 2),
                           ("pods?status=Pending", 2), ("jobs", 1), ("waiting", 2)):  # fmt: skip
            answer = await page.get(path)
            assert answer.status == 200, path
            assert (f"of {last}, " in answer.words) is (last > 1), path
        assert "page=3" in (await page.get("?sort=fill&page=2")).text
        assert "n60" not in (await page.get("")).words

    look(*(node(f"n{i}", cards=1) for i in range(70)), *(pod(f"p{i}", mib=9000) for i in range(120)), at=at)


def test_what_changes_is_listed_the_newest_first() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        sick = {"metadata": {"annotations": {"volcano.sh/node-vgpu-register": "GPU-n1-0,10,8000,NVIDIA-T4,false,hami-core:"}}}
        for number, happens in enumerate((
            lambda: cluster.put(placed("a", "n1", 0, 10)), lambda: cluster.put(node("n2", cards=1)),
            lambda: cluster.change("nodes", "n1", sick),
        ), start=1):  # fmt: skip
            happens()
            async with asyncio.timeout(30):
                while page.following.changes.number < number:
                    await asyncio.sleep(0.01)
        words = (await page.get("changes")).words
        told = [words.index(text) for text in ("is closed: registered as unhealthy", "n2 has come", "default/a runs on n1")]
        assert told == sorted(told)

    look(node("n1", cards=1), at=at)


def test_pages_are_drawn_once_for_many_who_look() -> None:
    async def at(page: OpenPage, cluster: FakeCluster) -> None:
        drawn = []

        class Counting(Templates):
            def render(self, name: str, words: Mapping[str, Any]) -> str:
                drawn.append(name)
                return super().render(name, words)

        page.server._templates = Counting()
        answers = await asyncio.gather(*(page.get("queues") for _ in range(50)))
        assert {answer.status for answer in answers} == {200}
        assert 1 <= len(drawn) <= 3

    look(node("n1", cards=1), at=at)
