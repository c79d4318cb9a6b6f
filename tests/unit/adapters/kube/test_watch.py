"""List and watch against a scripted API server: nothing is told twice, and nothing is missed."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from kit.virtual_time import run_virtually
from tests.unit.adapters.kube.scripted_server import collect, collected, page, pod, serving, stream

from pumice.adapters.kube.watch import WatchLimits
from pumice.wire.objects import Pod


def test_an_interrupted_watch_resumes_where_it_was_and_tells_nothing_twice() -> None:
    requested: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(pod("a", 5), version=7)
        requested.append(request.query["resourceVersion"])
        if len(requested) == 1:
            return await stream(request, ("ADDED", pod("b", 9)))
        return await stream(request, ("DELETED", pod("a", 11)), hold=True)

    assert collected(handler, 4) == [("ADDED", "a"), ("SYNCED", ""), ("ADDED", "b"), ("DELETED", "a")]
    assert requested == ["7", "9"]


@pytest.mark.parametrize("kind", [None, Pod])
def test_a_forgotten_version_lists_again_and_tells_the_difference(kind: type[Pod] | None) -> None:
    lists, read = 0, " decoded" if kind else ""

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            if lists == 1:
                return page(pod("a", 5), pod("b", 6), version=7)
            return page(pod("b", 8), pod("c", 9), version=10)
        if lists == 1:
            gone = {"kind": "Status", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
            return await stream(request, ("ERROR", gone))
        return await stream(request, hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 7, kind) == [
                ("ADDED", f"a{read}"), ("ADDED", f"b{read}"), ("SYNCED", ""),
                ("MODIFIED", f"b{read}"), ("ADDED", f"c{read}"), ("DELETED", "a"), ("SYNCED", ""),
            ]  # fmt: skip

    run_virtually(scenario())


@pytest.mark.parametrize("kind", [None, Pod])
def test_who_takes_a_name_while_nobody_watches_is_told_after_the_end_of_who_bore_it(kind: type[Pod] | None) -> None:
    lists = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            if lists == 1:
                return page(pod("a", 5), pod("b", 6), version=7)
            return page(pod("a", 8, "second"), pod("b", 6), version=9)
        if lists == 1:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            return await stream(request, ("ERROR", gone))
        late = ("DELETED", pod("a", 10))  # of the first one, which is known to be gone
        return await stream(request, late, ("MODIFIED", pod("b", 11, "second")), ("DELETED", pod("a", 12, "second")), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            assert await collect(kube, 9, kind, uids=True) == [
                ("ADDED", "uid-a"), ("ADDED", "uid-b"), ("SYNCED", ""), ("DELETED", "uid-a"), ("ADDED", "second"),
                ("SYNCED", ""), ("DELETED", "uid-b"), ("MODIFIED", "second"), ("DELETED", "second"),
            ]  # fmt: skip

    run_virtually(scenario())


def test_a_list_in_pages_is_one_list() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await stream(request, hold=True)
        if "continue" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "7", "continue": "x"}, "items": [pod("a", 1)]})
        return page(pod("b", 2), version=7)

    assert collected(handler, 3) == [("ADDED", "a"), ("ADDED", "b"), ("SYNCED", "")]


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

    assert collected(handler, 4) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("SYNCED", "")]


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

    run_virtually(scenario())


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

    run_virtually(scenario())


def test_a_watch_whose_line_does_not_end_fills_no_memory() -> None:
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
            kube.watch_limits = WatchLimits(longest_line=50_000)
            assert await collect(kube, 2) == [("SYNCED", ""), ("ADDED", "a")]

    run_virtually(scenario())


def test_objects_of_a_named_kind_come_decoded_from_list_and_watch() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(pod("a", 5), version=7)
        bookmark: dict[str, object] = {"kind": "Pod", "metadata": {"resourceVersion": "8"}}
        return await stream(request, ("BOOKMARK", bookmark), ("ADDED", pod("b", 9)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            reported = await collect(kube, 4, Pod)
            assert reported == [("ADDED", "a decoded"), ("SYNCED", ""), ("BOOKMARK", " decoded"), ("ADDED", "b decoded")]

    run_virtually(scenario())


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

    run_virtually(scenario())


def test_a_watch_that_falls_silent_is_opened_again_where_it_was() -> None:
    """A half-open connection: nothing comes any more, not even the bookmarks, and nobody says why."""
    requested: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page(pod("a", 5), version=7)
        requested.append(request.query["resourceVersion"])
        if len(requested) == 1:
            return await stream(request, ("ADDED", pod("b", 9)), hold=True)
        return await stream(request, ("ADDED", pod("c", 12)), hold=True)

    async def scenario() -> None:
        async with serving(handler) as kube:
            kube.watch_limits = WatchLimits(idle=0.3)
            assert await collect(kube, 4) == [("ADDED", "a"), ("SYNCED", ""), ("ADDED", "b"), ("ADDED", "c")]
        assert requested == ["7", "9"]

    run_virtually(scenario())
