"""docs/reference/json.md tells of every command that prints JSON, and what it promises of all of them is so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pumice.cli.flags import Command
from pumice.cli.main import COMMANDS, load
from pumice.cli.output import API_VERSION, document

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "json.md").read_text("utf-8")
OF_VOLCANO = ("job", "queue", "jobflow", "jobtemplate", "pod")
"""They print objects as the API server has them, all of them in one sentence."""


def printing(command: Command, words: tuple[str, ...]) -> Iterator[str]:
    """The commands below that know ``-o json``."""
    for name, below in command.below.items():
        yield from printing(below, (*words, name))
    outputs = [one for one in command.parameters if {"-o", "--output"} & set(one.names)]
    if any("json" in one.choices or "json" in one.spec.help for one in outputs):
        yield " ".join(words)


FOUND = [words for name in COMMANDS if name not in OF_VOLCANO for words in printing(load(name).build(), (name,))]


def test_the_page_names_every_command_that_prints_json() -> None:
    reported = set()
    for cell in re.findall(r"^\| (`pumice .*?) \|", PAGE, re.MULTILINE):
        first, *others = re.findall(r"`(?:pumice )?(.*?)`", cell)
        reported |= {first, *others, *(f"{first.split()[0]} {other}" for other in others)}
    assert [
        words for words in FOUND if words not in reported and not any(each.startswith(f"{words} ") for each in reported)
    ] == []
    assert len(FOUND) > 12


def test_an_object_begins_with_its_version() -> None:
    assert f'"apiVersion": "{API_VERSION}"' in PAGE

    @dataclass
    class Found:
        pods: int = 3

    for found in ({"pods": 3}, b'{"pods": 3}', Found()):
        assert list(json.loads(document(found)).items()) == [("apiVersion", API_VERSION), ("pods", 3)]
    assert json.loads(document({})) == {"apiVersion": API_VERSION}


@pytest.mark.parametrize("name", OF_VOLCANO)
def test_volcanos_objects_are_told_of_in_one_sentence(name: str) -> None:
    assert re.search(rf"^- Kubernetes' and Volcano's own objects.*`(?:pumice )?{name}`", PAGE, re.MULTILINE)
