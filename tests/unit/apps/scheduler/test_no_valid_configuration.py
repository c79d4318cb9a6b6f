"""A configuration that cannot be used: what has none yet places nothing and says so; what had one goes on by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import node, pod
from kit.scheduler_daemon import CONF, Daemon, create, daemon, write_conf
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli.snapshot_source import collect
from pumice.model.errors import BadInput
from pumice.wire import kinds
from pumice.wire.names import DEVICE_CONFIGMAP, LAST_GOOD, SCHEDULER_CONFIGMAP, SYSTEM_NAMESPACE
from pumice_lab.datadir import scheduler_problem

MAP = f"{SYSTEM_NAMESPACE}/{SCHEDULER_CONFIGMAP}"
TYPO = CONF.replace("allocate", "alocate")


async def put_map(cluster: FaultyCluster, name: str, data: dict[str, str], namespace: str = SYSTEM_NAMESPACE) -> None:
    await cluster.create(kinds.CONFIGMAPS, {"metadata": {"name": name}, "data": data}, namespace)


@asynccontextmanager
async def restarted(conf: str | None, settings: Settings | None = None, devices: str | None = None) -> AsyncIterator[Daemon]:
    """A scheduler that starts on a cluster with one node of cards, whatever it makes of its configuration."""
    clock = VirtualClock()
    cluster = await faulty_cluster(clock)
    if conf is not None:
        await put_map(cluster, SCHEDULER_CONFIGMAP, {"volcano-scheduler.conf": conf})
        await put_map(cluster, f"{SCHEDULER_CONFIGMAP}{LAST_GOOD}", {})
    if devices is not None:
        await put_map(cluster, DEVICE_CONFIGMAP, {"device-config.yaml": devices}, "kube-system")
    await cluster.put_node(node("n1", cards=2))
    await create(cluster, pod("gpu", mib=4000), pod("plain", cpu="1"))
    running = Daemon(cluster, clock, settings)
    await clock.sleep(5)
    try:
        yield running
    finally:
        await running.close()


def test_a_typo_before_the_start_leaves_every_pod_waiting_until_it_is_mended_and_is_told_everywhere() -> None:
    async def story() -> None:
        async with restarted(TYPO) as running:
            assert not running.ready.is_set()
            assert not await running.bound("gpu")
            assert not await running.bound("plain")
            code, text = await running.page("/readyz")
            assert (code, "unknown action 'alocate'; did you mean 'allocate'?" in text) == (503, True)
            assert text.startswith(f"waiting for: a valid configuration (configmap {MAP} line 1")
            _, metrics = await running.page("/metrics")
            assert 'pumice_configuration_refused{what="configuration"} 1' in metrics
            (event,) = [e for e in (await running.cluster.list(kinds.EVENTS))["items"] if e["reason"] == "ConfigurationRefused"]
            assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("ConfigMap", SCHEDULER_CONFIGMAP)
            assert "unknown action 'alocate'" in event["message"]
            facts = {"scheduler": f"127.0.0.1:{running.scheduler.port}"}
            reported = await asyncio.to_thread(scheduler_problem, facts)
            assert reported.startswith("it places nothing, waiting for: a valid configuration (")
            await write_conf(running, CONF)
            await running.bind_all("gpu", "plain")
            await running.clock.sleep(2)
            assert await asyncio.to_thread(scheduler_problem, facts) == ""
            assert (await running.page("/readyz")) == (200, "ok")
            assert await running.events("ConfigurationTaken") == ["configuration is in force again"]
            assert 'pumice_configuration_refused{what="configuration"} 0' in (await running.page("/metrics"))[1]
            await running.audit()

    run_virtually(story())


def test_a_configmap_without_its_key_is_a_mistake_and_no_configuration() -> None:
    async def story() -> None:
        async with restarted(None) as running:
            await running.bind_all("plain")  # none at all: the built-in one
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        await put_map(cluster, SCHEDULER_CONFIGMAP, {"volcano-scheduler.cnf": CONF})
        running = Daemon(cluster, clock)
        await clock.sleep(5)
        assert "has no key volcano-scheduler.conf" in (await running.page("/readyz"))[1]
        await running.close()

    run_virtually(story())


def test_a_device_configuration_that_is_broken_before_the_start_is_waited_out_too() -> None:
    async def story() -> None:
        async with restarted(CONF, devices="nvidia: [") as running:
            assert not await running.bound("plain")
            code, text = await running.page("/readyz")
            assert (code, text[:46]) == (503, "waiting for: a valid device configuration (con")
            body = {"data": {"device-config.yaml": "nvidia: {}\n"}}
            await running.cluster.patch(kinds.CONFIGMAPS, DEVICE_CONFIGMAP, body, "kube-system")
            await running.bind_all("gpu", "plain")

    run_virtually(story())


def test_a_file_that_is_broken_at_the_start_is_waited_out(tmp_path: Path) -> None:
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text(TYPO)

    async def story() -> None:
        async with restarted(None, Settings(conf=file)) as running:
            assert not await running.bound("plain")
            file.write_text(CONF)
            await running.bind_all("gpu", "plain")

    run_virtually(story())


def test_one_that_breaks_later_leaves_the_last_good_one_in_force_and_says_so_on_its_pages() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await write_conf(running, TYPO)
            await running.clock.sleep(2)
            code, text = await running.page("/readyz")
            assert (code, text.splitlines()[0]) == (200, "ok")
            assert "configuration refused, the last good one goes on: configmap" in text
            reported = await asyncio.to_thread(scheduler_problem, {"scheduler": f"127.0.0.1:{running.scheduler.port}"})
            assert reported.startswith("configuration refused, the last good one goes on")
            await create(running.cluster, pod("gpu", mib=4000))
            await running.bind_all("gpu")

    run_virtually(story())


def test_who_diagnoses_answers_by_the_last_good_configuration_and_says_so_also_after_a_restart() -> None:
    async def story() -> None:
        async with restarted(CONF) as running:
            await running.bind_all("gpu")
            await write_conf(running, TYPO)
            await running.clock.sleep(10)
            case = await collect(running.cluster, MAP)
            assert case.scheduler_conf == CONF
            (remark,) = case.remarks
            assert remark.startswith(f"ConfigMap {MAP} is refused: volcano-scheduler.conf line 1: unknown action 'alocate'")
            assert "answering by the last good one" in remark
            await write_conf(running, CONF)
            assert (await collect(running.cluster, MAP)).remarks == []

    run_virtually(story())


def test_who_diagnoses_takes_for_ours_the_pods_of_every_name_that_the_scheduler_serves_and_of_no_other() -> None:
    async def story() -> None:
        async with restarted(CONF, Settings(scheduler_names=("volcano", "night"))) as running:
            assert (await collect(running.cluster, MAP)).scheduler_names == ["night", "volcano"]
        async with restarted(TYPO, Settings(scheduler_names=("night",))) as running:
            await write_conf(running, CONF)
            assert (await collect(running.cluster, MAP)).scheduler_names == ["night"]
        async with restarted(None) as others:  # nothing of ours keeps anything there
            assert (await collect(others.cluster, MAP)).scheduler_names == ["volcano"]

    run_virtually(story())


def test_where_no_good_configuration_is_known_the_question_is_refused_with_the_reason() -> None:
    async def story() -> None:
        async with restarted(TYPO) as running:
            with pytest.raises(BadInput, match=r"unknown action 'alocate'.*no last good one is known"):
                await collect(running.cluster, MAP)
            await running.cluster.delete(kinds.CONFIGMAPS, SCHEDULER_CONFIGMAP, SYSTEM_NAMESPACE)
            assert (await collect(running.cluster, MAP)).remarks == [
                f"there is no ConfigMap {MAP}; answering by the built-in configuration"
            ]

    run_virtually(story())


def test_strict_refuses_what_would_only_be_warned_of() -> None:
    alias = CONF.replace("deviceshare.VGPUEnable: true", "deviceshare.VGPUEnable: true\n      predicate.VGPUEnable: false")

    async def story() -> None:
        async with restarted(alias, Settings(strict=True)) as running:
            assert "(strict)" in (await running.page("/readyz"))[1]
            assert not await running.bound("plain")

    run_virtually(story())


def test_the_device_part_of_the_last_good_configuration_is_kept_beside_it() -> None:
    async def story() -> None:
        async with restarted(CONF, devices="nvidia:\n  deviceSplitCount: 3\n") as running:
            await running.bind_all("gpu")
            await running.clock.sleep(10)
            body = {"data": {"device-config.yaml": "nvidia: ["}}
            await running.cluster.patch(kinds.CONFIGMAPS, DEVICE_CONFIGMAP, body, "kube-system")
            await asyncio.sleep(1)
            case = await collect(running.cluster, MAP)
            assert "deviceSplitCount: 3" in case.device_config
            assert "volcano-vgpu-device-config is refused" in case.remarks[0]

    run_virtually(story())
