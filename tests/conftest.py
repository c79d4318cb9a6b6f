"""What holds for every test of the project."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

MUST_RUN = ("kube", "e2e")
"""Marks whose tests may skip on a developer's machine but never where PUMICE_CI is set: there a skip hides a regression."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marked = any(item.get_closest_marker(mark) for mark in MUST_RUN)
    if report.skipped and marked and os.environ.get("PUMICE_CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where it must run: {report.longrepr}"
    return report


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """`make soak` keeps what it found: each test with its outcome, its seconds and what it recorded."""
    if config.getoption("-m") != "soak" or not terminalreporter.stats.get("passed"):
        return
    from benchmarks.report import save

    reports = [r for key in ("passed", "failed") for r in terminalreporter.stats.get(key, ()) if r.when == "call"]
    save("soak", {"tests": [{"test": r.nodeid, "outcome": r.outcome, "seconds": round(r.duration, 1),
                             **dict(r.user_properties)} for r in reports]}, keep=True)  # fmt: skip
