"""``pumice bench`` finds what lies below benchmarks/ by convention."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import running as bench

from pumice.cli.main import main
from pumice.model.errors import BadInput


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with two benchmarks that leave a line in a file, one of them discontented with itself, and a helper."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "report.py").write_text("def save():\n    pass\n")
    body = '''"""{title}.

More text: --quick and --save.
"""
import pathlib, sys
MINUTES = 3
def main():
    with pathlib.Path({log!r}).open("a") as log:
        print({title!r}, *sys.argv[1:], file=log)
    return {code}
if __name__ == "__main__":
    sys.exit(main())
'''
    log = str(tmp_path / "log")
    (folder / "bs2_second_thing.py").write_text(body.format(title="The second", log=log, code=0))
    (folder / "bs1_first.py").write_text(body.format(title="The first", log=log, code=1))
    (folder / "alone.py").write_text(body.format(title="By name", log=log, code=0).replace("--save", "--keep"))
    return tmp_path


def test_each_module_with_a_main_is_one_with_its_name_title_and_minutes(tree: Path) -> None:
    found = bench.find_benchmarks(tree)
    assert [(one.name, one.title, one.minutes) for one in found.values()] == [
        ("first", "The first", 3), ("second-thing", "The second", 3), ("alone", "By name", 3),
    ]  # fmt: skip


def test_all_goes_on_when_one_falls_short_and_the_exit_code_tells(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.run(tree, "all", quick=True)
    assert ended.value.code == 1
    assert (tree / "log").read_text() == "The first --quick\nThe second --quick\n"
    said = capfd.readouterr().err
    assert "# 1/2 first: The first" in said
    table = {cells[1]: cells[2] for line in said.splitlines() if len(cells := [cell.strip() for cell in line.split("│")]) > 3}
    assert table == {"first": "failed, exit code 1", "second-thing": "good"}
    assert said.splitlines()[-1] == "fell short or failed: first"


def test_a_figure_that_misses_its_goal_is_told_apart_from_a_wrong_result(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = tree / "benchmarks" / "bs1_first.py"
    first.write_text(first.read_text().replace("return 1", f"return {bench.SHORT}"))
    with pytest.raises(SystemExit):
        bench.run(tree, "all")
    said = capfd.readouterr().err
    assert "# 1/2 first: short of a goal after" in said
    assert "# 2/2 second-thing: The second (about 3 min)" in said
    bench.run(tree, "all", quick=True)
    assert "# 1/2 first: short of a goal after" in capfd.readouterr().err


def test_one_that_does_not_come_to_its_end_is_ended_and_the_others_still_run(
    tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = tree / "benchmarks" / "bs1_first.py"
    first.write_text(first.read_text().replace("    return 1", "    import threading\n    threading.Event().wait()")
                     .replace("MINUTES = 3", "MINUTES = 0"))  # fmt: skip
    with pytest.raises(SystemExit):
        bench.run(tree, "all", least_limit=0.02)
    said = capfd.readouterr().err
    assert "# 1/2 first: ended after 0.02 min" in said
    assert (tree / "log").read_text().endswith("The second\n")


def test_a_short_run_is_not_kept_in_place_of_a_whole_one(tree: Path) -> None:
    with pytest.raises(BadInput, match=r"^--quick and --save:"):
        bench.run(tree, "all", quick=True, save=True)
    assert not (tree / "log").exists()


def test_further_flags_go_to_the_benchmark_that_is_named(tree: Path) -> None:
    bench.run(tree, "alone", ["--nodes", "7"], save=True)
    assert (tree / "log").read_text() == "By name --nodes 7\n"  # it does not know --save


def test_a_wrong_name_is_answered_with_the_nearest(tree: Path) -> None:
    with pytest.raises(BadInput, match=r"^there is no benchmark 'frist'; did you mean 'first'\?$"):
        bench.run(tree, "frist")


def test_the_benchmarks_of_the_scheduler_are_there() -> None:
    found = bench.find_benchmarks(Path(__file__).parents[2])
    assert {"decide", "end-to-end", "latency", "gangs", "start", "hostile", "metrics-page"} <= found.keys()
    assert all(one.title for one in found.values())


def test_the_null_binder_and_the_proxy_are_programs() -> None:
    """They are started by name, so a rename must not go unseen."""
    for module in ("null_binder", "proxy", "embedded"):
        ended = subprocess.run([sys.executable, "-c", f"import benchmarks.end_to_end.{module}"], cwd=Path(__file__).parents[2],
                               capture_output=True, text=True, check=False)  # fmt: skip
        assert ended.returncode == 0, ended.stderr


def test_the_command_lists_those_of_this_checkout_and_hands_further_flags_on(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--list"])
    assert "decide" in capfd.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["bench", "all", "--nodes", "7"])
    assert ended.value.code == 2
    assert capfd.readouterr().err.startswith("pumice: --nodes: flags of a single benchmark need its name")


@pytest.mark.parametrize("module", [one.module for one in bench.find_benchmarks(bench.ROOT).values()])
def test_a_benchmark_uses_only_what_is_there(module: str) -> None:
    assert importlib.import_module(module).main
