"""Health of a card: faults and recovery (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu)."""

import pytest

from pumice.node.health import Health, XidRule
from pumice.ports.cards import LOST, CardEvent


@pytest.mark.parametrize(
    ("disable", "enable", "counted", "ignored"),
    [
        ("", "", {79, 48}, {13, 31, 43, 45, 68, 109}),
        ("48", "", {79}, {48, 31}),
        ("", "31", {31, 79}, {13}),
        ("", "all", {13, 31, 79}, set()),
        ("all", "", set(), {13, 79}),
        ("xids", "79", {79}, {48, 31}),
        ("ALL", "79", {79}, {48}),
        ("48,nonsense, 94 ", "", {79}, {48, 94}),
    ],
)
def test_the_settings_choose_the_errors_that_count(disable, enable, counted, ignored):
    rule = XidRule.parse(disable, enable)
    assert {xid for xid in counted | ignored if rule.counts(xid)} == counted
    assert rule.off == (not counted)


def test_three_clean_checks_make_a_card_well():
    health = Health(["GPU-a", "GPU-b"], XidRule())
    assert health.event(CardEvent("GPU-a", 79))
    assert not health.event(CardEvent("GPU-a", 48)), "it is sick already, and keeps the first reason"
    assert health.unhealthy == {"GPU-a": "Xid 79"}
    assert [health.check("GPU-a", well) for well in (True, True, False, True, True, True)] == [False] * 5 + [True]
    assert health.unhealthy == {}


def test_an_error_of_an_unknown_card_makes_all_sick():
    health = Health(["GPU-a", "GPU-b"], XidRule())
    assert health.event(CardEvent("", 79))
    assert set(health.unhealthy) == {"GPU-a", "GPU-b"}
    assert not Health(["GPU-a"], XidRule()).event(CardEvent("GPU-elsewhere", 79))


def test_a_card_that_the_driver_no_longer_lists_is_sick_and_not_gone():
    health = Health(["GPU-a", "GPU-b"], XidRule())
    assert health.watch(["GPU-a"])
    assert list(health.unhealthy) == ["GPU-b"]
    assert not health.watch(["GPU-a"])


def test_a_lost_card_is_sick_alone_whatever_errors_are_ignored():
    health = Health(["GPU-a", "GPU-b"], XidRule.parse("all", "79"))
    assert health.event(CardEvent("GPU-a", LOST))
    assert health.unhealthy == {"GPU-a": "the driver has lost the card"}
