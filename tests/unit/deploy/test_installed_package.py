"""The files of an installation: everything that the package finds beside its own modules."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import pumice
import pumice_lab

ROOT = Path(__file__).resolve().parents[3]
PROJECTS = (ROOT, ROOT / "lab")
PACKAGES = {"pumice": ROOT, "pumice_jobs": ROOT, "pumice_lab": ROOT / "lab"}
"""And the project that each is a part of."""


def project(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((home / "pyproject.toml").read_text("utf-8"))
    return found


def installed(name: str) -> set[Path]:
    home = PACKAGES[name]
    patterns = project(home)["tool"]["setuptools"]["package-data"][name]
    return {path for pattern in patterns for path in (home / "src" / name).glob(pattern) if path.is_file()}


@pytest.mark.parametrize(("name", "some"), [
    ("pumice", {"volcano.yml", "py.typed"}), ("pumice_jobs", {"py.typed"}), ("pumice_lab", {"kinds.toml", "py.typed"}),
])  # fmt: skip
def test_every_data_file_is_installed(name: str, some: set[str]) -> None:
    """The native libraries are built into the wheel (tests/scenarios/test_the_wheel.py)."""
    kept = installed(name)
    beside = {path for path in (PACKAGES[name] / "src" / name).rglob("*") if path.is_file() and "_native" not in path.parts}
    data = {path for path in beside if path.suffix not in (".py", ".pyc", ".pyi", ".proto")}
    assert data - kept == set()
    assert some <= {path.name for path in kept}


def test_product_and_laboratory_are_of_one_version() -> None:
    assert [project(home)["tool"]["setuptools"]["dynamic"]["version"] for home in PROJECTS] == [
        {"attr": "pumice.__version__"}, {"attr": "pumice_lab.__version__"}]  # fmt: skip
    assert pumice.__version__ == pumice_lab.__version__


def test_neither_wheel_asks_an_index_for_a_name_of_ours() -> None:
    for home in PROJECTS:
        said = project(home)["project"]
        extras = said.get("optional-dependencies", {})
        requested = [*said["dependencies"], *(line for lines in extras.values() for line in lines)]
        assert [line for line in requested if line.lower().startswith("pumice")] == []
