"""The server's record of writes, as kube-apiserver's audit log and the embedded server write it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from benchmarks.end_to_end.request_log import RequestLog


def line(verb: str, name: str, at: str, *, sub: str = "", code: int = 201, agent: str = "load/1.0", kind: str = "pods") -> str:
    return json.dumps({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "verb": verb, "userAgent": agent,
        "objectRef": {"resource": kind, "namespace": "default", "name": name, "subresource": sub, "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": code}, "requestReceivedTimestamp": f"2026-01-01T00:00:{at}.000000Z",
        "stageTimestamp": f"2026-01-01T00:00:{at}.500000Z",
    }) + "\n"  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "audit.log"
    found.touch()
    return found


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_delay_goes_from_the_create_answered_to_the_binding_answered(path: Path) -> None:
    write(path, line("create", "a", "01") + line("create", "a", "03", sub="binding", agent="kube-scheduler/v1.36"))
    log = RequestLog(path)
    log.read()
    assert log.delays_ms({"a"}) == [2000.0]
    assert log.bound["a"] - log.requested["a"] == 2.5
    assert log.writes == {"load": 1, "kube-scheduler": 1}


def test_a_refused_binding_binds_nothing_and_a_repeated_one_counts_twice(path: Path) -> None:
    log = RequestLog(path)
    write(path, line("create", "a", "01", sub="binding", code=409) + line("create", "b", "01", sub="binding") * 2)
    log.read()
    assert "a" not in log.bound
    assert log.refused == {("load", 409): 1}
    assert log.bindings["b"] == 2


def test_a_line_that_is_half_written_is_taken_when_it_is_whole(path: Path) -> None:
    text = line("create", "a", "01", sub="binding")
    log = RequestLog(path)
    write(path, text[:40])
    log.read()
    assert not log.bound
    write(path, text[40:])
    asyncio.run(log.until_bound({"a"}, seconds=0))
    assert list(log.bound) == ["a"]


def test_after_a_mark_only_what_follows_counts(path: Path) -> None:
    log = RequestLog(path)
    write(path, line("create", "a", "01"))
    log.read()
    log.mark()
    write(path, line("patch", "g", "02", kind="podgroups"))
    log.read()
    assert log.writes == {"load": 1}
    assert not log.created


def test_pods_that_are_missing_are_named(path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"1 of 1 pods are not bound after 0 s: \['a'\]"):
        asyncio.run(RequestLog(path).until_bound({"a"}, seconds=0))
