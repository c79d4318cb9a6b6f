"""Fixtures and rules of every test of the project."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kit import hanging
from kit.seeds import chosen_seed
from kit.signals import heed_interrupts

# How long one example takes says nothing on a machine that others use too. What gates a change tries the same examples each
# time: the search for new ones goes on at every desk and in `make soak`.
settings.register_profile("pumice", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True,
                          derandomize="PUMICE_CI" in os.environ)  # fmt: skip
settings.load_profile("pumice")

MUST_RUN = ("kube", "e2e")
"""Marks whose tests may skip on a developer's machine but never where PUMICE_CI is set: there a skip hides a regression."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if hanging.HUNG in item.stash and (call.when == "call" or call.excinfo is not None):
        report.outcome, report.longrepr = "failed", item.stash[hanging.HUNG]
    marked = any(item.get_closest_marker(mark) for mark in MUST_RUN)
    if report.skipped and marked and os.environ.get("PUMICE_CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where it must run: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Log no warnings in a test of the soak: pytest keeps each record of a test to its end, with the objects that it names. Of
    20,000 histories of Jobs those were 6 GiB, and each collection of garbage looked through them."""
    if item.get_closest_marker("soak"):
        logging.disable(logging.WARNING)
    try:
        return (yield)
    finally:
        logging.disable(logging.NOTSET)


LONGEST = (
    "benchmarks/tests/test_every_benchmark_runs.py", "tests/scenarios/test_pages.py", "tests/native/test_vgpu_fair.py",
    "tests/scenarios/test_examples_of_commands.py",
    "benchmarks/tests/test_benchmarks_before_a_server_run.py", "benchmarks/tests/test_benchmarks_of_daemons_run.py",
    "lab/tests/scenarios/test_a_cluster_of_this_machine.py", "tests/contract/test_ways_over.py",
    "tests/scenarios/test_the_wheel.py", "tests/scenarios/test_any_terminal.py", "tests/native/test_vgpu_every_program.py",
    "tests/scenarios/test_claims_on_a_cluster.py", "tests/scenarios/test_two_schedulers.py",
    "tests/scenarios/test_watching_and_changing_shares.py", "tests/scenarios/test_running_without_a_cluster.py",
    "tests/scenarios/test_npus_on_a_node.py", "tests/scenarios/test_containers_without_a_cluster.py",
    "tests/scenarios/test_controllers_that_die.py", "tests/scenarios/test_a_cluster_on_a_page.py",
    "tests/native/test_vgpu_region_writes.py", "tests/contract/test_jobs.py", "tests/scenarios/test_chips_cut_on_a_node.py",
    "tests/property/test_histories.py",
)  # fmt: skip
"""The files that take longest by the clock, which go first: workers take whole files, and none shall end alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files before all others, else in the order of the paths."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))


FREEZE, UNFREEZE, FREEZE_COUNT = gc.freeze, gc.unfreeze, gc.get_freeze_count
"""The functions of the garbage collector as they are: for the tests of what uses them."""


def pytest_collection_finish() -> None:
    """Set aside what was imported and collected: no collection of garbage looks through it again. A daemon that a test starts
    sets nothing aside: its process would end with it, and here each would stay and be counted by all that come later."""
    gc.collect()
    gc.freeze()
    count = gc.get_freeze_count()
    gc.freeze = gc.unfreeze = lambda: None
    gc.get_freeze_count = lambda: count


_errors = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    heed_interrupts()  # for what tests start and interrupt, though they run behind a shell
    config.stash[_errors] = os.dup(2)  # nothing is captured yet
    chosen_seed()  # before workers start, which inherit it


def pytest_unconfigure(config: pytest.Config) -> None:
    hanging.at_the_end(config.stash[_errors])


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Tell what hangs, instead of pytest-timeout, unless it was asked for its thread method or a debugger runs."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    hanging.watch(item, settings.timeout, item.config.stash[_errors])
    return True


def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    if getattr(item, "cancel_timeout", None) is not None:
        return None
    hanging.done()
    return True


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """`make soak` keeps what it found: each test with its outcome, its seconds and what it recorded. Of a part of it the rest
    stays as it was found before."""
    if config.getoption("-m") != "soak" or not terminalreporter.stats.get("passed"):
        return
    from kit.results import RESULTS, environment, save

    date = environment()["date"]
    reports = [r for key in ("passed", "failed") for r in terminalreporter.stats.get(key, ()) if r.when == "call"]
    now = {r.nodeid: {"test": r.nodeid, "outcome": r.outcome, "seconds": round(r.duration, 1), "date": date,
                      **dict(r.user_properties)} for r in reports}  # fmt: skip
    kept = RESULTS / "soak.json"
    before = json.loads(kept.read_text())["tests"] if kept.exists() else []
    tests = {row["test"]: row for row in before if _there(config.rootpath, row["test"])} | now
    save("soak", {"tests": [tests[name] for name in sorted(tests)]}, keep=True)


def _there(root: Path, test: str) -> bool:
    """Return whether there still is a test of that name."""
    file, _, name = test.partition("::")
    return (root / file).exists() and f"def {name.partition('[')[0]}(" in (root / file).read_text()
