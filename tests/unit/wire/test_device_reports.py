"""The ConfigMaps in which MindCluster's components report on nodes, and how little of it is lost where something is wrong."""

from __future__ import annotations

import json

import pytest
from kit.npu_core_world import chips, device_info, own_host

from pumice.scheduler.state.bookings import Reports
from pumice.wire.device_reports import (
    DEVICES,
    DOUBT,
    HOST,
    Reported,
    check_code,
    node_info,
    parse_chip_lists,
    read_gathered,
    read_own,
    render_gathered_devices,
    render_gathered_hosts,
    render_own_devices,
)
from pumice.wire.objects import ConfigMap, convert


def gathered(obj):
    return read_gathered(convert(ConfigMap, obj))


def own(obj):
    return read_own(convert(ConfigMap, obj))


def reports(*steps):
    """(where, what is read there) one after the other."""
    problems: dict[str, str] = {}
    kept = Reports(problems)
    changed = [kept.put(where, found) for where, found in steps]
    return kept, problems, changed


def test_both_sources_say_the_same_of_a_node():
    info = device_info(chips(0, 1), chips(2), 7, recovering=chips(3))
    by_clusterd, by_itself = gathered(render_gathered_devices({"n1": info})), own(render_own_devices("n1", info))
    assert by_clusterd == by_itself
    lists = parse_chip_lists(by_itself.said["n1"])
    assert (lists.free, lists.unhealthy, lists.recovering) == (tuple(chips(0, 1)), tuple(chips(2)), tuple(chips(3)))
    hosts = {"n1": node_info("PreSeparate", [{"DeviceType": "CPU", "DeviceId": 0, "FaultCode": ["0D00002D"],
                                              "FaultLevel": "PreSeparateFault"}])}  # fmt: skip
    assert gathered(render_gathered_hosts(hosts)) == own(own_host("n1", hosts["n1"]))
    assert gathered(render_gathered_hosts({})).said == {}


def test_a_report_that_only_has_another_time_is_no_news():
    first, second = (gathered(render_gathered_devices({"n1": device_info(chips(0, 1), time=time)})) for time in (1, 2))
    _, _, changed = reports(("m/c", first), ("m/c", second))
    assert changed == [{"n1"}, set()]


def test_a_stale_check_code_leaves_what_was_said_before_and_is_told():
    good = own(render_own_devices("n1", device_info(chips(0))))
    stale = own(render_own_devices("n1", device_info(chips(0, 1)), code=check_code(device_info(chips(0)))))
    kept, problems, _ = reports(("kube-system/a", good), ("kube-system/a", stale))
    assert kept.of("n1")[DEVICES] == good.said["n1"]
    assert "the CheckCode" in kept.of("n1")[DOUBT]
    assert "stale" in problems["ConfigMap kube-system/a"]
    kept, problems, _ = reports(("kube-system/a", stale), ("kube-system/a", good))
    assert (kept.of("n1"), problems) == (good.said and {DEVICES: good.said["n1"]}, {})


@pytest.mark.parametrize("forged", [
    render_own_devices("n1", device_info([], chips(0))), own_host("n1", node_info("UnHealthy")),
], ids=["chips", "host"])  # fmt: skip
def test_nobody_speaks_for_a_node_from_a_namespace_that_is_not_its_components(forged):
    """Whoever may write ConfigMaps in a namespace of his own has all of it in hand: name, label, and the right check code."""
    for namespace in ("a-team", "default", "zz", ""):
        assert own({**forged, "metadata": {**forged["metadata"], "namespace": namespace}}) == Reported()
    assert own(forged).said


def test_an_entry_that_cannot_be_read_harms_no_other():
    obj = render_gathered_devices({"n1": device_info(chips(0)), "n2": device_info(chips(0, 1))})
    name = obj["metadata"]["name"]
    before = gathered(obj)
    entries = json.loads(obj["data"][name])
    entries["mindx-dl-deviceinfo-n1"]["DeviceList"] = 7
    entries["mindx-dl-deviceinfo-n2"]["DeviceList"]["huawei.com/Ascend310P"] = "Ascend310P-1"
    obj["data"][name] = json.dumps(entries)
    kept, problems, changed = reports(("m/c", before), ("m/c", gathered(obj)))
    assert changed[1] == {"n1", "n2"}
    assert kept.of("n1")[DEVICES] == before.said["n1"]
    assert parse_chip_lists(kept.of("n2")[DEVICES]).free == ("Ascend310P-1",)
    assert "n1: the entry mindx-dl-deviceinfo-n1" in problems["ConfigMap m/c"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 5000])
def test_a_whole_that_cannot_be_read_leaves_all_that_was_said(text):
    obj = render_gathered_devices({"n1": device_info(chips(0))})
    name = obj["metadata"]["name"]
    before = gathered(obj)
    broken = gathered({**obj, "data": {name: text}})
    kept, problems, changed = reports(("m/c", before), ("m/c", broken))
    assert (kept.of("n1"), changed[1]) == ({DEVICES: before.said["n1"]}, set())
    assert "no JSON map" in problems["ConfigMap m/c"]


def test_an_entry_that_was_never_updated_does_not_count():
    found = gathered(render_gathered_devices({"n1": device_info(chips(0), time=0)}))
    assert found.said == {}
    assert "never written" in found.doubts["n1"]


def test_two_config_maps_that_speak_of_one_node_are_not_mixed():
    one, two = (gathered(render_gathered_devices({"n1": device_info(chips(at))}, at)) for at in (0, 1))
    kept, _, changed = reports(("m/device-1", two), ("m/device-0", one), ("m/device-0", None))
    assert changed == [{"n1"}, {"n1"}, {"n1"}]
    assert kept.of("n1")[DEVICES] == two.said["n1"]


def test_what_is_gone_says_nothing_any_more():
    kept, problems, _ = reports(("m/c", gathered(render_gathered_devices({"n1": device_info(chips(0))}))), ("m/c", None))
    assert (kept.of("n1"), problems) == ({}, {})
    kept, _, _ = reports(("m/c", own(own_host("n1", node_info("PreSeparate")))))
    assert kept.of("n1") == {HOST: "PreSeparate"}
    assert kept.forget() == {"n1"}
    assert kept.of("n1") == {}


def test_other_config_maps_under_the_label_are_left_alone():
    for name in ("cluster-info-switch-0", "something", "mindx-dl-deviceinfo-", "mindx-dl-nodeinfo-"):
        obj = {"metadata": {"name": name, "namespace": "mindx-dl"}, "data": {name: "x"}}
        assert (gathered(obj).said, gathered(obj).doubts, own(obj).said) == ({}, {}, {})
