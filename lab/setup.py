"""Builds the emulated machine's libraries into the package; everything else is in pyproject.toml and ../tools/native_wheel.py."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT.parent / "tools"))

import native_wheel  # noqa: E402

native_wheel.run("pumice_lab", ROOT / "src", "machine-install", "LAB_PREFIX")
