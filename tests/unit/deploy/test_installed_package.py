"""What an installation brings along: everything that the package finds beside its own modules."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "pumice"


def installed() -> set[Path]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["pumice"]
    return {path for pattern in patterns for path in PACKAGE.glob(pattern) if path.is_file()}


def test_the_native_libraries_and_every_data_file_are_installed() -> None:
    kept = installed()
    data = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".pyi", ".proto")}
    assert data - kept == set()
    names = {path.name for path in kept}
    assert {"libvgpu.so", "libcuda.so.1", "libnvidia-ml.so.1", "volcano.yml", "py.typed"} <= names
