"""What is offered where a word is completed: it comes from the parsers."""

from __future__ import annotations

import pytest

from pumice.cli import vcctl
from pumice.cli.main import main


@pytest.mark.parametrize(("words", "offered"), [
    (("up", "--contr"), ["--control-plane"]), (("job",), ["job", "jobflow", "jobtemplate"]), (("nonsense", ""), []),
    (("job", "list", "--output=y"), ["--output=yaml"]), (("job", "list", "--output", "=", "y"), ["yaml"]),
    (("job", "list", "--output", "="), ["text", "wide", "json", "yaml"]), (("run", "--", "py"), []),
    (("lint", "--help", "x"), []),
    (("burn", "--sec"), ["--seconds"]), (("job", "list", "-n", "li"), []),
], ids=" ".join)  # fmt: skip
def test_what_is_offered_comes_from_the_parsers(
    words: tuple[str, ...], offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["__complete", *words])
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == offered


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
