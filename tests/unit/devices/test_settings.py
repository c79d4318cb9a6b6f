"""The arguments of deviceshare: aliases, types, illegal combinations (Volcano pkg/scheduler/plugins/deviceshare)."""

from __future__ import annotations

import numpy as np
import pytest

from pumice.devices.registry import settings_from
from pumice.devices.settings import LAST_RESORT, LEXICOGRAPHIC_WEIGHT, Settings
from pumice.model.refusal import Refusal


def read(**arguments: object) -> Settings:
    found = settings_from({key.replace("__", "."): value for key, value in arguments.items()})
    assert isinstance(found, Settings)
    return found


def test_both_spellings_of_the_geometry_arguments_are_read_and_the_canonical_one_wins() -> None:
    old = read(deviceshare__KnowGeometriesCMName="mine")
    assert (old.configmap, len(old.warnings)) == ("mine", 1)
    both = read(deviceshare__KnowGeometriesCMName="mine", deviceshare__KnownGeometriesCMName="right")
    assert both.configmap == "right"
    assert "ignored" in both.warnings[0]


def test_the_oldest_names_still_switch_sharing_on_with_a_warning() -> None:
    found = read(predicate__GPUSharingEnable="true")
    assert found.on == {"deviceshare.GPUSharingEnable"}
    assert "deviceshare" not in found.warnings[0].split(" is ")[0]
    assert "write deviceshare.GPUSharingEnable" in found.warnings[0]


@pytest.mark.parametrize(("value", "expected"), [(True, True), ("T", True), ("0", False), ("yes", False), (1, False)])
def test_booleans_are_read_as_upstream_reads_them(value: object, expected: bool) -> None:
    assert bool(read(deviceshare__VGPUEnable=value).on) is expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"deviceshare.GPUSharingEnable": True, "deviceshare.GPUNumberEnable": True},
        {"deviceshare.GPUSharingEnable": True, "deviceshare.VGPUEnable": True},
        {"predicate.GPUNumberEnable": True, "deviceshare.VGPUEnable": True},
    ],
)
def test_modes_that_exclude_each_other_are_refused(arguments: dict[str, object]) -> None:
    refused = settings_from(arguments)
    assert isinstance(refused, Refusal)
    assert "cannot both be true" in refused.text


def test_a_policy_without_a_weight_decides_before_every_other_plugin() -> None:
    assert read(deviceshare__SchedulePolicy="binpack").node_weight == LEXICOGRAPHIC_WEIGHT
    assert read(deviceshare__SchedulePolicy="binpack", deviceshare__ScheduleWeight=0).node_weight == 0
    assert read().node_weight == LEXICOGRAPHIC_WEIGHT  # a pod or a MIG slot may bring a policy of its own


@pytest.mark.parametrize("weight", [None, 0, 10, 10**9])
def test_a_last_resort_comes_after_every_other_node_whatever_the_weight(weight: int | None) -> None:
    settings = read(deviceshare__SchedulePolicy="binpack", **({} if weight is None else {"deviceshare__ScheduleWeight": weight}))
    worst, best = 0.0, 100.0
    assert settings.contribution(worst) > settings.contribution(best - LAST_RESORT) + 1e5
    both = settings.contribution(np.array([worst, best - LAST_RESORT]))
    assert both.tolist() == [settings.contribution(worst), settings.contribution(best - LAST_RESORT)]


def test_a_given_weight_multiplies_the_rounded_score_as_upstream_does() -> None:
    settings = read(deviceshare__SchedulePolicy="binpack", deviceshare__ScheduleWeight=10)
    assert settings.contribution(13.3333) == 130
    assert settings.contribution(np.array([12.5, 12.49])).tolist() == [130, 120]


def test_unknown_words_are_named_with_the_nearest_right_one() -> None:
    found = read(deviceshare__SchedulePolcy="binpack", deviceshare__SchedulePolicy="binpak")
    assert any("did you mean 'deviceshare.SchedulePolicy'?" in warning for warning in found.warnings)
    assert any("did you mean 'binpack'?" in warning for warning in found.warnings)
    assert found.policy == ""
