"""The goals of the benchmarks: each names the runs that it stands on, and a benchmark that measures it."""

from __future__ import annotations

import json

import pytest
from benchmarks import realistic_pods
from benchmarks.goals import GOALS, goals_of
from kit.results import RESULTS

HERE = RESULTS.parent


@pytest.mark.parametrize("benchmark", GOALS)
def test_a_limit_names_the_runs_that_it_was_set_by_and_they_kept_to_it(benchmark):
    about = GOALS[benchmark]
    measured = {what: row["measured"] for what, row in about["goals"].items() if "measured" in row}
    assert [goal.what for goal in goals_of(benchmark, measured) if not goal.met] == []
    assert not measured or about["date"]
    assert not measured or (RESULTS / f"{about['runs']}.json").is_file()


@pytest.mark.parametrize("benchmark", [name for name in GOALS if "runs" in GOALS[name]])
def test_the_goals_of_kept_runs_are_those_that_stand_there(benchmark):
    kept = json.loads((RESULTS / f"{GOALS[benchmark]['runs']}.json").read_text("utf-8")).get("goals", [])
    told = {row["what"]: (row["goal"], row["unit"]) for row in kept if isinstance(row, dict)}
    now = {goal.what: goal.plain() for goal in goals_of(benchmark, dict.fromkeys(GOALS[benchmark]["goals"], 0.0))}
    assert {what: (now[what]["goal"], now[what]["unit"]) for what in told.keys() & now.keys()} == {
        what: told[what] for what in told.keys() & now.keys()
    }


@pytest.mark.parametrize("benchmark", GOALS)
def test_every_goal_is_measured_by_its_benchmark(benchmark):
    source = (HERE / f"{benchmark}.py").read_text("utf-8")
    cases = [case.replace("_", " ") for case in realistic_pods.CASES] if benchmark == "bs1_decide" else []
    assert [what for what in GOALS[benchmark]["goals"] if f'"{what}"' not in source and what.partition(":")[0] not in cases] == []


def test_a_figure_without_a_goal_is_an_error():
    with pytest.raises(KeyError, match="guessed"):
        goals_of("bs5_start", {"guessed": 1.0})
