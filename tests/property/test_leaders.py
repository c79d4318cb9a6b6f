"""The best row by blocks is the best row of all, whatever changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pumice.scheduler.placing.kept import BLOCK, Leaders

SCORES = st.sampled_from((-np.inf, 0.0, 1.0, 2.5))


def best_of(scores: np.ndarray, rank: np.ndarray) -> int:
    return min(range(len(scores)), key=lambda row: (-scores[row], rank[row]))


@given(st.integers(1, 3 * BLOCK), st.lists(st.tuples(st.integers(0, 3 * BLOCK), SCORES), max_size=20), st.randoms())
def test_after_any_change_the_first_of_the_best_leads(count, changes, rng):
    scores = np.array([rng.choice((-np.inf, 0.0, 1.0)) for _ in range(count)])
    rank = np.array(rng.sample(range(count), count), np.int64)
    leaders = Leaders(scores, rank)
    assert leaders.leader() == best_of(scores, rank)
    while changes:
        together, changes = changes[: rng.choice((1, 1, 3))], changes[1:]
        for place, score in together:
            scores[place % count] = score
        leaders.changed([place % count for place, _ in together])
        assert leaders.leader() == best_of(scores, rank)
