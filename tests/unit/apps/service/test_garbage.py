"""The collector looks for garbage between two pieces of work, and never for long amid them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from kit import pytest_plugin

from pumice.apps.service.garbage import LATE, USUAL, Garbage, Pace


class Ring:
    """Refers to itself: nothing but the collector can find it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Garbage]:
    monkeypatch.setattr(gc, "freeze", pytest_plugin.FREEZE)
    monkeypatch.setattr(gc, "unfreeze", pytest_plugin.UNFREEZE)
    monkeypatch.setattr(gc, "get_freeze_count", pytest_plugin.FREEZE_COUNT)
    gc.unfreeze()
    found = Garbage(Pace((100, 2, 1_000_000), more=1.0, at_least=2000))
    found.hold_back()
    yield found
    found.let_go()
    gc.collect()
    gc.freeze()  # as it was before


def grow(looks: int) -> list[list[int]]:
    """So many objects that live on that the collector has looked so often at what survived."""
    kept = []
    while gc.get_count()[2] < looks:
        kept.append([len(kept)])
    return kept


def full_passes() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_amid_work_what_lives_is_set_aside_and_nothing_is_looked_through(collector: Garbage) -> None:
    before, aside, kept = full_passes(), gc.get_freeze_count(), list[list[int]]()
    for _ in range(3):
        kept += grow(LATE)
        collector.tidy(idle=False)
    assert full_passes() == before
    assert gc.get_freeze_count() >= aside + len(kept)


def test_garbage_that_was_set_aside_is_found_at_rest_when_there_is_much_more_than_before(collector: Garbage) -> None:
    ring = Ring()
    gone, kept = weakref.ref(ring), grow(1)
    collector.tidy(idle=True)
    del ring
    assert gone() is not None
    while gone() is not None and len(kept) < 10_000:
        kept += grow(1)
        collector.tidy(idle=True)
    assert gone() is None


def test_a_daemon_that_has_ended_leaves_the_collector_as_python_has_it(collector: Garbage) -> None:
    assert gc.get_threshold() != USUAL
    collector.let_go()
    assert gc.get_threshold() == USUAL
