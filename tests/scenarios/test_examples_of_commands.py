"""Every example of `--help`, and so of docs/reference/commands.md, is typed, and what it prints is compared.

The pages beside this file are their worlds, one for many examples: a machine, a cluster, a cluster without daemons. They are
played in a network of their own: daemons listen on all addresses, at ports that others have.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit import command_pages, page_commands
from kit.installing import program

pytestmark = pytest.mark.timeout(500)  # some forty seconds of processor time each
WORLDS = sorted((Path(__file__).parent / "examples").glob("*.md"))


def typed(page: Path) -> set[str]:
    """The commands that a reader of a page types and sees the output of."""
    found: set[str] = set()
    for block in page_commands.blocks(page.read_text("utf-8")):
        if block.kind == "console":
            found.update(command for command, _ in page_commands.dialogue(block.text))
        elif block.here:
            found.update(page_commands.commands(block.text))
    return found


def test_every_example_is_typed_in_one_of_the_worlds() -> None:
    every = [one for tops in command_pages.groups().values() for top in tops for one in top.all()]
    examples = {line for one in every for line, _ in one.examples}
    assert len(examples) > 100
    assert examples - set.union(*map(typed, WORLDS)) == set()


def test_no_output_of_the_worlds_may_be_anything() -> None:
    for page in WORLDS:
        shown = [said for block in page_commands.blocks(page.read_text("utf-8")) if block.kind == "console"
                 for _, said in page_commands.dialogue(block.text) if said is not None]  # fmt: skip
        assert [said for said in shown if not said.replace("...", "").strip()] == [], page.name


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of one's own is root's to make")
@pytest.mark.parametrize("page", WORLDS, ids=[page.stem for page in WORLDS])
def test_the_examples_of_a_world_do_what_they_say(page: Path) -> None:
    program("kubectl")
    play = 'ip link set lo up && exec "$0" -m kit.page_commands "$1"'
    command = ["unshare", "--net", "sh", "-c", play, sys.executable, page]
    done = subprocess.run(command, cwd=page_commands.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
