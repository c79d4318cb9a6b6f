"""Benchmarks of single daemons run to their end and find their own results right."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.tests.running import OF_DAEMONS, PATIENCE, assert_runs_to_its_end

pytestmark = pytest.mark.timeout(PATIENCE)


@pytest.mark.parametrize("name", OF_DAEMONS)
def test_a_benchmark_runs_to_its_end_and_finds_its_result_right(name: str, tmp_path: Path) -> None:
    assert_runs_to_its_end(name, tmp_path)
