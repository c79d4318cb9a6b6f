"""Docstrings say what a thing is or does (CONTRIBUTING.md): one that begins with a question word leaves it to the reader."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
QUESTION = re.compile(r"\s*(What|Who|Whether|Whose|How|Of which)\b(?!-)")
COMMENT = re.compile(r"/\*[\s*]*(.*?)\*/", re.DOTALL)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Each docstring with its line: of a module, class or function, and those that stand below an attribute."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


@pytest.mark.parametrize("folder", ["src/pumice", "src/pumice_jobs", "lab/src/pumice_lab", "kit"])
def test_no_docstring_begins_with_a_question_word(folder: str) -> None:
    texts = {path: path.read_text() for path in sorted((ROOT / folder).rglob("*.py"))}
    assert sum(text.count('"""') for text in texts.values()) > 200, "nothing was read"
    asking = [path for path, text in texts.items() if re.search(rf'"{QUESTION.pattern}', text)]  # few need to be parsed
    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for path in asking for line, text in docstrings(texts[path]) if QUESTION.match(text)
    ] == []  # fmt: skip


@pytest.mark.parametrize("folder", ["native/vgpu", "lab/native"])
def test_no_comment_of_a_header_begins_with_a_question_word(folder: str) -> None:
    texts = {path: path.read_text() for path in sorted((ROOT / folder).rglob("*.h")) if "build" not in path.parts}
    assert sum(text.count("/*") for text in texts.values()) > 100, "nothing was read"
    assert [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, comment.start()) + 1}"
        for path, text in texts.items() for comment in COMMENT.finditer(text) if QUESTION.match(comment[1])
    ] == []  # fmt: skip
