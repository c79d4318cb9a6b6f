"""What docs/how-to/defragment.md shows a capacity planner is what its commands print of a dump of `pumice up`."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from pumice.cli import main as cli

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "defragment.md"
DUMP = Path(__file__).with_name("fragmented.json.gz")
"""Written by `pumice dump` on `pumice up --cards 2 --model A100-SXM4-80GB`: two Jobs hold a part of a card each, six have ended,
and one waits for a whole card."""


def shown() -> list[tuple[str, list[str]]]:
    """The commands of the planner's section, each with the lines below it."""
    section = PAGE.read_text("utf-8").partition("## For a capacity planner")[2]
    blocks = [block.removeprefix("$ ").splitlines() for block in re.findall(r"(?m)(?:^    .*\n)+", section)]
    lines = [[line[4:] for line in "\n".join(block).splitlines()] for block in blocks]
    return [(block[0].removeprefix("$ "), block[1:]) for block in lines if block[0].startswith("$ ")]


@pytest.mark.parametrize(("command", "output"), shown())
def test_a_command_of_the_page_prints_what_the_page_shows(
    command: str, output: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("case.json").write_bytes(gzip.decompress(DUMP.read_bytes()))
    with pytest.raises(SystemExit) as ended:
        cli.main(command.split()[1:])
    assert not ended.value.code
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == output


def test_the_page_shows_all_three() -> None:
    assert [command.split()[1] for command, _ in shown()] == ["defrag", "defrag", "explain"]
