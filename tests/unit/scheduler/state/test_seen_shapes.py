"""The shapes of pods that came, and how often: bounded, forgetting, and the same for whoever saw the same pods."""

from __future__ import annotations

from random import Random

import pytest

from pumice.devices.fragmentation import CardPart, Shape
from pumice.scheduler.state import seen_shapes
from pumice.scheduler.state.seen_shapes import SeenShapes


def shape(memory: int) -> Shape:
    return Shape("vgpu", CardPart(1, memory, 101, 0), 1000, 0)


def weights(seen: SeenShapes) -> dict[int, float]:
    found = seen.current()
    return {one.part.memory: weight for one, weight in zip(found.shapes, found.weight.tolist(), strict=True)}


def test_nothing_is_known_before_a_pod_came() -> None:
    assert weights(SeenShapes()) == {}


def test_frequencies_are_those_of_the_pods_that_came() -> None:
    seen = SeenShapes()
    for number in range(1000):
        seen.came(shape(number % 4 // 3))
    assert weights(seen) == pytest.approx({0: 0.75, 1: 0.25}, abs=0.01)


def test_one_more_pod_of_a_shape_never_makes_it_less_frequent() -> None:
    rng = Random(1)
    for _ in range(20):
        before = [shape(rng.randrange(6)) for _ in range(rng.randint(1, 40))]
        few, more = SeenShapes(), SeenShapes()
        for one in before:
            few.came(one)
            more.came(one)
        more.came(shape(2))
        assert weights(more).get(2, 0.0) >= weights(few).get(2, 0.0) - 1e-12


def test_what_came_long_ago_counts_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_shapes, "HALF", 100)
    seen = SeenShapes()
    for memory in (1, 2):
        for _ in range(100):
            seen.came(shape(memory))
    assert weights(seen) == pytest.approx({1: 1 / 3, 2: 2 / 3}, abs=0.03)
    for _ in range(5000):
        seen.came(shape(3))
    assert weights(seen)[3] > 0.999


def test_what_is_remembered_is_bounded() -> None:
    seen = SeenShapes()
    for number in range(20_000):
        seen.came(shape(number if number % 2 else 1))
    assert len(seen._counts) <= seen_shapes.REMEMBERED
    assert len(seen.current()) <= seen_shapes.MOST
    assert max(weights(seen), key=lambda memory: weights(seen)[memory]) == 1


def test_frequencies_that_hardly_shift_stay_as_they_are() -> None:
    """Else every node would be looked at anew for nothing."""
    seen, versions = SeenShapes(), set()
    for number in range(20_000):
        seen.came(shape(number % 7))
        seen.current()
        versions.add(seen.version)
    assert len(versions) < 20


def test_who_saw_the_same_pods_finds_the_same() -> None:
    rng, one, other = Random(2), SeenShapes(), SeenShapes()
    came = [shape(rng.randrange(30)) for _ in range(3000)]
    for each in came:
        one.came(each)
        other.came(each)
    assert one.current().shapes == other.current().shapes
    assert one.current().weight.tolist() == other.current().weight.tolist()
