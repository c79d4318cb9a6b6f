"""What an installation brings along: everything that the package finds beside its own modules."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = [ROOT / "src" / name for name in ("pumice", "pumice_jobs")]


def installed() -> set[Path]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]
    found = {path for package in PACKAGES for pattern in patterns[package.name] for path in package.glob(pattern)}
    return {path for path in found if path.is_file()}


def test_every_data_file_is_installed() -> None:
    """The native libraries are built into the wheel (tests/scenarios/test_the_wheel.py)."""
    kept = installed()
    beside = {path for package in PACKAGES for path in package.rglob("*") if path.is_file() and "_native" not in path.parts}
    data = {path for path in beside if path.suffix not in (".py", ".pyc", ".pyi", ".proto")}
    assert data - kept == set()
    assert {"volcano.yml", "py.typed"} <= {path.name for path in kept}
