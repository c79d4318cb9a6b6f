"""Programs of others on the emulated machine: what passes without the library passes with it, test by test."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pumice_lab.machine import MachineError, create, machine_of
from pumice_lab.machine.native import library_path
from tests.native.foreign_suites import Suite, install, outcomes, root_of_tests, suites

SUITES = suites(Path(__file__).with_name("foreign_suites.toml"))


def test_every_suite_says_of_each_test_once_why_it_does_not_pass() -> None:
    assert {suite.name for suite in SUITES} >= {"cuda-python", "cuda-bindings", "cuda-bindings-12", "cuda-core", "numba-cuda"}
    assert all("==" in requirement for suite in SUITES for requirement in suite.requirements)
    assert all(why and suite.runner in ("pytest", "unittest") for suite in SUITES for why in suite.not_passing.values())


OTHERS = """
import os, pathlib, pytest
HERE = str(pathlib.Path(__file__).parent)

def test_passes(): pass
def test_ends_its_process(): os._exit(3)
@pytest.fixture
def breaks_later():
    yield
    raise OSError
def test_passes_and_fails_where_it_ends(breaks_later): pass
@pytest.mark.parametrize("path", [HERE + "/data" * 30])
def test_of_a_path(path): assert path.startswith(HERE)
"""


def test_tests_out_of_a_repository_run_past_one_that_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "theirs"
    (repository / "their/tests").mkdir(parents=True)
    (repository / "their/tests/test_it.py").write_text(OTHERS)
    git = ["git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "theirs"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    monkeypatch.setattr(Suite, "python", Path(sys.executable))
    suite = Suite("it", (), "pytest", ("their/tests",), (), {}, checkout="their-own", commit="HEAD")
    with pytest.raises(pytest.skip.Exception, match="set PUMICE_THEIR_OWN to the folder of a git repository"):
        root_of_tests(suite, tmp_path / "nothing")
    monkeypatch.setenv("PUMICE_THEIR_OWN", str(repository))
    assert outcomes(suite, root_of_tests(suite, tmp_path / "checkout"), [], dict(os.environ)) == {
        "test_it.py::test_passes": "passed",
        "test_it.py::test_ends_its_process": "ended",
        "test_it.py::test_passes_and_fails_where_it_ends": "failed",
        f"test_it.py::test_of_a_path[their/tests{'/data' * 30}]": "passed",
    }


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_gives_with_the_library_what_it_gives_without(suite: Suite, tmp_path: Path) -> None:
    root = root_of_tests(suite, tmp_path / "checkout")
    install(suite)
    machine = tmp_path / "m"
    try:
        libraries = library_path(suite.cuda)
    except MachineError as error:
        pytest.skip(str(error))
    model = machine_of(suite.cards)
    cards = tuple(replace(card, numa=0) for card in model.cards)  # as in a server
    create(replace(model, cards=cards, cuda=suite.cuda), machine).close()
    plain = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES")}
    plain["LD_LIBRARY_PATH"] = ":".join(suite.library_path())
    alone = plain | {
        "PUMICE_MACHINE": str(machine),
        "LD_LIBRARY_PATH": ":".join((libraries, *suite.library_path())),
        "CUDA_VISIBLE_DEVICES": "0",
        "PATH": f"{machine}/bin:{plain['PATH']}",
    }
    limited = [
        str(Path(sys.executable).with_name("pumice")),
        "run",
        "--emulated",
        str(machine),
        "--memory",
        "30000",
        "--",
    ]
    without = outcomes(suite, root, [], alone)
    assert {
        name for name, outcome in without.items() if outcome not in ("passed", "skipped")
    } == suite.not_passing.keys()
    assert outcomes(suite, root, limited, plain) == without
