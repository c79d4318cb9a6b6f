"""Tests, benchmarks and their kit: who may import whom. The package's own rooms are import-linter's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FORBIDDEN = [
    ("kit", {"tests", "benchmarks", "lab"}, "the kit serves all"),
    ("benchmarks", {"tests"}, "what both need is in the kit"),
    ("tests", {"benchmarks", "lab"}, "the benchmarks' own tests are in benchmarks/tests, the laboratory's in lab/tests"),
    ("lab", {"tests", "benchmarks"}, "what both need is in the kit"),
]


@pytest.mark.parametrize(("room", "others", "why"), FORBIDDEN, ids=[row[0] for row in FORBIDDEN])
def test_tests_and_benchmarks_meet_in_the_kit_only(room: str, others: set[str], why: str) -> None:
    named = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(others)})\b", re.MULTILINE)
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    files = [path for path in files if named.search(path.read_text("utf-8"))]  # reading all of them as trees takes long
    found = [f"{path.relative_to(ROOT)}: {name}" for path in files for name in imported(path) if name.partition(".")[0] in others]
    assert found == [], why


def imported(path: Path) -> list[str]:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return named + [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]


@pytest.mark.parametrize(("unit", "sources"), [("tests/unit", "src"), ("lab/tests/unit", "lab/src")])
def test_unit_tests_are_filed_by_the_room_that_they_test(unit: str, sources: str) -> None:
    beside = {"docs", "deploy", "kit", "."}
    """The folders beside the package: its documents, its manifests, and the tests' own kit."""
    rooms = {file.parent.relative_to(ROOT / unit).as_posix() for file in (ROOT / unit).rglob("*.py")} - beside
    package = package_of if sources == "src" else "pumice_lab/{}".format
    assert [room for room in sorted(rooms) if not (ROOT / sources / package(room)).is_dir()] == []


def package_of(room: str) -> str:
    """The folder of the sources that a folder of unit tests is for."""
    return f"pumice_{room}" if room.partition("/")[0] == "jobs" else f"pumice/{room}"
