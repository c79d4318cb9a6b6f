"""Logs and exec through the API server, with a small kubelet behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from pumice_lab.apiserver import ADMIN, ApiServer, Request, open_storage, serve
from pumice_lab.apiserver.tunnel import LONGEST_MESSAGE

Json = dict[str, Any]
NAMESPACE = "/api/v1/namespaces/default"
PROTOCOLS = ["v5.channel.k8s.io"]
HEADERS = {"Authorization": "Bearer t"}


class SmallKubelet:
    """Remembers what it was asked; says three log lines; echoes what exec sends."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.summary = b""
        self.more = asyncio.Event()
        self.gone = asyncio.Event()

    async def stats(self, request: web.Request) -> web.Response:
        return web.Response(body=self.summary)

    async def logs(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if request.match_info["container"] == "early":
            return web.Response(status=400, text="container is waiting to start")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(b"one\ntwo\n")
        if "follow" in request.query:
            try:
                await self.more.wait()
                await response.write(b"three\n")
                await asyncio.Event().wait()
            finally:
                self.gone.set()
        return response

    async def exec(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if request.match_info["container"] == "early":
            return web.Response(status=400, text="container early is not running")
        socket = web.WebSocketResponse(max_msg_size=0, protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"))
        await socket.prepare(request)
        async for message in socket:
            if message.type == WSMsgType.BINARY:
                if message.data == b"\x00exit":
                    await socket.send_bytes(b'\x03{"status":"Success"}')
                    break
                await socket.send_bytes(b"\x01" + message.data[1:])
        await socket.close()
        return socket


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[str, SmallKubelet, ApiServer, aiohttp.ClientSession]]:
    kubelet = SmallKubelet()
    app = web.Application()
    app.router.add_get("/containerLogs/default/p/{container}", kubelet.logs)
    app.router.add_get("/stats/summary", kubelet.stats)
    app.router.add_get("/exec/default/p/{container}", kubelet.exec)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    api = ApiServer(open_storage(":memory:"))
    served = await serve(api, tokens={"t": ADMIN})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    node = {"metadata": {"name": "n1", "annotations": {"pumice.io/kubelet-scheme": "http"}}, "status": status}
    await post(api, "/api/v1/nodes", node)
    containers = [{"name": name, "image": "i:1"} for name in ("c", "early")]
    spec = {"nodeName": "n1", "containers": containers}
    metadata = {"name": "p", "annotations": {"kubectl.kubernetes.io/default-container": "c"}}
    await post(api, f"{NAMESPACE}/pods", {"metadata": metadata, "spec": spec})
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        try:
            yield served.url, kubelet, api, session
        finally:
            await served.close()
            await runner.cleanup()
            api.storage.close()


async def post(api: ApiServer, path: str, body: Json) -> None:
    response = await api.handle(Request("POST", path, body=json.dumps(body).encode()))
    assert response.code == 201, response.body


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def test_logs_come_from_the_kubelet_with_their_options() -> None:
    async def work() -> None:
        async with cluster() as (url, kubelet, _, session):
            async with session.get(f"{url}{NAMESPACE}/pods/p/log?tailLines=2&timestamps=true") as answer:
                assert (answer.status, await answer.text()) == (200, "one\ntwo\n")
            assert kubelet.asked == ["/containerLogs/default/p/c?timestamps=true&tailLines=2"]

    run(work)


def test_followed_logs_arrive_line_by_line_and_end_with_the_reader() -> None:
    async def work() -> None:
        async with cluster() as (url, kubelet, _, session):
            async with session.get(f"{url}{NAMESPACE}/pods/p/log?follow=true&container=c") as answer:
                assert await answer.content.readline() == b"one\n"
                assert await answer.content.readline() == b"two\n"
                kubelet.more.set()
                assert await answer.content.readline() == b"three\n"
            await asyncio.wait_for(kubelet.gone.wait(), 10)

    run(work)


def test_the_kubelets_refusal_reaches_the_client() -> None:
    async def work() -> None:
        async with (
            cluster() as (url, _, _, session),
            session.get(f"{url}{NAMESPACE}/pods/p/log?container=early") as answer,
        ):
            value = await answer.json()
            assert (answer.status, value["kind"], value["message"]) == (400, "Status", "container is waiting to start")

    run(work)


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
def test_exec_carries_frames_both_ways(protocol: str) -> None:
    async def work() -> None:
        async with cluster() as (url, kubelet, _, session):
            query = "command=sh&command=-c&command=echo+hi&stdin=true&stdout=true&tty=false"
            async with session.ws_connect(f"{url}{NAMESPACE}/pods/p/exec?{query}", protocols=[protocol]) as socket:
                assert socket.protocol == protocol
                await socket.send_bytes(b"\x00hello")
                assert await socket.receive_bytes() == b"\x01hello"
                await socket.send_bytes(b"\x00exit")
                assert await socket.receive_bytes() == b'\x03{"status":"Success"}'
                assert (await socket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING)
            assert kubelet.asked == ["/exec/default/p/c?input=1&output=1&command=sh&command=-c&command=echo+hi"]

    run(work)


def test_a_message_that_unpacks_to_more_than_anybody_sends_ends_its_connection_alone() -> None:
    async def work() -> None:
        async with cluster() as (url, _, _, session):
            path = f"{url}{NAMESPACE}/pods/p/exec?command=cat&stdin=true&stdout=true"
            async with (
                session.ws_connect(path, protocols=PROTOCOLS, compress=15, max_msg_size=0) as greedy,
                session.ws_connect(path, protocols=PROTOCOLS, max_msg_size=0) as other,
            ):
                await greedy.send_bytes(bytes(LONGEST_MESSAGE + 1))
                assert (await greedy.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING)
                await other.send_bytes(b"\x00" + b"x" * (1 << 20))
                assert await other.receive_bytes() == b"\x01" + b"x" * (1 << 20)

    run(work)


def test_spdy_is_refused_and_a_node_that_is_gone_is_named() -> None:
    async def work() -> None:
        async with cluster() as (url, _, api, session):
            upgrade = {"Upgrade": "SPDY/3.1", "Connection": "Upgrade"}
            async with session.post(f"{url}{NAMESPACE}/pods/p/exec?command=ls", headers=upgrade) as answer:
                assert answer.status == 400
                assert "use WebSockets" in (await answer.json())["message"]
            async with session.get(f"{url}{NAMESPACE}/pods/p/log?container=nope") as answer:
                assert (await answer.json())["message"] == "container nope is not valid for pod p"
            await api.handle(Request("DELETE", "/api/v1/nodes/n1"))
            async with session.get(f"{url}{NAMESPACE}/pods/p/log") as answer:
                assert answer.status == 500
                assert "node n1 is not registered" in (await answer.json())["message"]

    run(work)


@pytest.mark.parametrize("protocol", ["SPDY/3.1", "websocket"])
def test_whoever_cannot_have_a_connection_is_told_what_the_kubelet_says(protocol: str) -> None:
    """kubectl tries SPDY where a WebSocket is refused, and shows what it is told then."""

    async def work() -> None:
        async with cluster() as (url, _, _, session):
            upgrade = {"Upgrade": protocol, "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                       "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": PROTOCOLS[0]}  # fmt: skip
            path = f"{url}{NAMESPACE}/pods/p/exec?command=ls&container=early"
            async with session.get(path, headers=upgrade) as answer:
                assert answer.status == 400
                assert (await answer.json())["message"] == "unable to upgrade: container early is not running"

    run(work)


def test_an_unknown_token_gets_nothing() -> None:
    async def work() -> None:
        async with cluster() as (url, kubelet, _, session):
            async with session.get(f"{url}{NAMESPACE}/pods/p/log", headers={"Authorization": "Bearer x"}) as answer:
                assert answer.status == 401
            async with session.get(f"{url}/api/v1/pods", headers={"Authorization": ""}) as answer:
                assert answer.status == 401
            assert kubelet.asked == []

    run(work)


USED = {"cpu": {"time": "2026-01-01T00:00:00Z", "usageNanoCores": 7}, "memory": {"workingSetBytes": 4096}}


def reported(name: str, *containers: Any) -> Json:
    return {"podRef": {"name": name, "namespace": "default", "uid": "u"}, "containers": list(containers)}


def test_what_one_kubelet_tells_amiss_or_of_others_spoils_no_answer_of_kubectl_top() -> None:
    async def work() -> None:
        async with cluster() as (url, kubelet, api, session):
            elsewhere = {"nodeName": "n2", "containers": [{"name": "c", "image": "i:1"}]}
            await post(api, f"{NAMESPACE}/pods", {"metadata": {"name": "other"}, "spec": elsewhere})
            good = {"name": "c", **USED}

            async def asked(kind: str, query: str = "") -> list[str]:
                async with session.get(f"{url}/apis/metrics.k8s.io/v1beta1/{kind}?{query}") as answer:
                    assert answer.status == 200, await answer.text()
                    return [item["metadata"]["name"] for item in (await answer.json())["items"]]

            for body in (b"no json", b"[]", b"{}", b"[" * 100_000, b'{"node": 1, "pods": {}}', b'{"node": {}, "pods": [7, {}]}'):
                kubelet.summary = body
                assert await asked("nodes") == await asked("pods") == []
            pods = [
                reported("p", good),
                reported("p", {"name": "begins"}),
                reported("other", good),
                reported("gone", good),
                {"podRef": 1},
            ]
            kubelet.summary = json.dumps({"node": {"nodeName": "n2", **USED}, "pods": pods}).encode()
            assert await asked("pods") == ["p"]
            assert await asked("nodes") == ["n1"], "whoever calls itself otherwise"
            assert await asked("pods", "fieldSelector=metadata.name%3Dother") == []
            assert await asked("pods", "fieldSelector=metadata.name%3Dp") == ["p"]

    run(work)
