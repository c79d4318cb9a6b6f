"""Every string that others gave us (names, annotations, labels, resources, environment variables) stands once, in ``wire``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"
ROOMS = ("adapters", "apps", "cel", "cli", "devices", "effects", "engine", "local", "metrics", "model", "node", "ports")
FOLDERS = [f"pumice/{room}" for room in ROOMS] + [f"pumice_jobs/{room}" for room in ("apps", "cli", "controllers", "metrics")]
"""The laboratory stands apart: what it says is its to know."""
DOMAINS = r"(?:[\w.-]*\.)?(?:volcano\.sh|nvidia\.com|huawei\.com|kubernetes\.io|k8s\.io|hami\.io|pumice\.io|ascend\.com)"
VARIABLES = r"(?:CUDA(?!_ERROR)|NVIDIA|LIBCUDA|ASCEND|HAMI|NPU|PUMICE|VOLCANO|GPU)_[A-Z0-9_]+"
FOREIGN = re.compile(rf"^{DOMAINS}(?:/[\w./-]*)?$|^{VARIABLES}$")
HINTS = re.compile(r"\.(?:sh|com|io)\b|(?:CUDA|NVIDIA|ASCEND|HAMI|NPU|PUMICE|VOLCANO|GPU)_[A-Z0-9_]")
"""Without one of these no text holds such a string."""


def strays(source: str) -> Iterator[str]:
    """Foreign strings of a module; its documentation may name what it likes."""
    if not HINTS.search(source):
        return
    tree = ast.parse(source)
    reported = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in reported
            and FOREIGN.match(node.value)
        ):
            yield node.value


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_foreign_string_stands_in_wire_and_nowhere_else(folder: str) -> None:
    found = [f"{path.relative_to(SOURCES)}: {stray}" for path in sorted((SOURCES / folder).rglob("*.py"))
             if "_pb2" not in path.name for stray in strays(path.read_text("utf-8"))]  # fmt: skip
    assert found == []


def test_no_foreign_string_stands_twice_in_wire() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((SOURCES / "pumice" / "wire").rglob("*.py")):
        for stray in strays(path.read_text("utf-8")):
            found.setdefault(stray, []).append(path.name)
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_strays_are_seen_and_documentation_is_let_be() -> None:
    source = '"""volcano.sh/vgpu-number"""\nA = "volcano.sh/vgpu-number"\nB = f"NVIDIA_VISIBLE_DEVICES"\nC = "a CUDA_CACHE"\n'
    assert list(strays(source)) == ["volcano.sh/vgpu-number", "NVIDIA_VISIBLE_DEVICES"]
