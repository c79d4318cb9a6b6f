"""The goals of the benchmarks: each names the runs that it stands on, and a benchmark that measures it."""

from __future__ import annotations

import ast
import json
from fnmatch import fnmatchcase

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
    reported = {row["what"]: (row["goal"], row["unit"]) for row in kept if isinstance(row, dict)}
    now = {goal.what: goal.plain() for goal in goals_of(benchmark, dict.fromkeys(GOALS[benchmark]["goals"], 0.0))}
    assert {what: (now[what]["goal"], now[what]["unit"]) for what in reported.keys() & now.keys()} == {
        what: reported[what] for what in reported.keys() & now.keys()
    }


def phrase(part: ast.AST) -> str:
    """A string of a piece of source, empty where it is none; a star stands for what is filled in."""
    if isinstance(part, ast.JoinedStr):
        return "".join(str(piece.value) if isinstance(piece, ast.Constant) else "*" for piece in part.values)
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""


NATIVE = [ast.parse(source.read_text("utf-8")) for source in sorted((HERE / "native").rglob("*.py"))]


def test_every_goal_of_the_experiments_is_measured_by_one():
    said = {text for tree in NATIVE for part in ast.walk(tree) if len(text := phrase(part)) > 10}
    assert [what for what in GOALS["native"]["goals"] if not any(fnmatchcase(what, text) for text in said)] == []


def test_every_figure_that_an_experiment_holds_to_a_goal_has_one():
    """Else it would be missed only when the experiment has run, on a card that was lent for it."""
    calls = [part for tree in NATIVE for part in ast.walk(tree) if isinstance(part, ast.Call)
             and isinstance(part.func, ast.Attribute) and part.func.attr == "goal"]  # fmt: skip
    held = {text for call in calls if (text := phrase(call.args[0]))}
    assert len(held) > 40
    rows = GOALS["native"]["goals"]
    assert [what for what in held if not any(fnmatchcase(what, row) or fnmatchcase(row, what) for row in rows)] == []


@pytest.mark.parametrize("benchmark", [name for name in GOALS if name != "native"])
def test_every_goal_is_measured_by_its_benchmark(benchmark):
    source = ast.parse((HERE / f"{benchmark}.py").read_text("utf-8"))
    said = {text for part in ast.walk(source) if len(text := phrase(part)) > 4}
    if benchmark == "bs1_decide":
        said |= {f"{case.replace('_', ' ')}*" for case in realistic_pods.CASES}
    goals = GOALS[benchmark]["goals"]
    assert [what for what in goals if not any(fnmatchcase(what, text) or fnmatchcase(text, what) for text in said)] == []


def test_a_figure_without_a_goal_is_an_error():
    with pytest.raises(KeyError, match="guessed"):
        goals_of("bs5_start", {"guessed": 1.0})
