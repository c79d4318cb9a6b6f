"""The reports that `pumice up` gathers in ClusterD's place (Volcano pkg/scheduler/api/devices/ascend/mindcluster)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kit.fake_cluster import FakeCluster
from kit.npu_core_world import device_info, own_host
from kit.virtual_time import VirtualClock, run_virtually

from pumice.wire.device_reports import node_info, read_gathered, render_own_devices
from pumice.wire.objects import ConfigMap, convert
from pumice_lab import clusterd

INFO = device_info(["Ascend310P-0"], ["Ascend310P-1"], 7)


def gathered(*reported: Any) -> dict[str, Any]:
    """ClusterD's ConfigMaps by name, over those that nodes have written."""
    found = clusterd.Gathered()
    for one in reported:
        found.take(convert(ConfigMap, one))
    return {body["metadata"]["name"]: body for body in found.config_maps()}


def test_the_scheduler_reads_of_a_node_what_its_plugin_wrote() -> None:
    body = gathered(render_own_devices("n1", INFO))["cluster-info-device-0"]
    assert dict(read_gathered(convert(ConfigMap, body)).said) == {"n1": "Ascend310P-0;Ascend310P-1;"}
    assert body["metadata"]["labels"] == {"mx-consumer-volcano": "true"}


def test_a_host_that_has_something_to_report_is_told_until_it_has_nothing() -> None:
    reported = own_host("n1", node_info("PreSeparate"))
    found = clusterd.Gathered()
    assert found.take(convert(ConfigMap, reported))
    assert not found.take(convert(ConfigMap, reported)), "nothing new"
    hosts = json.loads(found.config_maps()[-1]["data"]["cluster-info-node-cm"])
    assert hosts["mindx-dl-nodeinfo-n1"]["NodeStatus"] == "PreSeparate"
    assert found.take(convert(ConfigMap, {"metadata": reported["metadata"]}), deleted=True)
    assert found.config_maps()[-1]["data"]["cluster-info-node-cm"] == ""


def test_a_report_with_another_check_code_is_dropped_and_what_was_said_before_stays() -> None:
    stale = render_own_devices("n1", device_info([], ["Ascend310P-0"], 8), code="0" * 64)
    body = gathered(render_own_devices("n1", INFO), stale)["cluster-info-device-0"]
    assert json.loads(body["data"]["cluster-info-device-0"])["mindx-dl-deviceinfo-n1"]["UpdateTime"] == 7


def test_whatever_else_has_the_label_is_passed_over() -> None:
    names, texts = ("mindx-dl-deviceinfo-", "mindx-dl-deviceinfo-n1", "other"), ("", "[]", "{", "{}")
    strange = [{"metadata": {"name": name}, "data": {"DeviceInfoCfg": said}} for name in names for said in texts]
    body = gathered(*strange)["cluster-info-device-0"]
    assert body["data"]["cluster-info-device-0"] == "{}"


def test_what_a_tenant_says_in_a_namespace_of_its_own_is_not_gathered() -> None:
    forged = render_own_devices("n1", device_info([], ["Ascend310P-0"], 8))
    forged["metadata"]["namespace"] = "a-team"
    body = gathered(render_own_devices("n1", INFO), forged)["cluster-info-device-0"]
    assert dict(read_gathered(convert(ConfigMap, body)).said) == {"n1": "Ascend310P-0;Ascend310P-1;"}


def test_many_nodes_are_told_in_several_config_maps() -> None:
    found = gathered(*(render_own_devices(f"n{at}", INFO) for at in range(clusterd.NODES_OF_ONE + 1)))
    held = [json.loads(found[name]["data"][name]) for name in ("cluster-info-device-0", "cluster-info-device-1")]
    assert [len(nodes) for nodes in held] == [clusterd.NODES_OF_ONE, 1]


def test_it_follows_the_nodes_and_makes_the_namespace_when_it_has_something_to_say() -> None:
    async def play() -> None:
        cluster, clock, stop = FakeCluster(), VirtualClock(), asyncio.Event()
        job = asyncio.create_task(clusterd.run(cluster, clock, stop))
        cluster.put(render_own_devices("n1", INFO))
        await cluster.until(lambda: "Ascend310P-0" in text(cluster))
        cluster.put(render_own_devices("n1", device_info([], [], 9)))
        await cluster.until(lambda: '"UpdateTime":9' in text(cluster))
        assert cluster.found("namespaces", "mindx-dl")
        stop.set()
        await job

    run_virtually(play())


def text(cluster: FakeCluster) -> str:
    return "".join(str(body["data"]) for body in cluster.all("configmaps") if body["metadata"]["name"] == "cluster-info-device-0")
