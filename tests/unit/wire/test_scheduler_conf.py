"""volcano-scheduler.conf: what is read, what is warned of with its line, what is refused."""

import pytest

from pumice.model.errors import BadInput
from pumice.scheduler.engine import Engine
from pumice.wire.scheduler_conf import (
    DEFAULT_CONF,
    Arguments,
    parse_scheduler_conf,
)


def test_the_seeds_file_is_read() -> None:
    conf = parse_scheduler_conf("""
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
- plugins:
  - name: drf
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
      deviceshare.SchedulePolicy: binpack
configurations:
- name: init-params
  arguments: {"grace-over-time": "900", "presetVirtualDevice": "false"}
""")
    assert conf.actions == ("enqueue", "allocate", "backfill")
    assert [[p.name for p in tier] for tier in conf.tiers] == [["priority", "gang"], ["drf", "deviceshare"]]
    assert not conf.tiers[0][1].enabled("Preemptable")
    assert conf.tiers[0][0].enabled("Preemptable")
    assert conf.action("init-params").integer("grace-over-time", 0) == 900
    assert conf.action("init-params").boolean("presetVirtualDevice", True) is False
    (warning,) = conf.warnings
    assert warning.startswith("volcano-scheduler.conf line 14: key configurations has no effect yet: of an action's arguments")


def test_an_unknown_action_refuses_the_whole_file_and_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"line 2: unknown action 'alocate'; did you mean 'allocate'\?"):
        parse_scheduler_conf('\nactions: "enqueue, alocate"\n')


def test_unknown_plugins_and_arguments_are_warnings_with_their_line() -> None:
    text = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: gnag\n  - name: binpack\n    arguments:\n      binpack.wieght: 3\n'
    conf = parse_scheduler_conf(text)
    assert conf.warnings == (
        "volcano-scheduler.conf line 4: unknown plugin 'gnag' is skipped; did you mean 'gang'?",
        "volcano-scheduler.conf line 7: plugin binpack has no argument 'binpack.wieght'; did you mean 'binpack.weight'?",
    )
    with pytest.raises(BadInput, match="line 4"):
        parse_scheduler_conf(text, strict=True)


@pytest.mark.parametrize("spelling", ["enableJobOrder", "enabledJobOrder"])
def test_both_spellings_of_every_switch_are_read(spelling: str) -> None:
    conf = parse_scheduler_conf(f'actions: "allocate"\ntiers:\n- plugins:\n  - name: drf\n    {spelling}: false\n')
    assert not conf.tiers[0][0].enabled("JobOrder")
    assert conf.warnings == ()


def test_hierarchy_beside_proportion_in_one_tier_is_refused() -> None:
    text = 'actions: "allocate"\ntiers:\n- plugins:\n  - name: drf\n    enableHierarchy: true\n  - name: proportion\n'
    with pytest.raises(BadInput, match="exclude each other"):
        parse_scheduler_conf(text)


@pytest.mark.parametrize("text", ["{", "- a", "", "actions: ''", "tiers: []"])
def test_what_is_no_configuration_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadInput) as found:
        parse_scheduler_conf(text)
    assert "\n" not in str(found.value)


def test_both_spellings_of_the_geometry_arguments_are_known() -> None:
    text = (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n'
        "      deviceshare.VGPUEnable: true\n      deviceshare.KnowGeometriesCMName: mine\n"
    )
    conf = parse_scheduler_conf(text, strict=True)
    engine = Engine()
    remarks = engine.configure(conf)
    assert engine.settings.configmap == "mine"
    assert any("KnownGeometriesCMName" in remark for remark in remarks)


def test_legacy_sharing_switched_on_in_predicates_still_works() -> None:
    text = (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: predicates\n    arguments:\n'
        "      predicate.GPUSharingEnable: true\n"
    )
    engine = Engine()
    engine.configure(parse_scheduler_conf(text))
    assert [device_type.name for device_type in engine.device_types] == ["nvidia-gpu-share"]


def test_switches_that_exclude_each_other_keep_the_last_configuration() -> None:
    engine = Engine(parse_scheduler_conf(DEFAULT_CONF))
    text = (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n'
        "      deviceshare.VGPUEnable: true\n      deviceshare.GPUSharingEnable: true\n"
    )
    with pytest.raises(BadInput):
        engine.configure(parse_scheduler_conf(text))
    assert engine.conf.actions == ("enqueue", "allocate", "backfill")
    assert any(plugin.name == "proportion" for plugin in engine.framework.plugins)


@pytest.mark.parametrize(
    ("value", "number"), [(3, 3), ("3", 3), (3.0, 3), ("3.0", 3), ("x", 7), (None, 7), (True, 7), ("1.5", 7), ([], 7)]
)
def test_numbers_are_read_from_what_people_write(value: object, number: int) -> None:
    assert Arguments({"k": value}).integer("k", 7) == number
