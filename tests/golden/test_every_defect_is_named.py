"""Each of the specification's 46 defects (D-01 to D-46) has a test that bears its number, and only one."""

from __future__ import annotations

import ast
from pathlib import Path


def test_every_defect_of_the_specification_has_its_test() -> None:
    found = []
    for path in Path(__file__).parent.glob("test_defects_*.py"):
        functions = [node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
        found += [name[5:8] for name in functions if name.startswith("test_d") and name[6:8].isdigit()]
    assert sorted(found) == [f"d{number:02}" for number in range(1, 47)]
