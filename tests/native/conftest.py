"""Fixtures of the tests of the native libraries."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

SECONDS = 300
"""Whichever of them comes first builds the libraries and the C programs, which a busy machine does in minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)  # the list has every test of the run, and a comparison of paths is slow
    for item in items:
        if not str(item.path).startswith(here):
            continue
        given = item.get_closest_marker("timeout") or item.get_closest_marker("soak")  # `make soak` sets no limit of its own
        if given is None:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with PyTorch: gigabytes, so nobody installs it for a test."""
    if named := os.environ.get("PUMICE_TORCH_PYTHON"):
        return named
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no PyTorch: pip install torch somewhere, and name that python in PUMICE_TORCH_PYTHON")
    return sys.executable
