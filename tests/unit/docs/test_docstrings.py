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
    texts = {path: path.read_text() for path in sorted((ROOT / folder).rglob("*.py"))}
    assert sum(text.count('"""') for text in texts.values()) > 200, "nothing was read"
    asking = [path for path, text in texts.items() if re.search(rf'"\s*{QUESTION.pattern}', text)]  # few need to be parsed
    assert [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
        for path in asking for node in ast.walk(ast.parse(texts[path])) if isinstance(node, DOCUMENTED)
        if QUESTION.match(ast.get_docstring(node) or "")
    ] == []  # fmt: skip
