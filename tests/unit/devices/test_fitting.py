"""Weights that are fitted to the pods that were seen: the same for whoever saw the same, bounded, and better at filling."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from unittest.mock import Mock

import numpy as np
import pytest

from pumice.devices import fitting
from pumice.devices.card_policies import POLICIES, Stranding
from pumice.devices.fitting import AT_ONCE, ROUNDS, RUNS, SWEEPS, SWEEPS_AT_ONCE, EmptyNode, Fitting
from pumice.devices.fragmentation import CardPart, Shape, Shapes
from pumice.scheduler.state import seen_shapes
from pumice.scheduler.state.seen_shapes import SeenShapes

FITTED = POLICIES["fitted"].stranding
assert FITTED is not None
KEY = "vgpu", FITTED
CPU = 1000


def fit(shapes: Shapes, nodes: Sequence[EmptyNode], how: Stranding) -> dict[Shape, tuple[float, float]]:
    under_way = Fitting(shapes, nodes, how)
    while (found := under_way.step()) is None:
        pass
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "PODS", 120)


def shape(share: int, cpu: int, count: int = 1) -> Shape:
    """A share in per cent of a card of 100 units, cpu in cores."""
    return Shape("vgpu", CardPart(count, share, 101, 0), cpu * CPU, 0)


MIX = [(shape(100, 8), 4.0), (shape(50, 12), 3.0), (shape(25, 1), 3.0), (shape(20, 6), 2.0), (shape(80, 2), 1.0)]


def nodes(shapes: int, rng: Random | None = None) -> list[EmptyNode]:
    """Nodes with much and with little cpu for their cards."""
    kinds = ((8, 96), (8, 48), (4, 32), (2, 64))
    found = [EmptyNode(((100, 100),) * cards, cpu * CPU, 0, (True,) * shapes) for cards, cpu in kinds for _ in range(6)]
    if rng is not None:
        rng.shuffle(found)
    return found


def test_the_same_pods_and_nodes_give_the_same_weights_in_whatever_order_the_nodes_are_listed() -> None:
    found = fit(Shapes(MIX), nodes(5), FITTED)
    assert found.keys() == {each for each, _ in MIX}
    assert found == fit(Shapes(MIX), nodes(5, Random(3)), FITTED)


def test_weights_are_finite_none_is_below_0_and_not_all_are_0() -> None:
    for seed in range(3):
        rng = Random(seed)
        mix = [(shape(rng.choice((10, 30, 50, 100)), rng.choice((0, 1, 4, 16)), rng.choice((1, 1, 2))), rng.uniform(0.1, 3))
               for _ in range(rng.randint(1, 8))]  # fmt: skip
        weights = np.array(list(fit(Shapes(mix), nodes(len(mix)), FITTED).values()))
        assert np.isfinite(weights).all()
        assert (weights >= 0).all()
        assert weights.any()


def test_pods_that_fit_nowhere_or_leave_nothing_keep_the_policys_own_weights() -> None:
    own = 1.0, FITTED.ahead
    for one, takes in ((shape(101, 1), True), (shape(50, 1), False), (shape(50, 0), True)):
        assert fit(Shapes([(one, 1.0)]), [EmptyNode(((100, 10),), 9 * CPU, 0, (takes,))], FITTED) == {one: own}


def test_a_fit_places_a_bounded_number_of_pods_however_small_they_are_and_many_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: dict[fitting._Fill, int] = {}
    step = fitting._Fill.step

    def counted(fill: fitting._Fill) -> bool:
        going_on, placed[fill] = step(fill), len(fill.at)
        return going_on

    monkeypatch.setattr(fitting._Fill, "step", counted)
    fit(Shapes([(shape(1, 0), 1.0)]), [EmptyNode(((100, 100),) * 4, 0, 0, (True,))] * 3000, FITTED)
    assert 0 < len(placed) <= (ROUNDS + 2) * RUNS
    assert max(placed.values()) <= 4 * fitting.PODS


def test_no_step_of_a_fit_is_longer_than_a_few_pods_or_sweeps_however_many_kinds_of_pods_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work: list[list[str]] = []
    put, dot = fitting._Fill._put, fitting._LeastSquares._sweep
    monkeypatch.setattr(fitting._Fill, "_put", lambda fill, kind: (work[-1].append("pod"), put(fill, kind))[1])
    monkeypatch.setattr(fitting._LeastSquares, "_sweep", lambda squares: (work[-1].append("sweep"), dot(squares))[1])
    mix = [(shape(share, cpu), 1.0 + share % 7) for share in range(5, 101, 12) for cpu in (1, 2, 4, 8)]
    under_way, found = Fitting(Shapes(mix), nodes(len(mix)), FITTED), None
    while found is None:
        work.append([])
        found = under_way.step()
    assert max(done.count("pod") for done in work) == AT_ONCE
    assert max(done.count("sweep") for done in work) == SWEEPS_AT_ONCE
    assert not [done for done in work if len(set(done)) > 1]
    assert sum(done.count("sweep") for done in work) == ROUNDS * SWEEPS


def test_a_fill_by_fitted_weights_leaves_less_than_one_by_the_policys_own() -> None:
    """On average of fills with pods in other orders than those that the weights were fitted to."""
    shapes, plain = Shapes(MIX), Stranding(FITTED.ahead, FITTED.whole)
    ours = shapes.fitted(fit(shapes, nodes(5), FITTED))
    left = {}
    for name, found, how in (("plain", shapes, plain), ("fitted", ours, FITTED)):
        sums = []
        for seed in range(20, 28):
            fill = fitting._Fill(found, nodes(5), how)
            fill.by(Random(seed), fitting._demand(shapes, 100.0))
            while fill.step():
                pass
            sums.append(fill.left[:, 0].sum())
        left[name] = float(np.mean(sums))
    assert left["fitted"] < left["plain"]


class Begun:
    """Fits that take three steps each."""

    def __init__(self) -> None:
        self.of: list[tuple[Shape, ...]] = []

    def __call__(self, shapes: Shapes) -> Fitting | None:
        self.of.append(shapes.shapes)
        begun = Mock(shapes=shapes)
        begun.step.side_effect = [None, None, dict.fromkeys(shapes.shapes, (1.0, 0.5))]
        return begun


def test_nothing_is_fitted_before_enough_pods_came_and_again_only_when_a_quarter_of_them_is_different() -> None:
    begin, found, small, large = Begun(), SeenShapes(), shape(10, 1), shape(90, 1)
    for number in range(seen_shapes.ENOUGH):
        assert found.fit(KEY, begin) is None, number
        found.go_on(lambda: False)
        found.came(small)
    before = found.version
    assert (found.fit(KEY, begin), found.version) == (None, before)
    found.go_on(lambda: False)
    fitted = found.fit(KEY, begin)
    assert fitted is not None
    assert (begin.of, found.version > before) == ([(small,)], True)
    for _ in range(seen_shapes.ENOUGH // 5):
        found.came(large)
        assert found.fit(KEY, begin) is fitted
        assert not found.fitting
    for _ in range(seen_shapes.ENOUGH):
        found.came(large)
        found.fit(KEY, begin)
        found.go_on(lambda: False)
    assert len(begin.of) in (2, 3)
    assert found.fit(KEY, begin) is not fitted


def test_a_cycle_that_is_late_goes_on_by_one_step_and_the_weights_before_count_until_the_fit_is_done() -> None:
    begin, found = Begun(), SeenShapes()
    for number in range(2 * seen_shapes.ENOUGH):
        found.came(shape(10 if number < seen_shapes.ENOUGH else 90, 1))
        if number == seen_shapes.ENOUGH - 1:
            assert found.fit(KEY, begin) is None
            found.go_on(lambda: False)
            first = found.fits[KEY]
    for _ in range(3):
        assert found.fit(KEY, begin) is first
        found.came(shape(50, 1))
        found.go_on(lambda: True)
    assert (len(begin.of), found.fitting) == (2, {})
    assert found.fit(KEY, begin) is not first


def test_where_there_are_no_cards_yet_nothing_is_fitted() -> None:
    found = SeenShapes()
    for _ in range(seen_shapes.ENOUGH):
        found.came(shape(10, 1))
    assert found.fit(KEY, lambda shapes: None) is None
    assert not found.fitting


def test_a_shape_that_came_later_counts_as_the_others_do_on_the_mean() -> None:
    found = Shapes(MIX[:3]).fitted({MIX[0][0]: (1.0, 0.0), MIX[1][0]: (0.0, 0.5)})
    assert found.fit is not None
    assert found.fit.now.tolist() == [1.0, 0.0, 0.5]
    assert found.fit.ahead.tolist() == [0.0, 0.5, 0.25]
