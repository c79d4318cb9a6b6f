"""Suites of others: installed by name into an environment of their own, run test by test under a command in front.

Tests that no wheel has are taken out of a git repository that one has, whose folder a variable names: `PUMICE_CUDA_PYTHON`."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CACHE = Path("~/.cache/pumice/foreign").expanduser()

MODULES = """
import importlib, pkgutil, sys
names = sorted(found.name for found in pkgutil.iter_modules(importlib.import_module(sys.argv[1]).__path__))
print(*(name for name in names if name.startswith("test_")))
"""

UNITTEST = """
import sys, unittest

class Told(unittest.TestResult):
    def tell(self, outcome, test):
        print(outcome, test.id(), flush=True)
    def addSuccess(self, test): self.tell("passed", test)
    def addFailure(self, test, error): self.tell("failed", test)
    def addError(self, test, error): self.tell("failed", test)
    def addSkip(self, test, reason): self.tell("skipped", test)
    def addExpectedFailure(self, test, error): self.tell("passed", test)
    def addUnexpectedSuccess(self, test): self.tell("failed", test)
    def addSubTest(self, test, subtest, error): error and self.tell("failed", test)

if __name__ == "__main__":  # some tests start processes of their own
    unittest.defaultTestLoader.loadTestsFromName(sys.argv[1]).run(Told())
"""

PYTEST = """
import os

def tell(outcome, nodeid):
    with open(os.environ["PUMICE_TOLD"], "a") as told:
        print(outcome, nodeid, file=told)

def pytest_make_parametrize_id(config, val):
    if isinstance(val, str) and val.startswith(str(config.rootpath)):
        return os.path.relpath(val, config.rootpath)  # short, and the same wherever the tests lie

def pytest_collection_modifyitems(items):
    with open(os.environ["PUMICE_TOLD"]) as told:
        done = {line.rstrip("\\n").partition(" ")[2] for line in told}
    items[:] = [item for item in items if item.nodeid not in done]

def pytest_runtest_logstart(nodeid, location):
    tell("ended", nodeid)  # unless something else is told after it

def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        tell(report.outcome, report.nodeid)
"""


@dataclass(frozen=True)
class Suite:
    name: str
    requirements: tuple[str, ...]
    runner: str
    tests: tuple[str, ...]
    libraries: tuple[str, ...]
    not_passing: dict[str, str]  # test and why
    checkout: str | None = None  # the git repository that has the tests, where the packages have none
    commit: str = ""  # of it, that goes with the packages
    cuda: int = 13000  # what the machine's driver knows; 13010 is 13.1
    cards: str = "2xA100-SXM4-40GB"  # of the machine; the programs see the first
    seconds: int = 0  # a test that lasts longer has failed; 0: as long as it likes

    @property
    def variable(self) -> str:
        return f"PUMICE_{(self.checkout or self.name).upper().replace('-', '_')}"

    @property
    def home(self) -> Path:
        made_of = " ".join((sys.version, *self.requirements))
        return CACHE / f"{self.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"

    @property
    def python(self) -> Path:
        return self.home / "bin/python"

    @property
    def packages(self) -> Path:
        return self.home / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

    def library_path(self) -> list[str]:
        return [str(self.packages / folder) for folder in self.libraries]


def suites(table: Path) -> list[Suite]:
    def one(name: str, said: dict[str, Any]) -> Suite:
        reasons = {test: why for why, tests in said.pop("not-passing").items() for test in tests}
        lists = {key: tuple(said.pop(key)) for key in ("requirements", "tests", "libraries")}
        return Suite(name, not_passing=reasons, **lists, **said)

    return [one(name, said) for name, said in tomllib.loads(table.read_text()).items()]


def install(suite: Suite) -> None:
    """Once; what was installed is kept in the cache. Skips the test where it cannot be had."""
    if (suite.home / "installed").exists():
        return
    shutil.rmtree(suite.home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(suite.home)], check=True, timeout=120)
    done = subprocess.run(
        [str(suite.python), "-m", "pip", "install", "-q", *suite.requirements],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    if done.returncode != 0:
        pytest.skip(f"{suite.name} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    (suite.home / "installed").touch()


def root_of_tests(suite: Suite, into: Path) -> Path:
    """The folder that has them: the packages', or the suite's commit laid ``into``. Skips the test where nobody has that."""
    if not suite.checkout:
        return suite.packages
    repository = os.environ.get(suite.variable)
    if not repository:
        pytest.skip(f"{suite.name}: set {suite.variable} to the folder of a git repository that has its tests")
    taken = subprocess.run(["git", "-C", repository, "archive", suite.commit], capture_output=True, timeout=300)
    if taken.returncode != 0:
        pytest.skip(f"{suite.name}: {suite.variable} has no {suite.commit}: {taken.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(taken.stdout)) as archive:
        archive.extractall(into, filter="data")
    return into


def outcomes(suite: Suite, root: Path, front: list[str], env: dict[str, str]) -> dict[str, str]:
    """Of every test by name: passed, failed or skipped. A test that began and ended its process has ended."""
    reported: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="pumice") as folder:
        for package in suite.tests:
            if suite.runner == "pytest":
                reported.update(_by_pytest(suite, root, package, Path(folder), front, env))
            else:
                reported.update(_by_unittest(suite, package, Path(folder), front, env))
    return reported


def _by_pytest(
    suite: Suite, root: Path, package: str, folder: Path, front: list[str], env: dict[str, str]
) -> dict[str, str]:
    tests = root / package.replace(".", "/")
    reported, plugin = folder / "told", folder / "plugins/tell_each_test.py"
    plugin.parent.mkdir(exist_ok=True)
    plugin.write_text(PYTEST)
    reported.write_text("")
    env = env | {"PUMICE_TOLD": str(reported), "PYTHONPATH": str(plugin.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-q", "-p", "no:cacheprovider", "-p", plugin.stem, f"--rootdir={root}"]
    options += [f"--timeout={suite.seconds}"] if suite.seconds else []
    while True:  # once more for the tests behind one that ended the process
        known = reported.read_text()
        command = [*front, str(suite.python), "-m", "pytest", *options, str(tests)]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=1800)
        if reported.read_text() == known or done.returncode in (0, 1):
            assert done.returncode in (0, 1, 5), done.stdout[-2000:] + done.stderr[-2000:]
            return _outcomes_told(reported.read_text(), f"{tests.relative_to(root)}/")


def _outcomes_told(reported: str, folder: str) -> dict[str, str]:
    """The last word on each test, unless one before was worse: a test that passes fails where its end does."""
    worse = {"ended": 0, "passed": 1, "skipped": 2, "failed": 3}
    outcomes: dict[str, str] = {}
    for line in reported.splitlines():
        outcome, _, name = line.partition(" ")
        name = name.removeprefix(folder)
        outcomes[name] = max(outcome, outcomes.get(name, "ended"), key=worse.__getitem__)
    return outcomes


def _by_unittest(suite: Suite, package: str, folder: Path, front: list[str], env: dict[str, str]) -> dict[str, str]:
    runner = folder / "runner.py"
    runner.write_text(UNITTEST)
    listed = subprocess.run(
        [*front, str(suite.python), "-c", MODULES, package],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert listed.returncode == 0, listed.stderr
    reported: dict[str, str] = {}
    for module in listed.stdout.split():
        command = [*front, str(suite.python), str(runner), f"{package}.{module}"]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=900)
        for line in done.stdout.splitlines():
            outcome, _, test = line.partition(" ")
            name = test.removeprefix(f"{package}.")
            if outcome in ("passed", "failed", "skipped") and reported.get(name) != "failed":
                reported[name] = outcome
        if done.returncode != 0:
            reported[module] = f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    return reported
