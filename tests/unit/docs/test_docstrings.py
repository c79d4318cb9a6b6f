"""Docstrings say what a thing is or does (CONTRIBUTING.md): one that begins with a question word leaves it to the reader."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
QUESTION = re.compile(r"(What|Who|Whether|Whose|How|Of which)\b(?!-)")
DOCUMENTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


@pytest.mark.parametrize("folder", ["src/pumice", "lab/src/pumice_lab", "kit"])
def test_no_docstring_begins_with_a_question_word(folder: str) -> None:
    texts = [
        (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", ast.get_docstring(node) or "")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, DOCUMENTED)
    ]  # fmt: skip
    assert len(texts) > 100, "nothing was read"
    assert [where for where, text in texts if QUESTION.match(text)] == []
