"""Random worlds of claims: what is allocated is right, and what is refused is impossible, by a judge that tries everything."""

from __future__ import annotations

import pytest
from kit.claim_answers import ours
from kit.claim_judge import Judge
from kit.claim_worlds import World


@pytest.mark.parametrize("first", [0, 500, 1000, 1500])
def test_what_is_given_is_right_and_what_is_refused_impossible(first: int) -> None:
    for seed in range(first, first + 500):
        world = World(seed)
        kind, said = ours(world)
        judge = Judge(world)
        if kind == "ok":
            assert not judge.wrong(said), f"seed {seed}: {judge.wrong(said)}: {said}"
        elif kind == "none":
            assert not judge.is_possible(), f"seed {seed}: {said}"
        else:
            assert judge.throws() or "'All'" in str(world.claims), f"seed {seed}: {said}"
