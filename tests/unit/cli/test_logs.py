"""All daemons log in one way, and take the same flags for it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pumice.cli.daemon import LogFormat, log_to, setup_logging
from pumice.cli.main import main
from pumice.model.errors import BadInput

DAEMONS = (["scheduler"], ["controller"], ["webhook"], ["monitor"], ["device-plugin", "nvidia"], ["device-plugin", "ascend"],
           ["device-plugin", "gpushare"])  # fmt: skip
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("pumice")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.mark.parametrize("daemon", DAEMONS, ids=" ".join)
def test_every_daemon_takes_a_log_format_and_a_log_level(daemon: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*daemon, "--help"])
    reported = capsys.readouterr().out
    assert "--log-format <text|json>" in reported
    assert "--log-level" in reported


def test_a_line_is_the_same_whoever_logs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING pumice\.node %s\n"
    setup_logging(LogFormat.TEXT)
    logging.getLogger("pumice.node").warning("a word")
    assert re.fullmatch(line % "a word", capsys.readouterr().err)
    log_to(tmp_path / "up.log")
    logging.getLogger("pumice.node").warning("another")
    assert re.fullmatch(line % "another", (tmp_path / "up.log").read_text("utf-8"))
    elsewhere = [path for path in (ROOT / "src").rglob("*.py") if "%(asctime)s" in path.read_text("utf-8")]
    assert [path.name for path in elsewhere] == ["daemon.py"]


def test_a_level_counts_before_upstreams_verbosity(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(LogFormat.JSON, "error", verbosity=5)
    logging.getLogger("pumice").warning("not this")
    logging.getLogger("pumice").error("this")
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == ["this"]
    setup_logging(LogFormat.TEXT, verbosity=5)
    logging.getLogger("pumice").debug("every word")
    assert " DEBUG pumice every word" in capsys.readouterr().err
    with pytest.raises(BadInput, match="--log-level 'loud': use debug, info, warning or error"):
        setup_logging(LogFormat.TEXT, "loud")
