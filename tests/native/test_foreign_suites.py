"""Programs of others on the emulated machine: what passes without the library passes with it, test by test."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit.foreign_suites import Suite, install, outcomes, root_of_tests, suites

from pumice.machine import MachineError, create, machine_of
from pumice.machine.native import library_path

SUITES = suites(Path(__file__).with_name("foreign_suites.toml"))


def test_every_suite_says_of_each_test_once_why_it_does_not_pass() -> None:
    assert {suite.name for suite in SUITES} >= {"cuda-python", "cuda-bindings", "cuda-bindings-12", "numba-cuda"}
    assert all("==" in requirement for suite in SUITES for requirement in suite.requirements)
    assert all(why and suite.runner in ("pytest", "unittest") for suite in SUITES for why in suite.not_passing.values())


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
    model = machine_of("2xA100-SXM4-40GB")
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
