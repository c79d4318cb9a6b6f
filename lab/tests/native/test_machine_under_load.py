"""Many processes at once, and processes killed at random instants: the machine's books stay right."""

from __future__ import annotations

import json
import sys

import pytest
from kit.machines import MachineMaker, Programs


def report(machine_maker: MachineMaker, name: str, *words: str) -> dict[str, object]:
    printed = Programs(machine_maker("L4")).run(sys.executable, "-m", f"benchmarks.{name}", *words, timeout=600)
    reported: dict[str, object] = json.loads(printed)
    return reported


def test_no_update_of_the_shared_books_is_lost(make_machine: MachineMaker) -> None:
    reported = report(make_machine, "machine_share", "--processes", "8", "--threads", "4", "--rounds", "500")
    assert reported["said"] == reported["seen"]
    assert reported["equal"] is True


@pytest.mark.soak
def test_no_update_is_lost_by_64_processes_of_4_threads(make_machine: MachineMaker) -> None:
    assert report(make_machine, "machine_share", "--processes", "64", "--threads", "4")["equal"] is True


def test_processes_killed_at_random_instants_leave_the_machine_usable(make_machine: MachineMaker) -> None:
    reported = report(make_machine, "machine_kill", "--kills", "200")
    assert reported["kills"] == 200
    assert int(str(reported["of_working"])) > 50


@pytest.mark.soak
def test_ten_thousand_kills_leave_the_machine_usable(make_machine: MachineMaker) -> None:
    assert report(make_machine, "machine_kill", "--kills", "10000")["kills"] == 10_000
