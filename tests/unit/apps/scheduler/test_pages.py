"""``/explain`` answers from a process of its own and says what went wrong in one line."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from kit.engine_world import World
from kit.objects import node, pod

from pumice.apps.scheduler.pages import MOST_WAITING, ExplainPage
from pumice.apps.service.reviewed import Reviewed
from pumice.ports.cluster import ApiError, Resource
from pumice.scheduler.explaining.explain import as_json, explain_known


def page_of(answer: bytes = b'{"pod": "a/known"}', patience: float = 60.0) -> ExplainPage:
    """A page whose books have the pod a/known."""
    return ExplainPage(lambda namespace, name: (namespace, name) == ("a", "known"), lambda namespace, name: answer, patience)


def get(page: ExplainPage, query: str, **more: Any) -> tuple[int, dict[str, Any]]:
    headers = more.pop("headers", {})
    answer: web.Response = asyncio.run(page.answer(make_mocked_request("GET", f"/explain?{query}", headers=headers), **more))
    return answer.status, json.loads(answer.body or b"{}")


def forbid_children(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise AssertionError("a child was started")

    monkeypatch.setattr("os.fork", fork)
    monkeypatch.setattr("asyncio.create_subprocess_exec", fork)


def test_a_pod_that_the_books_know_is_answered_from_them_in_a_child() -> None:
    assert get(page_of(), "pod=a/known") == (200, {"pod": "a/known"})


@pytest.mark.parametrize("query", ["", "pod=", "pod=a/", "pod=--help", "pod=a/b/c", "pod=A", "pod=a%20b", "pod=-n/x"])
def test_what_is_no_name_starts_nothing(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_children(monkeypatch)
    assert get(page_of(), query)[0] == 400


def test_a_name_that_is_not_in_the_books_is_answered_at_once_and_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_children(monkeypatch)
    for query in ("pod=a/stranger", "pod=known", "pod=b/known"):
        status, body = get(page_of(), query)
        assert (status, "that this scheduler places" in body["error"]) == (404, True)


def test_a_child_that_does_not_end_costs_its_asker_an_answer_and_nobody_else() -> None:
    page = ExplainPage(lambda namespace, name: True, lambda namespace, name: time.sleep(60) or b"", patience=0.2)
    assert get(page, "pod=a/known") == (504, {"error": "no answer within 0 s"})


def test_however_many_ask_one_child_runs_and_a_few_wait() -> None:
    async def play() -> list[int]:
        page = ExplainPage(lambda namespace, name: True, lambda namespace, name: time.sleep(0.05) or b"{}", patience=60.0)
        requested = (page.answer(make_mocked_request("GET", "/explain?pod=a/known")) for _ in range(100))
        return sorted(answer.status for answer in await asyncio.gather(*requested))

    assert asyncio.run(play()) == [200] * MOST_WAITING + [503] * (100 - MOST_WAITING)


class Reviewer:
    """An API server that knows one token, and lets its owner get the pods of one namespace."""

    def __init__(self, refuse: ApiError | None = None) -> None:
        self.refuse, self.requested = refuse, []  # type: ignore[var-annotated]

    async def create(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        if self.refuse:
            raise self.refuse
        self.requested.append(body)
        if resource.plural == "tokenreviews":
            good = body["spec"]["token"] == "good"
            return {"status": {"authenticated": good, **({"user": {"username": "ann", "groups": ["team"]}} if good else {})}}
        spec, wanted = body["spec"], body["spec"]["resourceAttributes"]
        assert (spec["user"], spec["groups"], wanted["verb"], wanted["resource"]) == ("ann", ["team"], "get", "pods")
        return {"status": {"allowed": wanted["namespace"] == "a"}}


@pytest.mark.parametrize(
    ("header", "query", "status"),
    [
        ("", "pod=a/known", 401),
        ("Basic good", "pod=a/known", 401),
        ("Bearer", "pod=a/known", 401),
        ("Bearer wrong", "pod=a/known", 401),
        ("Bearer " + "x" * 100_000, "pod=a/known", 401),
        ("Bearer good", "pod=b/known", 403),
        ("Bearer good", "pod=a/known", 200),
        ("Bearer good", "pod=a/stranger", 404),
    ],
)
def test_where_others_reach_the_page_it_answers_those_who_may_get_the_pod(header: str, query: str, status: int) -> None:
    guard = Reviewed(Reviewer())  # type: ignore[arg-type]
    assert get(page_of(), query, headers={"Authorization": header}, guard=guard)[0] == status


def test_while_nobody_can_be_reviewed_nobody_is_answered() -> None:
    guard = Reviewed(Reviewer(ApiError(500, "InternalError", "etcd is away")))  # type: ignore[arg-type]
    status, body = get(page_of(), "pod=a/known", headers={"Authorization": "Bearer good"}, guard=guard)
    assert (status, "etcd is away" in body["error"]) == (503, True)


def test_the_books_answer_for_pods_that_wait_and_pods_that_run() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), pod("runs", mib=6000), pod("other", mib=100, scheduler="theirs"))
    world.settle()
    world.add(pod("waits", mib=5000))
    world.settle()
    runs = explain_known(world.engine, "default", "runs", now=world.now)
    waits = explain_known(world.engine, "default", "waits", now=world.now)
    assert runs is not None
    assert waits is not None
    assert (runs.summary, runs.node) == ("runs on n1", "n1")
    assert {change.kind for change in waits.changes} >= {"memory", "evict"}
    assert json.loads(as_json(waits))["reasons"]
    assert explain_known(world.engine, "default", "other") is None
    assert explain_known(world.engine, "default", "nobody") is None
