"""Fixtures of the tests of the emulated machine's libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.machines import make_machine

__all__ = ["make_machine"]

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
