"""From what is there to a wanted set of slices."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from kit.mig_rules import RuledSlices

from pumice.devices.nvidia_vgpu.node.mig_layout import Layout, arrange
from pumice.devices.nvidia_vgpu.node.mig_slices import act
from pumice.ports.slices import Place, Slice

CARD = "GPU-a"


def arranged(driver: RuledSlices, counts: dict[str, int], *places: tuple[str, int], busy: tuple[Place, ...] = ()) -> Layout | str:
    def fixed(slice_: Slice) -> str:
        return f"{slice_.place} is busy" if slice_.place in busy else ""

    return arrange(CARD, driver.profiles(CARD), driver.slices(CARD), counts, places, fixed=fixed)


def cut(driver: RuledSlices, *places: tuple[str, int]) -> None:
    for profile, start in places:
        driver.make(Place(CARD, profile, start))
        driver.fill(Place(CARD, profile, start))


@pytest.fixture
def driver() -> RuledSlices:
    return RuledSlices({CARD: "A100-SXM4-40GB"})


def shown(layout: Layout | str) -> tuple[list[str], list[str], list[str]]:
    assert isinstance(layout, Layout), layout
    return ([str(s.place) for s in layout.stays], [str(s.place) for s in layout.goes], [str(place) for place in layout.comes])


def test_what_can_stay_stays_and_the_rest_comes_beside_it(driver):
    cut(driver, ("1g.5gb", 5), ("2g.10gb", 2))
    assert shown(arranged(driver, {"2g.10gb": 2, "1g.5gb": 1})) == (["1g.5gb@5", "2g.10gb@2"], [], ["2g.10gb@0"])
    assert shown(arranged(driver, {"3g.20gb": 1, "1g.5gb": 1})) == (["1g.5gb@5"], ["2g.10gb@2"], ["3g.20gb@0"])


def test_a_slice_makes_way_only_where_the_rest_has_no_room_else(driver):
    cut(driver, ("1g.5gb", 0), ("1g.5gb", 4))
    assert shown(arranged(driver, {"3g.20gb": 1, "1g.5gb": 1})) == (["1g.5gb@0"], ["1g.5gb@4"], ["3g.20gb@4"])
    assert shown(arranged(driver, {"7g.40gb": 1}))[2] == ["7g.40gb@0"]


def test_named_places_are_kept_to(driver):
    cut(driver, ("2g.10gb", 0))
    assert shown(arranged(driver, {"2g.10gb": 1}, ("2g.10gb", 4))) == ([], ["2g.10gb@0"], ["2g.10gb@4"])


def test_nothing_is_asked_of_a_card_that_is_as_it_should_be(driver):
    cut(driver, ("3g.20gb", 4), ("1g.5gb", 1))
    layout = arranged(driver, {"3g.20gb": 1, "1g.5gb": 1})
    assert isinstance(layout, Layout)
    assert layout.steps == []


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"1g.6gb": 1}, "it has no profile 1g.6gb; its driver offers 1g.5gb"),
        ({"3g.20gb": 3, "2g.10gb": 1}, "these slices have no room beside each other"),
        ({"1g.5gb": 7}, "slice 2g.10gb@2 would have to go: 2g.10gb@2 is busy"),
        ({"2g.10gb": 1, "7g.40gb": 1}, "these slices have no room beside each other; 2g.10gb@2 is busy"),
    ],
)
def test_what_cannot_be_is_said(driver, counts, reason):
    cut(driver, ("2g.10gb", 2))
    assert str(arranged(driver, counts, busy=(Place(CARD, "2g.10gb", 2),))).startswith(reason)


@pytest.mark.parametrize("model", ["A100-SXM4-40GB", "A30", "H200"])
def test_a_layout_leads_to_what_was_wanted_and_the_driver_takes_every_step(model: str) -> None:
    dice = random.Random(model)
    done = 0
    for _ in range(300):
        driver = RuledSlices({CARD: model})
        profiles = [profile for profile in driver.profiles(CARD) if "+me" not in profile.name]
        for _ in range(dice.randint(0, 5)):
            profile = dice.choice(profiles)
            try:
                cut(driver, (profile.name, dice.choice(profile.starts)))
            except Exception:
                continue
        counts = Counter(dice.choice(profiles).name for _ in range(dice.randint(0, 4)))
        layout = arranged(driver, dict(counts))
        if isinstance(layout, Layout):
            for step in layout.steps:
                act(driver, step)
            assert Counter(slice_.place.profile for slice_ in driver.slices(CARD)) == counts
            done += 1
    assert done > 50
