"""List and watch against a scripted API server: what a daemon sees when the world misbehaves."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from pumice.adapters.kube import Access, KubeClient, watch
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Resource, WatchEvent
from pumice.wire.objects import Pod

PODS = Resource("", "v1", "pods")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str, version: int) -> dict[str, object]:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta}


def page(*items: dict[str, object], version: int) -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": list(items)})


async def stream(
    request: web.Request, *frames: tuple[str, dict[str, object]], hold: bool = False
) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for kind, obj in frames:
        await answer.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
    if hold:
        await asyncio.Event().wait()
    return answer


@asynccontextmanager
async def serving(handler: Handler, timeout: float = 30.0) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    access = Access(f"http://127.0.0.1:{port}", None, lambda: "t")
    async with KubeClient(access, clock=SystemClock(), dice=random.Random(1), timeout=timeout) as kube:
        try:
            yield kube
        finally:
            await runner.cleanup()


async def collect(kube: KubeClient, count: int, kind: type[Pod] | None = None) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []

    async def drain() -> None:
        async for event in kube.watch(PODS, kind=kind):
            seen.append((event.type, name_of(event)))
            if len(seen) == count:
                return

    await asyncio.wait_for(drain(), 10)
    return seen


def name_of(event: WatchEvent) -> str:
    if isinstance(event.obj, Pod):
        return f"{event.obj.metadata.name} decoded"
    return str(json.loads(event.raw)["metadata"]["name"]) if event.raw else ""


def test_an_interrupted_watch_resumes_where_it_was_and_tells_nothing_twice() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(pod("a", 5), version=7)
        asked.append(request.query["resourceVersion"])
        if len(asked) == 1:
            return await stream(request, ("ADDED", pod("b", 9)))
        return await stream(request, ("DELETED", pod("a", 11)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 4) == [("ADDED", "a"), ("SYNCED", ""), ("ADDED", "b"), ("DELETED", "a")]
        assert asked == ["7", "9"]

    asyncio.run(scenario())


def test_a_forgotten_version_lists_again_and_tells_the_difference() -> None:
    lists = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            if lists == 1:
                return page(pod("a", 5), pod("b", 6), version=7)
            return page(pod("b", 8), pod("c", 9), version=10)
        if lists == 1:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            return await stream(request, ("ERROR", gone))
        return await stream(request, hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 7) == [
                ("ADDED", "a"), ("ADDED", "b"), ("SYNCED", ""),
                ("MODIFIED", "b"), ("ADDED", "c"), ("DELETED", "a"), ("SYNCED", ""),
            ]  # fmt: skip

    asyncio.run(scenario())


def test_a_list_in_pages_is_one_list() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await stream(request, hold=True)
        if "continue" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "7", "continue": "x"}, "items": [pod("a", 1)]})
        return page(pod("b", 2), version=7)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 3) == [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", "")]

    asyncio.run(scenario())


def test_what_goes_between_a_broken_list_and_the_next_one_is_told_as_deleted() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        if "watch" in request.query:
            return await stream(request, hold=True)
        calls += 1
        if "continue" in request.query and calls < 4:
            return web.Response(status=500, text="boom")
        first = [pod("a", 1)] if calls == 1 else []
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": "x" if calls < 3 else ""},
                                  "items": [*first, pod("b", 2)]})  # fmt: skip

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 4) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("SYNCED", "")]

    asyncio.run(scenario())


def test_a_list_whose_next_page_is_forgotten_is_begun_again() -> None:
    lists = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            return await stream(request, hold=True)
        if "continue" in request.query:
            return web.json_response({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}, status=410)
        lists += 1
        if lists == 1:
            return web.json_response({"metadata": {"resourceVersion": "7", "continue": "x"}, "items": [pod("a", 1), pod("b", 1)]})
        return page(pod("b", 1), pod("c", 9), version=9)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 5) == [
                ("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("DELETED", "a"), ("SYNCED", "")]  # fmt: skip
        assert lists == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("nonsense", [b'{"type":"ADDED","obj', b"<html>502 Bad Gateway</html>\n", b"\xff\xfe\n", b"[1]\n"])
def test_a_watch_that_breaks_off_or_says_nonsense_goes_on_after_the_last_word_that_was_understood(nonsense: bytes) -> None:
    resumed: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(version=5)
        resumed.append(request.query["resourceVersion"])
        if len(resumed) > 2:
            return await stream(request, ("ADDED", pod("b", 7)), hold=True)
        answer = web.StreamResponse()
        await answer.prepare(request)
        if len(resumed) == 1:
            await answer.write(json.dumps({"type": "ADDED", "object": pod("a", 6)}).encode() + b"\n")
        await answer.write(nonsense)
        return answer

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 3) == [("SYNCED", ""), ("ADDED", "a"), ("ADDED", "b")]
        assert resumed == ["5", "6", "6"]

    asyncio.run(scenario())


def test_a_watch_whose_line_does_not_end_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LONGEST_LINE", 50_000)
    watches = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal watches
        if "watch" not in request.query:
            return page(version=5)
        watches += 1
        if watches > 1:
            return await stream(request, ("ADDED", pod("a", 6)), hold=True)
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"x" * 10_000)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 2) == [("SYNCED", ""), ("ADDED", "a")]

    asyncio.run(scenario())


def test_a_server_that_is_too_busy_for_a_watch_is_left_alone_as_long_as_it_says() -> None:
    asked: list[float] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(version=5)
        asked.append(asyncio.get_running_loop().time())
        if len(asked) == 1:
            return web.json_response({"reason": "TooManyRequests"}, status=429, headers={"Retry-After": "1"})
        return await stream(request, ("ADDED", pod("a", 6)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 2) == [("SYNCED", ""), ("ADDED", "a")]
        assert asked[1] - asked[0] >= 1.0

    asyncio.run(scenario())


def test_objects_of_a_named_kind_come_decoded_from_list_and_watch() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(pod("a", 5), version=7)
        bookmark: dict[str, object] = {"kind": "Pod", "metadata": {"resourceVersion": "8"}}
        return await stream(request, ("BOOKMARK", bookmark), ("ADDED", pod("b", 9)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            told = await collect(kube, 4, Pod)
            assert told == [("ADDED", "a decoded"), ("SYNCED", ""), ("BOOKMARK", " decoded"), ("ADDED", "b decoded")]

    asyncio.run(scenario())


def test_an_object_that_is_not_of_its_kind_spoils_no_other() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        broken = {**pod("bad", 6), "spec": "none"}
        if "watch" not in request.query:
            return page(pod("a", 5), broken, version=7)
        return await stream(request, ("MODIFIED", {**pod("bad", 8), "spec": "none"}), ("ADDED", pod("b", 9)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 5, Pod) == [
                ("ADDED", "a"), ("ADDED", "bad"), ("SYNCED", ""), ("MODIFIED", "bad"), ("ADDED", "b decoded"),
            ]  # fmt: skip

    asyncio.run(scenario())


def test_a_version_forgotten_by_the_server_is_seen_beside_a_named_kind() -> None:
    lists = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            return page(pod("a", 5), *([pod("b", 9)] if lists > 1 else []), version=7)
        if lists == 1:
            gone = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired"}
            return await stream(request, ("ERROR", gone))
        return await stream(request, hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            told = await collect(kube, 4, Pod)
            assert told == [("ADDED", "a decoded"), ("SYNCED", ""), ("ADDED", "b decoded"), ("SYNCED", "")]

    asyncio.run(scenario())


def test_a_server_that_fails_for_a_while_is_asked_again() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls < 4:
            return web.Response(status=500, text="boom")
        return page(pod("a", 1), version=2) if "watch" not in request.query else await stream(request, hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 2) == [("ADDED", "a"), ("SYNCED", "")]
        assert calls >= 4

    asyncio.run(scenario())


def test_a_refusal_of_a_watch_that_breaks_off_is_asked_again() -> None:
    watches = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal watches
        if "watch" not in request.query:
            return page(version=5)
        watches += 1
        if watches == 1:
            answer = web.StreamResponse(status=500, headers={"Content-Length": "1000"})
            await answer.prepare(request)
            await answer.write(b"half a wo")
            assert request.transport is not None
            request.transport.abort()
            return answer
        return await stream(request, ("ADDED", pod("a", 6)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 2) == [("SYNCED", ""), ("ADDED", "a")]

    asyncio.run(scenario())


def test_a_refusal_that_waiting_does_not_mend_is_raised() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "reason": "Forbidden", "message": "no"}, status=403)

    async def scenario() -> None:
        async with serving(handler) as kube:
            with pytest.raises(ApiError) as refused:
                await collect(kube, 1)
        assert (refused.value.code, refused.value.reason) == (403, "Forbidden")

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [401, 403])
def test_a_refusal_after_the_first_list_is_waited_out_and_what_vanished_meanwhile_is_told(code: int) -> None:
    """A token that has run out, a role that was replaced: whoever began again from nothing would keep ghosts."""
    asked = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        match asked:
            case 1:
                return page(pod("a", 5), pod("b", 6), version=7)
            case 2:
                return await stream(request, ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": ""}))
            case 3 | 4:
                return web.json_response({"kind": "Status", "reason": "Refused", "message": "no"}, status=code)
            case 5:
                return page(pod("b", 6), version=9)
        return await stream(request, hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 5) == [
                ("ADDED", "a"), ("ADDED", "b"), ("SYNCED", ""), ("DELETED", "a"), ("SYNCED", "")
            ]  # fmt: skip

    asyncio.run(scenario())


def test_a_kind_that_is_taken_away_takes_its_objects_along() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return web.json_response({"kind": "Status", "reason": "NotFound", "message": "gone"}, status=404)
        return page(pod("a", 5), version=7)

    async def scenario() -> None:
        seen = []
        async with serving(handler) as kube:
            with pytest.raises(ApiError):  # noqa: PT012
                async for event in kube.watch(PODS):
                    seen.append((event.type, name_of(event)))
        assert seen == [("ADDED", "a"), ("SYNCED", ""), ("DELETED", "a")]

    asyncio.run(scenario())


def test_a_watch_that_falls_silent_is_opened_again_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-open connection: nothing comes any more, not even the bookmarks, and nobody says why."""
    monkeypatch.setattr(watch, "IDLE_SECONDS", 0.3)
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(pod("a", 5), version=7)
        asked.append(request.query["resourceVersion"])
        if len(asked) == 1:
            return await stream(request, ("ADDED", pod("b", 9)), hold=True)
        return await stream(request, ("ADDED", pod("c", 12)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 4) == [("ADDED", "a"), ("SYNCED", ""), ("ADDED", "b"), ("ADDED", "c")]
        assert asked == ["7", "9"]

    asyncio.run(scenario())


def test_a_server_that_forgets_every_version_is_not_listed_in_a_circle() -> None:
    lists = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            return web.json_response({"kind": "Status", "reason": "Expired", "message": ""}, status=410)
        lists += 1
        return page(version=7)

    async def scenario() -> None:
        async with serving(handler) as kube:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(collect(kube, 10_000), 1.5)
        assert lists <= 12

    asyncio.run(scenario())


def test_too_many_requests_waits_as_told_and_tries_again() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls == 1:
            return web.json_response({"reason": "TooManyRequests"}, status=429, headers={"Retry-After": "0"})
        return web.json_response(pod("a", 1))

    async def scenario() -> None:
        async with serving(handler) as kube:
            answer = await kube.get(PODS, "a", "default")
        assert answer["metadata"]["uid"] == "uid-a"
        assert calls == 2

    asyncio.run(scenario())


def test_a_server_that_is_always_too_busy_is_believed_in_the_end() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        return web.json_response({"reason": "TooManyRequests"}, status=429, headers={"Retry-After": "0"})

    async def scenario() -> None:
        async with serving(handler) as kube:
            with pytest.raises(ApiError) as refused:
                await kube.bind("default", "a", b"{}")
        assert (refused.value.code, refused.value.reason) == (429, "TooManyRequests")
        assert 5 <= calls <= 10

    asyncio.run(scenario())


def test_a_request_that_is_never_answered_ends_by_its_timeout_and_nobody_knows_what_became_of_it() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def scenario() -> None:
        async with serving(handler, timeout=0.3) as kube:
            with pytest.raises(ApiError) as refused:
                await kube.bind("default", "a", b"{}")
        assert (refused.value.code, refused.value.reason) == (0, "Timeout")

    asyncio.run(scenario())


def test_no_answer_is_an_error_that_says_so() -> None:
    async def scenario() -> None:
        access = Access("http://127.0.0.1:1", None, lambda: "")
        async with KubeClient(access) as kube:
            with pytest.raises(ApiError) as refused:
                await kube.get(PODS, "a", "default")
        assert (refused.value.code, refused.value.reason) == (0, "Unreachable")

    asyncio.run(scenario())
