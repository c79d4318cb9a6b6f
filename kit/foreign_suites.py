"""Suites of others: installed by name into an environment of their own, run test by test under a command in front."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
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


@dataclass(frozen=True)
class Suite:
    name: str
    requirements: tuple[str, ...]
    runner: str
    tests: tuple[str, ...]
    libraries: tuple[str, ...]
    not_passing: dict[str, str]  # test and why

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
        reasons = {test: why for why, tests in said["not-passing"].items() for test in tests}
        lists = (tuple(said[key]) for key in ("requirements", "tests", "libraries"))
        requirements, tests, libraries = lists
        return Suite(name, requirements, said["runner"], tests, libraries, reasons)

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


def outcomes(suite: Suite, front: list[str], env: dict[str, str]) -> dict[str, str]:
    """Of every test by name: passed, failed or skipped. A test that began and ended its process has failed."""
    told: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="pumice") as folder:
        for package in suite.tests:
            run = _by_pytest if suite.runner == "pytest" else _by_unittest
            told.update(run(suite, package, Path(folder), front, env))
    return told


def _by_pytest(suite: Suite, package: str, folder: Path, front: list[str], env: dict[str, str]) -> dict[str, str]:
    report = folder / "report.xml"
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "--pyargs", package]
    subprocess.run([*front, str(suite.python), *command], env=env, cwd=folder, capture_output=True, timeout=1800)
    told = {}
    for case in ET.parse(report).iter("testcase"):
        marks = {mark.tag for mark in case}
        told[case.attrib["name"]] = (
            "failed" if marks & {"failure", "error"} else "skipped" if "skipped" in marks else "passed"
        )
    return told


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
    told: dict[str, str] = {}
    for module in listed.stdout.split():
        command = [*front, str(suite.python), str(runner), f"{package}.{module}"]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=900)
        for line in done.stdout.splitlines():
            outcome, _, test = line.partition(" ")
            name = test.removeprefix(f"{package}.")
            if outcome in ("passed", "failed", "skipped") and told.get(name) != "failed":
                told[name] = outcome
        if done.returncode != 0:
            told[module] = f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    return told
