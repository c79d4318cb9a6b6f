"""The reference of commands and the man pages are made of the parsers, and every command shows how it is called."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from kit import command_pages
from kit.command_pages import MAN, OF_LABORATORY, PAGE, Command

EVERY = [command for tops in command_pages.groups().values() for top in tops for command in top.all()]
each = pytest.mark.parametrize("command", EVERY, ids=lambda command: command.words)


def calls(command: Command) -> Iterator[str]:
    """Where its examples call it: `pumice job` is `vcctl job` too, and kubectl's plugins are called through kubectl."""
    called = re.sub(r"^pumice (\w+)", r"(\\w+=\\S+ )?(pumice|vcctl|kubectl) \1\\b", command.words)
    for part in (part.strip() for line, _ in command.examples for part in re.split(r"&& |<\(|[|;<>)]", line)):
        if re.match(called, part):
            yield part


def test_what_is_kept_is_what_the_parsers_say() -> None:
    """``python -m kit.command_pages``"""
    kept = {path: path.read_text("utf-8") for path in (PAGE, *MAN.iterdir(), *OF_LABORATORY.iterdir())}
    made = command_pages.every()
    assert {path.name for path in kept} == {path.name for path in made}
    assert [path.name for path, text in made.items() if kept[path] != text] == []


@each
def test_every_command_has_an_example_of_its_own(command: Command) -> None:
    assert list(calls(command))
    assert max(len(line) for line, _ in command.examples) <= 76  # it stands in the help of a terminal of eighty columns, unbroken


@each
def test_every_option_says_what_it_does(command: Command) -> None:
    assert [written for written, meaning in (*command.arguments, *command.options) if not re.match(r"[^\[]", meaning)] == []


@each
def test_an_example_names_options_that_the_command_takes(command: Command) -> None:
    known = {word for written, _ in command.options for word in re.findall(r"(?<![\w-])--?[a-z][\w-]*", written)}
    for called in calls(command):
        requested = {word.partition("=")[0] for word in shlex.split(called.partition(" -- ")[0]) if re.match(r"--?[a-z]", word)}
        assert command.below or requested <= known, called


@pytest.mark.skipif(not shutil.which("man"), reason="no man is here")
@pytest.mark.parametrize("page", sorted([*MAN.iterdir(), *OF_LABORATORY.iterdir()]), ids=lambda page: page.name)
def test_man_shows_every_page_and_warns_of_nothing(page: os.PathLike[str]) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANROFFOPT": "-ww"}
    done = subprocess.run(["man", "--warnings", "-l", str(page)], cwd=MAN.parent, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NAME" in done.stdout
