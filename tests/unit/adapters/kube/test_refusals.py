"""An API server that refuses, is too busy or does not answer: who is asked again, and who is believed."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from kit.virtual_time import run_virtually
from tests.unit.adapters.kube.scripted_server import collect, collected, name_of, page, pod, serving, stream

from pumice.adapters.kube import Access, KubeClient
from pumice.ports.cluster import ApiError
from pumice.wire.kinds import PODS


def test_a_server_that_is_too_busy_for_a_watch_is_left_alone_as_long_as_it_says() -> None:
    requested: list[float] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(version=5)
        requested.append(asyncio.get_running_loop().time())
        if len(requested) == 1:
            return web.json_response({"reason": "TooManyRequests"}, status=429, headers={"Retry-After": "1"})
        return await stream(request, ("ADDED", pod("a", 6)), hold=True)

    assert collected(handler, 2) == [("SYNCED", ""), ("ADDED", "a")]
    assert requested[1] - requested[0] >= 1.0


def test_a_server_that_fails_for_a_while_is_asked_again() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls < 4:
            return web.Response(status=500, text="boom")
        return page(pod("a", 1), version=2) if "watch" not in request.query else await stream(request, hold=True)

    assert collected(handler, 2) == [("ADDED", "a"), ("SYNCED", "")]
    assert calls >= 4


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

    assert collected(handler, 2) == [("SYNCED", ""), ("ADDED", "a")]


def test_a_refusal_that_waiting_does_not_mend_is_raised() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "reason": "Forbidden", "message": "no"}, status=403)

    async def scenario() -> None:
        async with serving(handler) as kube:
            with pytest.raises(ApiError) as refused:
                await collect(kube, 1)
        assert (refused.value.code, refused.value.reason) == (403, "Forbidden")

    run_virtually(scenario())


@pytest.mark.parametrize("code", [401, 403])
def test_a_refusal_after_the_first_list_is_waited_out_and_what_vanished_meanwhile_is_told(code: int) -> None:
    """A token that has run out, a role that was replaced: whoever began again from nothing would keep ghosts."""
    requested = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal requested
        requested += 1
        match requested:
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

    run_virtually(scenario())


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

    run_virtually(scenario())


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

    run_virtually(scenario())


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

    run_virtually(scenario())


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

    run_virtually(scenario())


def test_a_request_that_is_never_answered_ends_by_its_timeout_and_nobody_knows_what_became_of_it() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def scenario() -> None:
        async with serving(handler, timeout=0.3) as kube:
            with pytest.raises(ApiError) as refused:
                await kube.bind("default", "a", b"{}")
        assert (refused.value.code, refused.value.reason) == (0, "Timeout")

    run_virtually(scenario())


def test_no_answer_is_an_error_that_says_so() -> None:
    async def scenario() -> None:
        access = Access("http://127.0.0.1:1", None, lambda: "")
        async with KubeClient(access) as kube:
            with pytest.raises(ApiError) as refused:
                await kube.get(PODS, "a", "default")
        assert (refused.value.code, refused.value.reason) == (0, "Unreachable")

    run_virtually(scenario())
