"""The scheduler follows the ConfigMaps in which MindCluster tells of nodes, and another sort of them when it is told to."""

from __future__ import annotations

from contextlib import suppress

from kit.npu_core_world import chips, core_node_object, core_pod_object, device_info, gathered
from kit.scheduler_confs import conf, sharing
from kit.scheduler_daemon import create, daemon, write_conf
from kit.virtual_time import run_virtually

from pumice.ports.cluster import ApiError
from pumice.wire import kinds
from pumice.wire.device_reports import render_own_devices

CONF = conf("predicates", sharing("AscendMindClusterVNPU"), init={"useClusterInfoManager": '"%s"'})
NOT_TOLD = "node n1 device info or clusterd info is not enable"


async def report(running, obj):
    namespace = obj["metadata"]["namespace"]
    with suppress(ApiError):  # it may be there
        await running.cluster.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    await running.cluster.create(kinds.CONFIGMAPS, obj, namespace)


async def waits_for_chips(running, name):
    async def holds():
        return NOT_TOLD in await running.condition(name)

    await running.until(holds)


def test_nobody_is_placed_before_something_is_reported_and_then_at_once():
    async def story():
        async with daemon(core_node_object("n1", 2), conf=CONF % "true") as running:
            await create(running.cluster, core_pod_object("a", 4))
            await waits_for_chips(running, "a")
            await report(running, gathered({"n1": 2}))
            await running.bind_all("a")
            assert (await running.cluster.pods())["a"]["metadata"]["annotations"]["huawei.com/npu-core"] == "0-vir04_3c"

    run_virtually(story())


def test_the_other_source_counts_from_the_moment_that_the_configuration_names_it():
    async def story():
        async with daemon(core_node_object("n1", 2), conf=CONF % "false") as running:
            await report(running, gathered({"n1": 2}))
            await create(running.cluster, core_pod_object("a", 4))
            await waits_for_chips(running, "a")
            await report(running, render_own_devices("n1", device_info(chips(0, 1))))
            await running.bind_all("a")
            await running.cluster.delete(kinds.CONFIGMAPS, "cluster-info-device-0", "mindx-dl")
            await write_conf(running, CONF % "true")
            await create(running.cluster, core_pod_object("b", 4))
            await waits_for_chips(running, "b")
            await report(running, gathered({"n1": 2}))
            await running.bind_all("b")

    run_virtually(story())


def test_a_report_with_a_stale_check_code_is_told_and_the_last_good_one_goes_on():
    async def story():
        async with daemon(core_node_object("n1", 2), conf=CONF % "false") as running:
            await report(running, render_own_devices("n1", device_info(chips(0, 1))))
            stale = render_own_devices("n1", device_info(chips(0, 1), chips(1)), code="0" * 64)
            await running.cluster.patch(kinds.CONFIGMAPS, "mindx-dl-deviceinfo-n1", {"data": stale["data"]}, "kube-system")
            await create(running.cluster, core_pod_object("a", 16))
            await running.bind_all("a")
            problems = running.scheduler.engine.state.problems
            assert "CheckCode" in problems["ConfigMap kube-system/mindx-dl-deviceinfo-n1"]

    run_virtually(story())


def test_a_tenants_own_word_on_a_node_closes_none_of_its_chips():
    async def story():
        async with daemon(core_node_object("n1", 2), conf=CONF % "false") as running:
            forged = render_own_devices("n1", device_info([], chips(0, 1)))
            for namespace in ("a-team", "zz"):  # before and behind the true one by name
                await report(running, {**forged, "metadata": {**forged["metadata"], "namespace": namespace}})
            await report(running, render_own_devices("n1", device_info(chips(0, 1))))
            await create(running.cluster, core_pod_object("a", 16))
            await running.bind_all("a")
            assert running.scheduler.engine.state.problems == {}

    run_virtually(story())
