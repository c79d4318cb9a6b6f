"""The end of a benchmark: JSON, a table, and whether its goals are met."""

from __future__ import annotations

import json

import pytest
from benchmarks import running as bench
from benchmarks.goals import Goal
from benchmarks.report import SHORT, conclude, figures, median, readable


def stopped() -> dict[str, float]:
    """A yardstick that takes no time."""
    return {"rescan_pods_per_s": 30.0}


def test_the_exit_code_says_whether_every_goal_is_met() -> None:
    quick, slow = Goal("rate", 120, 100, "pods/s", least=True), Goal("delay", 12, 10, "ms")
    assert conclude("x", {}, [quick], keep=False, measure=stopped) == 0
    assert conclude("x", {}, [quick, slow], keep=False, measure=stopped) == SHORT == bench.SHORT


def test_json_goes_to_stdout_and_the_table_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    conclude("x", {"rate": median([1, 3, 2])}, [Goal("delay", 12, 10, "ms")], keep=False, measure=stopped)
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["rate"] == {"median": 2, "min": 1, "max": 3, "runs": 3}
    assert found["goals"] == [{"what": "delay", "value": 12, "goal": "<= 10", "unit": "ms", "met": False}]
    assert found["yardsticks"] == {"rescan_pods_per_s": 30.0}
    assert {"python", "cpu", "numpy", "date"} <= found.keys()
    assert "short" in err
    assert "rescan_pods_per_s 30.0" in err


def test_nested_medians_become_rows_by_their_path() -> None:
    rows = list(figures({"bursts": {"ours": {"pods_per_s": median([1.0, 2.0, 9.0])}}, "nodes": 5, "server": "kube"}))
    assert rows == [("bursts ours pods per s", "2", "1", "9", "3"), ("nodes", "5", "", "", "")]


def test_large_figures_are_told_in_digits() -> None:
    assert [readable(value) for value in (38_380.4, 1e6, 9999.6, 0.10512, 2)] == ["38,380", "1,000,000", "10,000", "0.1051", "2"]
