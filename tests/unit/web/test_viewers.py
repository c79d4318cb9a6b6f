"""The page in a cluster: who looks is known by his own token, and sees what he may list and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from kit.objects import VGPU, group, node, pod, queue

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.fake_cluster import FakeCluster
from kit.web_page import OpenPage, ReviewingCluster, open_for_viewers

from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.web import rights, viewers
from pumice.web.following import Configuration, WallClock
from pumice.web.monitors import Monitors, NodeUse
from pumice.web.rights import Reviews, Rights
from pumice.web.values import Use
from pumice.web.viewers import Viewers
from pumice_lab.first_objects import SCHEDULER_CONF

ALL, SOME, NOBODY = "token-of-all", "token-of-some", "token-of-nobody"
PAGES = ("", "pods", "node?name=n1", "card?node=n1&uuid=GPU-n1-0", "waiting", "queues", "jobs", "changes", "search?q=secret",
         "search?q=b", "pod?namespace=b&name=secret", "queue?name=team", "job?namespace=b&name=secret-gang")  # fmt: skip


def held(name: str, space: str, mib: int) -> Json:
    made = pod(name, cards=1, mib=mib, cores=10, nodeName="n1")
    made["metadata"]["namespace"] = space
    made["metadata"]["uid"] = f"{space}-{name}"
    made["metadata"]["annotations"] |= {
        f"{VGPU}-ids-new": f"GPU-n1-0,NVIDIA,{mib},10:", f"{VGPU}-node": "n1", f"{VGPU}-time": "1",
    }  # fmt: skip
    made["status"] = {"phase": "Running"}
    return made


def in_space(obj: Json, space: str) -> Json:
    obj["metadata"] |= {"namespace": space, "uid": f"{space}-{obj['metadata']['name']}"}
    return obj


def two_tenants() -> ReviewingCluster:
    cluster = ReviewingCluster()
    cluster.put(node("n1", cards=2), held("mine", "a", 1000), held("secret", "b", 2345), queue("team"),
                in_space(group("secret-gang", minimum=2, queue="team"), "b"), in_space(pod("secret-late", mib=9000), "b"),
                in_space(pod("late", mib=9000), "a"))  # fmt: skip
    cluster.users = {ALL: "admin", SOME: "eve", NOBODY: "mallory"}
    cluster.rights = {"admin": {("*", "")}, "eve": {("nodes", ""), ("pods", "a"), ("events", "a")}}
    return cluster


class Told:
    """Monitors that know two pods."""

    clock = WallClock()

    async def of_node(self, node: str) -> NodeUse:
        return NodeUse(1.0, {"a/mine": Use(123 << 20, 1000 << 20, 5.0), "b/secret": Use(777 << 20, 2345 << 20, 5.0)})

    async def history(self, node: str, namespace: str, pod: str) -> tuple[None, str]:
        return None, f"asked for {namespace}/{pod}"


def look(at: Callable[[OpenPage, Viewers, ReviewingCluster], Awaitable[None]], monitors: object = None) -> None:
    async def run() -> None:
        cluster = two_tenants()
        async with open_for_viewers(cluster, monitors) as (page, known):  # type: ignore[arg-type]
            await at(page, known, cluster)

    asyncio.run(asyncio.wait_for(run(), 100))


async def complete(page: OpenPage, token: str) -> None:
    async with asyncio.timeout(60):
        while "Not complete yet" in (await page.get("", token=token)).words:
            await asyncio.sleep(0.02)


def test_what_somebody_may_not_list_is_on_no_page_of_his_and_in_no_total() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        whole = await page.get("", token=ALL)
        assert "2 pods hold a part of a card , 2 pods wait" in whole.words
        assert "3345/8000 MiB" in whole.words
        await complete(page, SOME)
        for path in PAGES:
            answer = await page.get(path, token=SOME)
            words = answer.text.replace("q=secret", "").replace(path, "")
            for hidden in ("secret-late", "secret-gang</a>", "b/secret:", "2345", "3345", "777"):
                assert hidden not in words, (path, hidden)
        mine = await page.get("", token=SOME)
        assert "1 pods hold a part of a card , 1 pods wait" in mine.words
        assert "1000/8000 MiB" in mine.words
        assert "You may list pods in a alone" in mine.words
        assert "Queues are unknown: queues could not be listed (403 Forbidden: you may not list queues)" in mine.words
        assert (await page.get("pod?namespace=b&name=secret", token=SOME)).status == 404
        assert (await page.get("pod?namespace=b&name=secret", token=ALL)).status == 200

    look(at, Told())


def test_what_is_wrong_with_the_configuration_is_quoted_only_to_who_may_read_it() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        refused = Configuration(SCHEDULER_CONF, "", remarks=("ConfigMap x/y is refused: unknown plugin 'classified'",))

        async def configured(cluster: Cluster) -> Configuration:
            return refused

        known.configured = configured
        known.whole.site.following._take(refused)
        assert "unknown plugin 'classified'" in (await page.get("", token=ALL)).words
        for token in (SOME, NOBODY):
            await complete(page, token)
            words = (await page.get("", token=token)).words
            assert ("classified" in words, "configuration is remarkable" in words) == (False, True)

    look(at)


def test_figures_of_monitors_are_shown_of_ones_own_pods_alone() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        await complete(page, SOME)
        assert "in use 123 MiB" in (await page.get("", token=SOME)).words
        assert "in use 900 MiB" in (await page.get("", token=ALL)).words
        assert 'aria-label="Memory in use of the limits of its pods: 12 %"' in (await page.get("", token=SOME)).text
        assert 'aria-label="Memory in use of the limits of its pods: 27 %"' in (await page.get("", token=ALL)).text
        assert "123 MiB" in (await page.get("node?name=n1", token=SOME)).words
        assert "777 MiB" not in (await page.get("node?name=n1", token=SOME)).words
        assert "777 MiB" in (await page.get("node?name=n1", token=ALL)).words
        book = await known.of(SOME)
        assert book is not None
        assert await book.site.pages.monitors.history("n1", "b", "secret") == (None, "you may not list pods in b")
        assert await book.site.pages.monitors.history("n1", "a", "mine") == (None, "asked for a/mine")

    look(at, Told())


def test_who_is_known_and_may_nothing_sees_nothing_of_the_cluster() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        await complete(page, NOBODY)
        for path in PAGES:
            answer = await page.get(path, token=NOBODY)
            for hidden in ("secret-late", "a/mine", "GPU-n1-0 ", "Tesla", "2345"):
                assert hidden not in answer.words.replace("card GPU-n1-0", ""), (path, hidden)
        assert "0 nodes" in (await page.get("", token=NOBODY)).words

    look(at)


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": "Bearer "}, {"Authorization": "Basic dG9rZW4tb2YtYWxs"}, {"Authorization": "Bearer who knows"},
    {"X-Pumice-Token": "nobody's"}, {"X-Pumice-Token": "x" * 8000}, {"X-Pumice-Token": "\u00fc"},
    {"X-Pumice-Token": "nobody's", "Authorization": f"Bearer {ALL}"}, {"Cookie": f"pumice-web={ALL}"},
    {"X-Remote-User": "admin", "X-Forwarded-User": "admin", "Impersonate-User": "admin"}])  # fmt: skip
def test_headers_that_bring_no_token_that_the_api_server_knows_open_nothing(headers: dict[str, str]) -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        for path in ("", "pods", "events", f"?token={ALL}", "login", "nope"):
            async with page.session.get(f"{page.address}/{path}", headers=headers, allow_redirects=False) as answer:
                text = await answer.text()
                assert answer.status in (401, 404), path
                assert "secret" not in text, path
                assert "nodes" not in text, path
                assert "Set-Cookie" not in answer.headers, path
                assert "unsafe-inline" not in answer.headers["Content-Security-Policy"]

    look(at)


def test_a_header_of_our_own_serves_where_a_proxy_takes_authorization_away() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        answer = await page.get("pods", token=None, X_Pumice_Token=ALL, Host="kubernetes.default.svc:6443")
        assert (answer.status, "b/secret" in answer.words) == (200, True)
        assert "X-Pumice-Token" in answer.headers["Vary"]
        assert ALL not in answer.text

    look(at)


def test_a_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        for token in (ALL, SOME, "token-of-a-stranger"):
            for path in ("", "pods", "nope", "pod?namespace=a&name=mine"):
                await page.get(path, token=token)

    caplog.set_level(logging.DEBUG)
    look(at)
    assert "token-of" not in caplog.text


def test_a_token_that_ends_while_a_page_is_open_closes_its_stream_and_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "TOKEN_KEPT", 0.0)
    monkeypatch.setattr("pumice.web.server.PING", 0.05)

    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        headers = {"X-Pumice-Token": ALL}
        async with page.session.get(f"{page.address}/events", headers=headers) as stream:
            assert (await stream.content.readline()).startswith(b"data:")
            del cluster.users[ALL]
            async with asyncio.timeout(60):
                while await stream.content.readline():
                    pass
        assert (await page.get("", token=ALL)).status == 401
        async with page.session.get(f"{page.address}/events", headers=headers) as stream:
            assert stream.status == 401

    look(at)


def test_a_right_that_ends_while_a_page_is_open_takes_away_what_it_showed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "RIGHTS_KEPT", 0.0)
    monkeypatch.setattr("pumice.web.server.PING", 0.05)

    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        await complete(page, SOME)
        async with page.session.get(f"{page.address}/events", headers={"X-Pumice-Token": SOME}) as stream:
            assert (await stream.content.readline()).startswith(b"data:")
            assert "a/mine" in (await page.get("pods", token=SOME)).words
            cluster.rights["eve"] = {("nodes", "")}
            async with asyncio.timeout(60):
                while await stream.content.readline():
                    pass
        await complete(page, SOME)
        answer = await page.get("pods", token=SOME)
        assert (answer.status, "a/mine" in answer.words) == (200, False)
        cluster.rights["eve"] = {("nodes", ""), ("pods", "b")}
        await complete(page, SOME)
        answer = await page.get("pods", token=SOME)
        assert ("a/mine" in answer.words, "b/secret" in answer.words) == (False, True)

    look(at)


def test_an_api_server_that_is_away_leaves_known_viewers_their_pages_with_the_time_and_lets_nobody_new_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rights, "TOKEN_KEPT", 0.0)
    monkeypatch.setattr(rights, "RIGHTS_KEPT", 0.0)
    for name, seconds in (("PROBE", 0.02), ("SILENT_AFTER", 0.05)):
        monkeypatch.setattr(f"pumice.web.following.{name}", seconds)

    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        await complete(page, SOME)

        async def away(verb: str, path: str) -> None:
            raise ApiError(0, "Timeout", "nobody answers")

        cluster.away, cluster.gate = True, away
        async with asyncio.timeout(60):
            while "These figures are old" not in (await page.get("", token=SOME)).words:
                await asyncio.sleep(0.05)
        assert "The API server has not answered since" in (await page.get("", token=SOME)).words
        answer = await page.get("", token=NOBODY)
        assert (answer.status, answer.headers["Retry-After"], "n1" in answer.words) == (503, "10", False)
        monkeypatch.setattr(rights, "OUTAGE", -1.0)
        assert (await page.get("", token=SOME)).status == 503

    look(at)


def test_ten_thousand_viewers_leave_no_more_behind_than_a_few_thousand_answers() -> None:
    cluster = two_tenants()
    cluster.users = {f"t{n}": f"user-{n}" for n in range(10_000)}
    cluster.rights = {user: {("*", "")} for user in cluster.users.values()}

    async def run() -> None:
        reviews = Reviews(cluster, WallClock(), lambda: ("a", "b"))
        for begin in range(0, 10_000, 500):
            await asyncio.gather(*(reviews.rights(f"t{n}") for n in range(begin, begin + 500)))
        assert len(reviews._tokens) == rights.TOKENS
        assert len(reviews._users) == rights.USERS
        assert reviews._asking == {}

    asyncio.run(asyncio.wait_for(run(), 250))


def test_many_different_rights_share_few_caches_and_whoever_is_too_many_is_told_so() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        known.most_caches = 2
        for n in range(4):
            cluster.users[f"u{n}"] = f"u{n}"
            cluster.rights[f"u{n}"] = {("nodes", ""), *((("queues", ""),) if n % 2 else ()), *((("pods", "a"),) if n > 1 else ())}
        statuses = [(await page.get("pods", token=f"u{n}")).status for n in range(4)]
        assert statuses == [200, 200, 503, 503]
        monkey = pytest.MonkeyPatch()
        monkey.setattr(viewers, "FRESH", 0.0)
        assert (await page.get("pods", token="u2")).status == 200
        assert len(known._caches) == 3
        monkey.undo()
        cluster.users["twin"] = "twin"
        cluster.rights["twin"] = cluster.rights["u2"]
        assert await known.of("twin") is await known.of("u2")

    look(at)


def test_rights_are_asked_once_in_a_while_however_many_tabs_one_has_open() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        await complete(page, SOME)
        before = cluster.reviewed
        await asyncio.gather(*(page.get("pods", token=SOME) for _ in range(50)))
        assert cluster.reviewed == before

    look(at)


def test_the_probes_of_a_kubelet_need_no_token_and_tell_nothing() -> None:
    async def at(page: OpenPage, known: Viewers, cluster: ReviewingCluster) -> None:
        for path in ("healthz", "readyz"):
            answer = await page.get(path, token=None)
            assert (answer.status, answer.text) == (200, "ok\n")
        known.whole.site.following.unsynced.add("pods")
        assert (await page.get("readyz", token=None)).status == 503

    look(at)


def test_a_monitor_is_asked_at_its_own_address_without_a_right_to_proxies() -> None:
    async def run() -> tuple[str, str]:
        cluster = FakeCluster()
        beside = Monitors(cluster, WallClock(), direct=True)
        none = (await beside.of_node("n1")).unknown
        monitor = pod("m", nodeName="n1")
        monitor["metadata"] |= {"namespace": "kube-system", "labels": {"name": "volcano-vgpu-monitor"}}
        monitor["status"] = {"podIP": "127.0.0.1"}
        cluster.put(monitor)
        return none, (await beside._ask("n1")).unknown

    none, there = asyncio.run(run())
    assert "no monitor runs on n1" in none
    assert there.startswith("http://127.0.0.1:9394/metrics")


def test_rights_say_what_may_be_listed() -> None:
    from pumice.wire.kinds import NODES, PODS

    some = Rights(frozenset({("", "pods", "a"), ("", "nodes", "")}))
    assert [some.may(PODS), some.may(PODS, "a"), some.may(PODS, "b"), some.may(NODES), some.some(PODS)] == [
        False, True, False, True, True]  # fmt: skip
