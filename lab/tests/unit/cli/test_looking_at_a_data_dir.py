"""``pumice status`` and ``pumice down`` beside a cluster that starts, was killed, or does not answer."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kit.command_line import call

from pumice.cli.output import Output
from pumice.model.errors import BadInput
from pumice.wire import names
from pumice_lab.cli import down, status
from pumice_lab.datadir import DataDir

FACTS = {"server": "https://127.0.0.1:1", "summary": "1 node", "port": 1, "ready": True}


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "cluster")


def look(data: DataDir, *arguments: str) -> tuple[int, str]:
    done = call(status.app, ["--data-dir", str(data.root), *arguments])
    return done.exit_code, done.stdout


def test_nobody_is_ended_for_a_pid_that_a_killed_cluster_left_behind(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    with data.hold():
        data.write_facts({**FACTS, "pid": 4711})
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(pid))
    assert "no cluster runs" in call(down.app, ["--data-dir", str(data.root)]).stdout
    with data.hold():  # the next one, which has not said who it is yet
        done = call(down.app, ["--data-dir", str(data.root)])
        assert isinstance(done.exception, BadInput)
        assert "has not said who it is yet" in str(done.exception)
        assert look(data) == (1, f"a cluster is starting in {data.root}\n")
        assert json.loads(look(data, "-o", "json")[1]) == {"apiVersion": "pumice/v1", "running": True, "ready": False}
        assert (data.facts() or {})["port"] == 1  # which is to be the same again
    assert ended == []


def test_what_stops_a_cluster_says_by_what_words_it_comes_back_with_the_same_nodes(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as running:
        running.enter_context(data.hold())
        data.write_facts({**FACTS, "pid": 4711, "again": "pumice up --config three-nodes.yaml"})
        monkeypatch.setattr(os, "kill", lambda pid, number: running.close())
        done = call(down.app, ["--data-dir", str(data.root)])
    assert "`pumice up --config three-nodes.yaml` starts it again" in done.stdout


def reported(capsys: pytest.CaptureFixture[str], data: DataDir, output: Output, **world: Any) -> tuple[int, str]:
    """Exit code and text, as ``look``, of a world that is given."""
    try:
        status.tell(data, output, **world)
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().out
    return 0, capsys.readouterr().out


def test_a_cluster_that_does_not_answer_is_told_after_a_moment(data: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as silent, data.hold():
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        data.write_facts({**FACTS, "pid": 4711, "server": server})
        data.kubeconfig.write_text(json.dumps({
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
        }))  # fmt: skip
        code, text = reported(capsys, data, Output.TEXT, patience=0.1)
        assert (code, text) == (1, "the cluster (pid 4711) runs, but its API server does not answer: nothing came within 0 s\n")
        code, text = reported(capsys, data, Output.JSON, patience=0.1)
        assert (code, json.loads(text)["error"]) == (1, "nothing came within 0 s")


def test_programs_are_told_the_cards_and_the_pods(data: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    register = "GPU-a,10,16384,100,NVIDIA-Tesla T4,0,true,0,hami-core:"
    node = {"metadata": {"name": "n1", "annotations": {names.NODE_VGPU_REGISTER: register}}}
    pod = {"metadata": {"name": "p", "namespace": "a", "annotations": {names.VGPU_IDS: "GPU-a,NVIDIA,3000,50:"}},
           "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}  # fmt: skip

    async def answer(data: DataDir, patience: float) -> tuple[list[object], ...]:
        return [node], [pod], [], []

    with data.hold():
        data.write_facts({**FACTS, "pid": 4711})
        found = json.loads(reported(capsys, data, Output.JSON, look=answer)[1])
        text = reported(capsys, data, Output.TEXT, look=answer)[1]
        assert text.count("a/p (3000 MiB, 50 %)") == 1  # in a pipe, in one line
    assert found["pods"] == [{"namespace": "a", "name": "p", "node": "n1", "phase": "Running"}]
    (card,) = found["cards"]
    assert (card["node"], card["uuid"], card["memory"], card["cores"]) == ("n1", "GPU-a", 3000, 50)
    assert card["holders"] == [{"pod": "a/p", "memory": 3000, "cores": 50, "template": ""}]


def test_no_cluster_is_no_cluster_for_programs_too(data: DataDir) -> None:
    assert look(data, "-o", "json") == (1, '{"apiVersion": "pumice/v1", "running": false}\n')
    assert "start one: pumice up" in look(data)[1]
