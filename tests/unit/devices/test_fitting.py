"""Weights that are fitted to the pods that were seen: the same for whoever saw the same, bounded, and better at filling."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from pumice.devices import fitting
from pumice.devices.card_policies import POLICIES, Stranding
from pumice.devices.fitting import EmptyNode, fit
from pumice.devices.fragmentation import CardPart, Shape, Shapes
from pumice.scheduler.state import seen_shapes
from pumice.scheduler.state.seen_shapes import SeenShapes

FITTED = POLICIES["fitted"].stranding
assert FITTED is not None
KEY = "vgpu", FITTED
CPU = 1000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "PODS", 300)


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


@pytest.mark.parametrize(("mix", "cards"), [([], 1), (MIX, 0)])
def test_without_pods_or_cards_there_is_nothing_to_fit(mix: list[tuple[Shape, float]], cards: int) -> None:
    assert fit(Shapes(mix), [EmptyNode(((100, 10),) * cards, 1, 1, (True,) * len(mix))], FITTED) == {}


def test_pods_that_fit_nowhere_or_leave_nothing_keep_the_policys_own_weights() -> None:
    own = 1.0, FITTED.ahead
    for one, takes in ((shape(101, 1), True), (shape(50, 1), False), (shape(50, 0), True)):
        assert fit(Shapes([(one, 1.0)]), [EmptyNode(((100, 10),), 9 * CPU, 0, (takes,))], FITTED) == {one: own}


def test_a_fit_places_a_bounded_number_of_pods_however_small_they_are_and_many_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[int] = []
    by = fitting._Fill.by

    def counted(fill: fitting._Fill, rng: Random, worth: np.ndarray) -> fitting._Fill:  # type: ignore[type-arg]
        placed.append(len(by(fill, rng, worth).at))
        return fill

    monkeypatch.setattr(fitting._Fill, "by", counted)
    fit(Shapes([(shape(1, 0), 1.0)]), [EmptyNode(((100, 100),) * 4, 0, 0, (True,))] * 3000, FITTED)
    assert 0 < len(placed) <= (fitting.ROUNDS + 2) * fitting.RUNS
    assert max(placed) <= 4 * fitting.PODS


def test_a_fill_by_fitted_weights_leaves_less_than_one_by_the_policys_own() -> None:
    """On average of fills with pods in other orders than those that the weights were fitted to."""
    shapes, plain = Shapes(MIX), Stranding(FITTED.ahead, FITTED.whole)
    ours = shapes.fitted(fit(shapes, nodes(5), FITTED))
    left = {}
    for name, found, how in (("plain", shapes, plain), ("fitted", ours, FITTED)):
        sums = []
        for seed in range(20, 28):
            fill = fitting._Fill(found, nodes(5), how)
            fill.by(Random(seed), fitting._worth(shapes, 100.0))
            sums.append(fill.left[:, 0].sum())
        left[name] = float(np.mean(sums))
    assert left["fitted"] < left["plain"]


def test_nothing_is_fitted_before_enough_pods_came_and_again_only_when_a_quarter_of_them_is_different() -> None:
    asked: list[tuple[Shape, ...]] = []

    def work_out(shapes: Shapes) -> dict[Shape, tuple[float, float]]:
        asked.append(shapes.shapes)
        return dict.fromkeys(shapes.shapes, (1.0, 0.5))

    found, small, large = SeenShapes(), shape(10, 1), shape(90, 1)
    for number in range(seen_shapes.ENOUGH):
        assert found.fit(KEY, work_out) is None, number
        found.came(small)
    before = found.version
    fitted = found.fit(KEY, work_out)
    assert fitted is not None
    assert (asked, found.version > before) == ([(small,)], True)
    for _ in range(seen_shapes.ENOUGH // 5):
        found.came(large)
        assert found.fit(KEY, work_out) is fitted
    for _ in range(seen_shapes.ENOUGH):
        found.came(large)
        found.fit(KEY, work_out)
    assert len(asked) in (2, 3)
    assert found.fit(KEY, work_out) is not fitted


def test_a_shape_that_came_later_counts_as_the_others_do_on_the_mean() -> None:
    found = Shapes(MIX[:3]).fitted({MIX[0][0]: (1.0, 0.0), MIX[1][0]: (0.0, 0.5)})
    assert found.fit is not None
    assert found.fit.now.tolist() == [1.0, 0.0, 0.5]
    assert found.fit.ahead.tolist() == [0.0, 0.5, 0.25]
