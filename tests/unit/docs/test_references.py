"""A docstring or comment names only modules that are there, and cites only what a reader can open."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EVERYWHERE = ("src", "lab/src", "kit", "tests", "lab/tests", "benchmarks", "native/vgpu", "lab/native")
FOLDERS = ("src/pumice", "src/pumice_jobs", "lab/src/pumice_lab", "kit")
SPAN = re.compile(r"``([^`]+)``|(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"[\w/.<>-]*\w\.(?:py|toml|c|h|def)\b")
DOTTED = re.compile(r"([a-z_]\w*)\.([A-Za-z_]\w*)(?:\.\w+)*(?=$|\()")
ENDINGS = re.compile(r"\.(?:so|sock|json|yaml|toml|h|io|v1|py)\b")
CITED = re.compile(
    r"\b[Ss]ections? [0-9]+(?!\.[0-9]+\.)|\b[Ss]pec (?:[a-z-]+ )?[0-9]|\bdesign, decision|\bdecision [0-9]|\bgrammar [0-9]"
    r"|\bdefects? [0-9]|\b[Pp]roperty [0-9]|(?<=[a-z,:] )\([1-9][0-9]?\.[0-9]{1,2}\)"
)
"""Sections and numbers of documents that are not in the repository."""
OBJECTS = {"cluster", "limits", "pumice", "requests", "spec", "status"}
"""Names of modules that are words of objects and arguments too: a field comes after their dot."""


@cache
def named_files(below: str = "") -> frozenset[str]:
    """The path of each file there, whole and from each of its folders on."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    listed = listed or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    split = [path.split("/") for path in listed if path.startswith(below)]
    return frozenset("/".join(parts[at:]) for parts in split for at in range(len(parts)))


@cache
def texts() -> dict[Path, str]:
    return {path: path.read_text() for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))}


@cache
def modules() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in texts():
        found.setdefault(path.parent.name if path.name == "__init__.py" else path.stem, []).append(path)
    return found


@cache
def words() -> frozenset[str]:
    """All words but those that stand in code spans alone."""
    return frozenset(word for text in texts().values() for word in re.findall(r"\w+", SPAN.sub("", text)))


@cache
def holds(module: Path, name: str) -> bool:
    if module.name == "__init__.py" and ((module.parent / name).is_dir() or (module.parent / f"{name}.py").exists()):
        return True
    return bool(re.search(rf"(?m)^\s*(?:(?:async )?def |class |from .* import .*\b)?{name}\b", texts()[module]))


@cache
def is_dead(first: str, second: str) -> bool:
    if first in OBJECTS:
        return False
    if first not in modules():
        return first not in words()
    return not any(holds(module, second) for module in modules()[first])


def dead_references(text: str) -> Iterator[str]:
    for span in SPAN.finditer(text):
        named = span.group(1) or span.group(2)
        at = text.count("\n", 0, span.start()) + 1
        yield from (f"{at}: {name}" for name in FILE.findall(named) if name not in named_files() and name[0] not in "/<")
        if (dotted := DOTTED.match(named)) and not ENDINGS.search(named) and is_dead(dotted[1], dotted[2]):
            yield f"{at}: {dotted[0]}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_or_comment_names_only_modules_that_are_there(folder: str) -> None:
    assert [f"{path.relative_to(ROOT)}:{dead}" for path, text in texts().items() if path.is_relative_to(ROOT / folder)
            for dead in dead_references(text)] == []  # fmt: skip


@pytest.mark.parametrize(
    "page", ["docs/develop", "docs/zh/develop", "docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md"]
)
def test_a_page_for_developers_names_only_files_that_are_there(page: str) -> None:
    place = ROOT / page
    for path in [place] if place.is_file() else sorted(place.rglob("*.md")):
        for span in SPAN.finditer(path.read_text()):
            for name in FILE.findall(span.group(1) or span.group(2)):
                below = "lab/" if path.name == "laboratory.md" and "/" not in name else ""
                assert name[0] in "/<" or "<" in name or name in named_files(below), f"{path.relative_to(ROOT)} names {name}"


@pytest.mark.parametrize("folder", EVERYWHERE)
def test_nothing_is_cited_by_a_number_that_nobody_can_look_up(folder: str) -> None:
    paths = [path for ending in ("py", "c", "h", "def") for path in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    found = [f"{path.relative_to(ROOT)}: {cited.group()}" for path in paths
             if path != Path(__file__) and "build" not in path.parts for cited in CITED.finditer(path.read_text())]  # fmt: skip
    assert found == []
