"""After any history: no card and no node over, nothing where its rules forbid, no gang in part, no pod without a controller
deleted, and nobody asleep who fits, as an independent checker says that imports nothing of Pumice.

``PUMICE_HISTORIES`` sets how many are played; else it is a few of what `make soak` plays. A failure
prints its seed and the shortest history that still breaks the promise.
"""

from __future__ import annotations

import ast
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest
from tests.property.history.books_door import BooksDoor, SlotDoor
from tests.property.history.daemon_door import BusyDaemonDoor, DaemonDoor, virtually
from tests.property.history.engine_door import EngineDoor
from tests.property.history.runner import OPEN, Drive, History, at_once, draw, replay, shrunk

FIXED = 20_260
"""The first seed of what gates a change; by hand the first seed is drawn."""


@pytest.fixture
def quiet() -> Iterator[None]:
    """Thousands of daemons refuse and retry as they should: nobody reads it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_seed() -> int:
    seed = FIXED if "PUMICE_CI" in os.environ else SystemRandom().randrange(10**9)
    print(f"histories from seed {seed}")
    return seed


def many(count: int, door: Callable[[str, Random], Any], drive: Drive, first: int, conf: str = "") -> int:
    """Play so many; the first that breaks something fails the test. Returns how many steps were played."""
    played = 0
    for seed in range(first, first + count):
        found = draw(seed, door, without=OPEN, drive=drive, conf=conf)
        played += len(found.steps)
        if found.complaints:
            pytest.fail(shrunk(found, door, drive=drive).text(), pytrace=False)
    return played


def test_no_history_of_the_engine_breaks_a_promise() -> None:
    many(int(os.environ.get("PUMICE_HISTORIES", "50")), EngineDoor, at_once, first_seed())


def test_no_history_breaks_a_promise_where_nodes_are_held_for_gangs() -> None:
    many(int(os.environ.get("PUMICE_HISTORIES", "12")), EngineDoor, at_once, first_seed(), "held for gangs")


def test_no_history_breaks_a_promise_where_the_scheduler_moves_pods() -> None:
    many(int(os.environ.get("PUMICE_HISTORIES", "12")), EngineDoor, at_once, first_seed(), "moved by the scheduler")


@pytest.mark.usefixtures("quiet")
def test_no_history_of_the_daemon_before_a_failing_api_server_breaks_a_promise() -> None:
    many(int(os.environ.get("PUMICE_HISTORIES", "6")), DaemonDoor, virtually, first_seed())


@pytest.mark.usefixtures("quiet")
def test_no_history_of_the_daemon_on_a_busy_processor_breaks_a_promise() -> None:
    many(int(os.environ.get("PUMICE_HISTORIES", "6")), BusyDaemonDoor, virtually, first_seed())


@pytest.mark.parametrize("door", [BooksDoor, SlotDoor])
def test_the_books_equal_those_of_an_engine_that_has_seen_the_objects_only(door: type[BooksDoor]) -> None:
    many(int(os.environ.get("PUMICE_HISTORIES", "6")), door, at_once, first_seed())


@pytest.mark.soak
def test_a_million_steps_of_the_engine(record_property: Any) -> None:
    first = first_seed()
    record_property("first_seed", first)
    record_property("steps", many(34_000, EngineDoor, at_once, first))


@pytest.mark.soak
@pytest.mark.usefixtures("quiet")
def test_thousands_of_histories_of_the_daemon(record_property: Any) -> None:
    first = first_seed()
    record_property("first_seed", first)
    record_property("steps", many(3_000, DaemonDoor, virtually, first) + many(1_000, BusyDaemonDoor, virtually, first + 3_000))


def test_a_history_is_data_and_plays_again_as_it_was() -> None:
    first = draw(FIXED, EngineDoor, without=OPEN)
    again = replay(History.read(first.dump()), EngineDoor)
    assert [name for name, _ in again.steps] == [name for name, _ in first.steps]
    assert again.complaints == first.complaints


def test_the_checker_imports_nothing_of_pumice() -> None:
    here = Path(__file__).parent
    audit, kit = ("amounts", "card_rules", "claim_rules", "auditor"), ("kube_rules", "queue_rules")
    beside = ("checker", "eviction_rules", "legacy_card_rules", "sharings")
    judges = {f"kit.{name}": here.parents[1] / "kit" / f"{name}.py" for name in kit}
    judges |= {f"pumice.audit.{name}": here.parents[1] / "src" / "pumice" / "audit" / f"{name}.py" for name in audit}
    judges["pumice.audit"] = here.parents[1] / "src" / "pumice" / "audit" / "__init__.py"
    judges |= {f"tests.property.history.{name}": here / "history" / f"{name}.py" for name in beside}
    for name, path in judges.items():
        for found in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in found.names] if isinstance(found, ast.Import) else \
                [found.module or ""] if isinstance(found, ast.ImportFrom) else []
            own = [module for module in modules if module.startswith(("pumice", "kit", "tests"))]
            assert not [module for module in own if module not in {*judges, "kit"}], name
