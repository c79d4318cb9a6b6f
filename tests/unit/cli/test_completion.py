"""Completion offers the parsers' own words."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pumice.adapters.kube.config import Access
from pumice.cli import completion, daemon
from pumice.cli.main import main
from pumice_jobs.cli import vcctl


@pytest.mark.parametrize(("words", "offered"), [
    (("up", "--contr"), ["--control-plane"]), (("job",), ["job", "jobflow", "jobtemplate"]), (("nonsense", ""), []),
    (("job", "list", "--output=y"), ["--output=yaml"]), (("job", "list", "--output", "=", "y"), ["yaml"]),
    (("job", "list", "--output", "="), ["text", "wide", "json", "yaml"]), (("run", "--", "py"), []),
    (("lint", "--help", "x"), []),
    (("burn", "--sec"), ["--seconds"]), (("job", "list", "-n", "li"), []),
    (("explain", ""), ["pod", "podgroup", "queue", "job", "deployment", "statefulset", "replicaset", "daemonset", "waiting"]),
    (("explain", "po"), ["pod", "podgroup"]), (("explain", "nonsense", ""), []),
    (("queue", "operate", "--action", "o"), ["open"]), (("queue", "create", "--state", "=", "C"), ["Closed"]),
    (("up", "--model", "H200"), ["H200", "H200-NVL"]), (("machine", "create", "--cards", "Tesla-T"), ["Tesla-T4"]),
    (("job", "resume", "--namespace", "=", "a", "--na"), ["--name", "--namespace"]),
], ids=" ".join)  # fmt: skip
def test_what_is_offered_comes_from_the_parsers(
    words: tuple[str, ...], offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["__complete", *words])
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == offered


@pytest.mark.parametrize("words", [
    ("job", "view", "-N", ""), ("job", "list", "-n", ""), ("queue", "get", "--name", "=", ""), ("pod", "list", "-j", ""),
    ("explain", "pod", ""), ("explain", "po/"), ("jobflow", "get", "-N", ""), ("limit", ""), ("vgpu", "status", ""),
], ids=" ".join)  # fmt: skip
def test_names_that_nobody_can_tell_are_not_offered_and_nothing_is_said(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    main(["__complete", *words])
    assert capsys.readouterr() == ("", "")


def test_a_server_that_does_not_answer_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "PATIENCE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(daemon, "find_access", lambda _: Access(f"http://127.0.0.1:{silent.getsockname()[1]}", None, str))
        main(["__complete", "job", "view", "-N", ""])
    assert capsys.readouterr() == ("", "")


def test_a_command_that_takes_options_alone_offers_them_before_anything_is_begun(capsys: pytest.CaptureFixture[str]) -> None:
    vcctl.main(["__complete", "job", "view", ""], "vcctl")
    assert "--name\tName of the Job." in capsys.readouterr().out.splitlines()


def test_every_command_of_the_overview_and_of_vcctl_can_be_completed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["__complete", ""])
    for name in [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]:
        main(["__complete", name, "--h"])
        assert "--help" in capsys.readouterr().out, name
    vcctl.main(["__complete", ""], "vcctl")
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == [
        "completion", "job", "jobflow", "jobtemplate", "pod", "queue", "version"]  # fmt: skip


@pytest.mark.parametrize("program", ["pumice", "vcctl"])
def test_another_shell_is_refused_in_one_line(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "csh"]) if program == "pumice" else vcctl.main(["completion", "csh"], "vcctl")
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
