"""What strangers on this machine, and pods that lie, try on the page."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kit.fake_cluster import FakeCluster
from kit.objects import node, pod

pytest.importorskip("jinja2", reason="the extra `web` is not installed")

from kit.web_page import TOKEN, OpenPage, open_page

from pumice.ports.cluster import ApiError, Json
from pumice.web import following, monitors, server, views
from pumice.web.following import LONGEST, Changes, WallClock
from pumice.web.monitors import Monitors
from pumice.web.rendering import Templates


def look(cluster: FakeCluster, at: Callable[[OpenPage], Awaitable[None]]) -> None:
    async def run() -> None:
        async with open_page(cluster) as page:
            await at(page)

    asyncio.run(asyncio.wait_for(run(), 100))


async def say(page: OpenPage, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
    writer.write(text)
    await writer.drain()
    return reader, writer


def test_who_has_no_token_does_not_hear_by_an_error_what_the_api_server_answered() -> None:
    cluster = FakeCluster()

    async def no_pods(verb: str, path: str) -> None:
        if path.endswith("/pods"):
            raise ApiError(403, "Forbidden", 'User "eve" cannot list resource "pods"')

    cluster.gate = no_pods

    async def at(page: OpenPage) -> None:
        assert "eve" in (await page.get("")).words
        for path in ("static/nope", "loginx", "login/x", "nope"):
            answer = await page.get(path, token=None)
            assert (answer.status in (401, 404), "eve" in answer.words) == (True, False), path
        elsewhere = {"Origin": "https://evil.example"}
        async with page.session.post(f"{page.address}/login", data={"token": "no"}, headers=elsewhere) as answer:
            assert (answer.status, "eve" in await answer.text()) == (403, False)

    look(cluster, at)


@pytest.mark.parametrize("request_line", ["GET /?token={} HTTP/9.9", "GET /?token={}\x01 HTTP/1.1", "GET/?token={}"])
def test_a_request_that_cannot_be_read_leaves_no_token_in_the_log(request_line: str, caplog: pytest.LogCaptureFixture) -> None:
    async def at(page: OpenPage) -> None:
        reader, writer = await say(page, f"{request_line.format(TOKEN)}\r\nHost: localhost\r\n\r\n".encode())
        assert b" 400 " in await reader.readline()
        writer.close()

    caplog.set_level(logging.DEBUG)
    look(FakeCluster(), at)
    assert TOKEN not in caplog.text


def test_many_who_ask_why_pods_wait_are_answered_by_few_children(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.put(node("n1", cards=1), *(pod(f"late{i}", mib=9000) for i in range(8)))
    at_once, most, ask = 0, 0, following.ask

    async def counted(work: Callable[[], bytes]) -> bytes | None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            return await ask(work)
        finally:
            at_once -= 1

    monkeypatch.setattr(following, "ask", counted)
    monkeypatch.setattr(following, "PATIENCE", 200.0)  # on a machine where everything waits for everything

    async def at(page: OpenPage) -> None:
        answers = await asyncio.gather(*(page.get(f"pod?name=late{i}") for i in range(8)))
        assert all("0/1 nodes are unavailable" in answer.words for answer in answers)

    look(cluster, at)
    assert 1 <= most <= following.CHILDREN


def test_a_child_that_cannot_be_forked_off_costs_its_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.put(node("n1", cards=1), pod("late", mib=9000))

    async def refused(work: Callable[[], bytes]) -> bytes | None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(following, "ask", refused)

    async def at(page: OpenPage) -> None:
        answer = await page.get("pod?name=late")
        assert (answer.status, "Why it waits is unknown" in answer.words) == (200, True)
        assert (await page.get("queues")).status == 404

    look(cluster, at)


@pytest.mark.parametrize("begun", [
    b"", b"GET / HTTP/1.1\r\nHost: local",
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\ntok",
])  # fmt: skip
def test_a_connection_that_asks_nothing_or_half_is_closed(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE", 0.3)
    monkeypatch.setattr(server, "STUCK", 0.3)

    async def at(page: OpenPage) -> None:
        reader, writer = await say(page, begun)
        async with asyncio.timeout(30):
            await reader.read()
        writer.close()

    look(FakeCluster(), at)


def test_more_connections_than_are_served_are_not_let_in_and_who_leaves_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SPARE", 5)
    made = server.Server.__init__

    def bounded(self: server.Server, *words: Any, **more: Any) -> None:
        made(self, *words, **more)
        self.connections_at_most = 20

    monkeypatch.setattr(server.Server, "__init__", bounded)

    async def at(page: OpenPage) -> None:
        opened = [await say(page, b"") for _ in range(200)]
        await asyncio.sleep(0.2)
        assert page.server._connections() <= 25
        for _, writer in opened:
            writer.close()
        async with asyncio.timeout(30):
            while page.server._connections() > 5:
                await asyncio.sleep(0.02)
        assert (await page.get("")).status == 200

    look(FakeCluster(), at)


def test_who_asks_for_a_page_and_does_not_read_it_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STUCK", 0.3)

    class Large(Templates):
        def render(self, name: str, words: Mapping[str, Any]) -> str:
            return "x" * (32 << 20)

    async def at(page: OpenPage) -> None:
        page.server._templates = Large()
        _, writer = await say(page, f"GET /pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        async with asyncio.timeout(30):
            while not page.server._connections():
                await asyncio.sleep(0.02)
            while page.server._connections():
                await asyncio.sleep(0.02)
        writer.close()

    look(FakeCluster(), at)


def test_who_opens_a_stream_of_events_and_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STUCK", 0.3)
    monkeypatch.setattr(server, "PING", 0.0)

    async def with_small_buffers(self: server.Server, request: web.Request) -> bool:
        assert request.transport is not None
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return True

    monkeypatch.setattr(server.Server, "_still", with_small_buffers)

    async def at(page: OpenPage) -> None:
        mute = socket.socket()
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.connect(("127.0.0.1", page.port))
        mute.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        async with asyncio.timeout(60):
            while not page.server.streams:
                await asyncio.sleep(0.02)
            while page.server.streams or page.server._connections():
                await asyncio.sleep(0.02)
        mute.close()

    look(FakeCluster(), at)


def test_what_is_kept_does_not_grow_by_what_others_write(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes()
    changes.note(1.0, "card", "n1/x", "is closed: " + "y" * 100_000)
    assert len(changes.latest()[0].text) == LONGEST
    monkeypatch.setattr(views, "ANSWER_BYTES", 3000)
    cluster = FakeCluster()
    cluster.put(node("n1", cards=1), *(pod(f"late{i}", mib=9000) for i in range(12)))

    async def at(page: OpenPage) -> None:
        shown: views.Views = page.server.site.pages  # type: ignore[attr-defined]
        for number in range(12):
            await page.get(f"pod?name=late{number}")
        assert 0 < sum(len(answer) for _, _, answer in shown._explained.values()) <= 3000

    look(cluster, at)


# -- rights that end -----------------------------------------------------------------------------------------------------


def rights_of(cluster: FakeCluster, allowed: Callable[[str], bool]) -> None:
    """Let the cluster answer whether its user may list something."""
    request = cluster.request

    async def answering(verb: str, path: str, **more: Any) -> bytes:
        if path.endswith("/selfsubjectaccessreviews"):
            what = more["body"].decode().partition('"resource":"')[2].partition('"')[0]
            return b'{"status":{"allowed":%s}}' % (b"true" if allowed(what) else b"false")
        return await request(verb, path, **more)

    cluster.request = answering  # type: ignore[method-assign, assignment]


async def until_words(page: OpenPage, path: str, text: str) -> str:
    async with asyncio.timeout(60):
        while text not in (words := (await page.get(path)).words):
            await asyncio.sleep(0.05)
    return words


def test_what_may_not_be_listed_any_more_is_forgotten_though_the_watch_is_still_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RIGHTS_KEPT", 0.2)
    cluster, withdrawn = FakeCluster(), False
    cluster.put(node("n1", cards=1), pod("secret", mib=9000))
    rights_of(cluster, lambda what: not (withdrawn and what == "pods"))

    async def gate(verb: str, path: str) -> None:
        if withdrawn and path.endswith("/pods"):
            raise ApiError(403, "Forbidden", "pods is forbidden")

    cluster.gate = gate

    async def at(page: OpenPage) -> None:
        nonlocal withdrawn
        assert "secret" in (await page.get("pods")).words
        await asyncio.sleep(0.5)
        assert "secret" in (await page.get("pods")).words
        withdrawn = True
        assert "secret" not in await until_words(page, "pods", "pods could not be listed (403")
        assert "secret" not in (await page.get("changes")).words
        assert "n1" in await until_words(page, "", "1 nodes")

    look(cluster, at)


def test_a_token_that_has_ended_leaves_nothing_on_the_page_and_is_not_called_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PROBE", 0.1)
    cluster, begun = FakeCluster(), 0
    cluster.put(node("n1", cards=1), pod("secret", mib=9000))

    async def at(page: OpenPage) -> None:
        assert "secret" in (await page.get("pods")).words

        async def ended(verb: str, path: str) -> None:
            nonlocal begun
            begun += path.endswith("/pods")
            raise ApiError(401, "Unauthorized", "Unauthorized")

        cluster.gate = ended
        assert "secret" not in await until_words(page, "pods", "pods could not be listed (401")
        assert "n1" not in (await page.get("")).words
        await asyncio.sleep(1)
        assert begun <= 3  # nobody hammers the server with a token that has ended

    look(cluster, at)


# -- monitors ------------------------------------------------------------------------------------------------------------


def sample(pod_name: str, value: str, name: str = "hami_vgpu_memory_used_bytes") -> str:
    return f'{name}{{container="c",device_uuid="u",namespace="default",pod="{pod_name}",x="y"}} {value}\n'


def holder() -> Json:
    """A pod that runs with a share of a card."""
    held = pod("a", cards=1, mib=3000, nodeName="n1")
    held["metadata"]["annotations"] |= {"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,3000,0:", "volcano.sh/vgpu-node": "n1",
                                        "volcano.sh/vgpu-time": "1"}  # fmt: skip
    held["status"] = {"phase": "Running"}
    return held


@pytest.mark.parametrize("figure", ["nan", "inf", "-inf", "-5", "1e308", "0x10", "1_0"])
def test_a_monitor_that_tells_what_no_card_can_say_costs_its_figures_alone(figure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.put(node("n1", cards=1), holder())

    async def at(page: OpenPage) -> None:
        async def told(node_name: str) -> str:
            return sample("a", figure) + sample("a", figure, "hami_container_device_utilization_ratio")

        monkeypatch.setattr(Monitors, "_page", lambda self, name, what="metrics": told(name))
        for path in ("node?name=n1", "card?node=n1&uuid=GPU-n1-0", "pod?name=a"):
            answer = await page.get(path)
            assert answer.status == 200, path
            assert "unknown: its monitor tells nothing of this pod" in answer.words or figure == "1_0", path
        assert "in use unknown: its monitor tells nothing of them" in (await page.get("")).words or figure == "1_0"

    look(cluster, at)


def test_the_page_of_the_cluster_waits_for_no_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.put(node("n1", cards=1), holder())

    async def at(page: OpenPage) -> None:
        answers, asked = asyncio.Event(), []

        async def told(node_name: str) -> str:
            asked.append(node_name)
            await answers.wait()
            return sample("a", "1048576")

        monkeypatch.setattr(Monitors, "_page", lambda self, name, what="metrics": told(name))
        for _ in range(2):
            assert "in use unknown: its monitor has not answered yet; look again" in (await page.get("")).words
        answers.set()
        while "in use 1 MiB" not in (await page.get("")).words:
            await asyncio.sleep(0.01)
        assert asked == ["n1"]

    look(cluster, at)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("size", "why"), [(100 << 20, "says more than 8388608 bytes"), (0, "in time")])
def test_a_monitor_that_sends_100_megabytes_or_hangs_is_broken_off(
    size: int, why: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its own address, and through the API server."""
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        told = web.StreamResponse()
        await told.prepare(request)
        while sent < size:
            await told.write(b"x" * (1 << 20))
            sent += 1 << 20
        await asyncio.sleep(60)
        return told

    async def run() -> str:
        cluster = FakeCluster()
        monitor = pod("m", nodeName="n1")
        monitor["metadata"] |= {"namespace": "kube-system", "labels": {"name": monitors.LABEL.partition("=")[2]}}
        monitor["status"] = {"podIP": "127.0.0.1"}
        cluster.put(node("n1", cards=1), monitor)
        application = web.Application()
        application.router.add_get("/metrics", answer)
        async with TestServer(application, handler_cancellation=True) as liar, aiohttp.ClientSession() as session:
            monkeypatch.setattr(monitors, "PORT", liar.port)
            asked = Monitors(cluster, WallClock(), stream=lambda path: session.get(liar.make_url("/metrics")), direct=direct)
            return (await asked.of_node("n1")).unknown

    monkeypatch.setattr(monitors, "PATIENCE", 20.0 if size else 0.2)
    told = asyncio.run(asyncio.wait_for(run(), 60))
    assert why in told or (direct and "says nothing within 0.2s" in told)
    assert sent <= 30 << 20


def hour(**more: Any) -> str:
    share = {"container": "c", "uuid": "GPU-n1-0", "limit": 3000 << 20, "cores_limit": 0, "memory": [1 << 20, None, 2 << 20],
             "cores": []}  # fmt: skip
    return json.dumps({"until": 1000.0, "every": 15.0, "shares": [share | more]})


@pytest.mark.parametrize(("answer", "words"), [
    (hour(), "Memory over the last hour, container c on GPU-n1-0"),
    (hour(container="<script>alert(1)</script>"), "container <script>alert(1)</script> on"),
    (hour(memory=[-1]), "says what cannot be"), (hour(memory=[1] * 241), "says what cannot be"),
    (hour(limit=2**70), "says what cannot be"), (hour(memory=["x"]), "says what is no history"),
    (hour(memory=[1.5]), "says what is no history"), ("[" * 5000, "says what is no history"), ("", "says what is no history"),
    ('{"until": NaN}', "says what is no history"), ('{"every": 0.0}', "says what cannot be"),
    ('{"until": 1e300}', "says what cannot be"), (json.dumps({"shares": [json.loads(hour())["shares"][0]] * 65}), "cannot be"),
])  # fmt: skip
def test_an_hour_that_a_monitor_tells_is_drawn_and_what_is_none_is_unknown(
    answer: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    cluster.put(node("n1", cards=1), holder())

    async def told(what: str) -> str:
        return sample("a", "5") if what == "metrics" else answer

    monkeypatch.setattr(Monitors, "_page", lambda self, name, what="metrics": told(what))

    async def at(page: OpenPage) -> None:
        shown = await page.get("pod?name=a")
        assert shown.status == 200
        assert words in shown.words
        assert "<script>alert" not in shown.text
        assert ("What it used over the last hour is unknown" in shown.words) is not ("class=\"chart\"" in shown.text)

    look(cluster, at)


@pytest.mark.parametrize("text", [
    'hami_vgpu_memory_used_bytes{container="a",device_uuid="b",namespace="c",pod="d",' * 100_000,
    'hami_vgpu_memory_used_bytes{container="' * 200_000, sample("x", "1").rstrip() * 80_000,
    "".join(sample(f"p{i}", "1") for i in range(60_000)),
])  # fmt: skip
def test_eight_megabytes_of_nonsense_are_read_in_a_moment_and_not_kept(text: str) -> None:
    from pumice.metrics.monitor import PODS_OF_A_PAGE, pod_uses

    begin = time.process_time()
    found = pod_uses(text)
    assert (time.process_time() - begin < 5, len(found) <= PODS_OF_A_PAGE) == (True, True)
