"""The true start of a pod lies in the spread of its estimate as often as is said."""

from __future__ import annotations

import random

from benchmarks.start_estimates import judged, world_of


def test_the_true_start_lies_in_the_spread_as_often_as_is_said() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    found = judged(8, seed)
    print(found)
    assert found["unknown"] == 0
    assert found["inside"] >= 2, found  # Binomial(8, 0.8): fewer once in ten thousand


def test_a_case_is_the_same_for_the_same_seed() -> None:
    first, second = (world_of(random.Random(3)) for _ in range(2))
    assert first.still
    assert list(first.still.values()) == list(second.still.values())
