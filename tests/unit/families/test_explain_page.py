"""``/explain`` answers from a process of its own and says what went wrong in one line."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from kit.engine_world import World
from kit.objects import node, pod

from pumice.apps.scheduler.explain_page import ExplainPage
from pumice.engine.explaining.explain import as_json, explain_known


class Told(ExplainPage):
    """A page whose child is told what to answer."""

    def __init__(self, *answer: Any, pause: float = 0.0, patience: float = 60.0) -> None:
        super().__init__(patience=patience)  # a forked child on a busy machine takes its time
        self.told, self.pause, self.asked = answer, pause, []  # type: ignore[misc]

    __slots__ = ("asked", "pause", "told")

    async def _ask(self, namespace: str, name: str) -> tuple[int, str, str]:
        self.asked.append((namespace, name))
        await asyncio.sleep(self.pause)
        return self.told  # type: ignore[return-value]


def get(page: ExplainPage, query: str) -> tuple[int, dict[str, Any]]:
    answer: web.Response = asyncio.run(page.answer(make_mocked_request("GET", f"/explain?{query}")))
    return answer.status, json.loads(answer.text or "{}")


def test_the_childs_json_is_passed_on() -> None:
    page = Told(0, '{"pod": "a/b"}', "")
    assert get(page, "pod=a/b") == (200, {"pod": "a/b"})
    assert get(page, "pod=b") == (200, {"pod": "a/b"})
    assert page.asked == [("a", "b"), ("default", "b")]


@pytest.mark.parametrize("query", ["", "pod=", "pod=a/", "pod=--help", "pod=a/b/c", "pod=A", "pod=a%20b", "pod=-n/x"])
def test_what_is_no_name_never_reaches_a_command_line(query: str) -> None:
    page = Told(0, "{}", "")
    assert get(page, query)[0] == 400
    assert page.asked == []


def test_errors_are_one_line() -> None:
    assert get(Told(2, "", "noise\npumice: no pod a/b\n"), "pod=a/b") == (404, {"error": "no pod a/b"})
    assert get(Told(2, "", "pumice: the API server does not answer"), "pod=a/b")[0] == 502
    assert get(Told(0, "{}", "", pause=5, patience=0.2), "pod=a/b") == (504, {"error": "no answer within 0 s"})


def test_a_real_child_that_cannot_reach_a_cluster_says_so() -> None:
    status, body = get(ExplainPage("/nonexistent/kubeconfig", ("volcano",)), "pod=a/b")
    assert status == 502
    assert "kubeconfig" in body["error"]


def test_a_pod_that_the_books_know_is_answered_from_them_in_a_child() -> None:
    asked: list[str] = []

    def known(namespace: str, name: str) -> bytes:
        asked.append(name)  # in the child: nothing of it is seen here
        return json.dumps({"pod": f"{namespace}/{name}"}).encode() if name == "known" else b""

    page = Told(2, "", "pumice: no pod a/stranger")
    page.known = known
    assert get(page, "pod=a/known") == (200, {"pod": "a/known"})
    assert page.asked == []
    assert get(page, "pod=a/stranger") == (404, {"error": "no pod a/stranger"})
    assert asked == []


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
