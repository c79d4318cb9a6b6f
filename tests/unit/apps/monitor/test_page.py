"""The monitor's page: what it tells, and that a dead pod leaves no series (spec nvidia-device-plugin 18.4)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import aiohttp
import pytest
from kit.machines import Programs, cards_of
from kit.node_objects import NODE, A, B, container, gives, pod_object, two_cards
from kit.node_world import node_cluster, until
from kit.region_files import Proc, region_bytes, write
from prometheus_client.parser import text_string_to_metric_families

from pumice.apps.monitor import daemon as monitor
from pumice.metrics.text import Family, render
from pumice.model.errors import BadInput
from pumice.ports.clock import SystemClock

MIB = 1 << 20
RESERVED = two_cards().cards[0].reserved


class FixedClock(SystemClock):
    def now(self) -> float:
        return 1760000010.0


def play(tmp_path, test, *pods, at_work=lambda machine: None, notes=None, **settings):
    """``at_work``: what happened on the machine before the page is asked for; ``notes``: the node's annotations."""

    async def run(cards) -> None:
        cluster = node_cluster(notes)
        for pod in pods:
            cluster.put(pod)
        stop, ready = asyncio.Event(), asyncio.Event()
        given = replace(monitor.Settings(NODE, hook_path=tmp_path, address="127.0.0.1", port=0), **settings)
        port = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            monitor.run(given, cluster=cluster, clock=FixedClock(), dice=random.Random(1), stop=stop, ready=ready,
                        cards=cards, bound=port)
        )  # fmt: skip
        try:
            await asyncio.wait_for(ready.wait(), 10)
            async with aiohttp.ClientSession() as session:

                async def page() -> str:
                    async with session.get(f"http://127.0.0.1:{port.result()}/metrics") as answer:
                        assert answer.status == 200
                        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                        return await answer.text()

                await test(page, cluster)
        finally:
            stop.set()
            await asyncio.wait_for(task, 60)

    with cards_of(two_cards(virtual_time=True)) as (machine, cards):
        at_work(machine)
        asyncio.run(run(cards))


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def test_cards_and_containers_are_told_as_upstream_names_them(tmp_path):
    region = region_bytes(devices=1, procs=(Proc(1, {0: (10, 0, 90, 100)}, {0: 30}),), last=1760000000,
                          uuids={0: A.encode()})  # fmt: skip
    write(tmp_path / "vgpu/containers/u1_train/r.cache", region)

    async def look(page, cluster):
        seen = samples(await page())
        used = (RESERVED, RESERVED + 4096)
        host = [({"deviceidx": str(i), "deviceuuid": uuid, "zone": "vGPU"}, used[i] * MIB) for i, uuid in enumerate((A, B))]
        assert seen["HostGPUMemoryUsage"] == host
        assert [value for _, value in seen["HostCoreUtilization"]] == [10, 20]
        labels = {"podnamespace": "ns1", "podname": "p", "ctrname": "train", "vdeviceid": "0", "deviceuuid": A,
                  "zone": "vGPU"}  # fmt: skip
        assert seen["vGPU_device_memory_usage_in_bytes"] == [(labels, 100)]
        assert seen["vGPU_device_memory_limit_in_bytes"] == [(labels, 3000 * MIB)]
        assert seen["Device_utilization_desc_of_container"] == [(labels, 30)]
        assert seen["Device_last_kernel_of_container"] == [(labels, 10)]
        hami = {"namespace": "ns1", "pod": "p", "container": "train", "vdevice_index": "0", "device_uuid": A,
                "zone": "vGPU"}  # fmt: skip
        newer = {
            "hami_vgpu_memory_used_bytes": 100, "hami_vgpu_memory_limit_bytes": 3000 * MIB,
            "hami_container_device_memory_bytes": 100, "hami_container_device_utilization_ratio": 30,
            "hami_container_last_kernel_elapsed_seconds": 10, "hami_vgpu_memory_context_bytes": 10,
            "hami_vgpu_memory_module_bytes": 0, "hami_vgpu_memory_buffer_bytes": 90,
        }  # fmt: skip
        assert {name: seen[name] for name in newer} == {name: [(hami, value)] for name, value in newer.items()}
        assert len(seen["hami_host_gpu_memory_used_bytes"]) == len(seen["hami_host_gpu_utilization_ratio"]) == 2
        text = await page()
        assert "# TYPE Device_memory_desc_of_container counter\n" in text
        assert 'Device_memory_desc_of_container{context="10",ctrname="train",data="90"' in text
        assert "_total" not in text

    def at_work(machine):
        machine.set_stranger_memory(1, 4096)
        for card, kernels in enumerate((10, 20)):  # of the last second
            Programs(machine).burn("--device", str(card), "--kernels", str(kernels), "--kernel-ms", "10")
        machine.clock.advance(99_999_999)  # to the end of one of the tenths of a second that busy time is kept in

    play(tmp_path, look, pod_object("p", gives(A), uid="u1", phase="Running"), at_work=at_work)


def test_a_container_that_has_not_touched_its_card_shows_its_limit(tmp_path):
    async def look(page, cluster):
        seen = samples(await page())
        assert [(labels["ctrname"], labels["vdeviceid"], labels["deviceuuid"], value) for labels, value in
                seen["vGPU_device_memory_limit_in_bytes"]] == [
            ("c2", "0", A, 2000 * MIB), ("c2", "1", B, 1000 * MIB),
        ]  # fmt: skip
        assert {value for _, value in seen["vGPU_device_memory_usage_in_bytes"]} == {0}

    two = pod_object("p", gives(B, 1000) + gives(A, 2000), container("c1"), container("c2", 2), phase="Running")
    play(tmp_path, look, two)


def test_a_dead_pod_leaves_no_series_and_its_folder_goes(tmp_path):
    folder = write(tmp_path / "vgpu/containers/u1_train/r.cache", region_bytes()).parent
    limits = write(tmp_path / "vgpu/limits/u1_train/limits", b"").parent

    async def look(page, cluster):
        assert 'podname="p"' in await page()
        assert limits.exists()
        cluster.remove("pods", "p")
        await until(lambda: not folder.exists() and not limits.exists())
        assert 'podname="p"' not in await page()

    play(tmp_path, look, pod_object("p", gives(A), uid="u1", phase="Running"), sweep_every=0.02, grace=-1e12)


def test_a_broken_region_is_counted_and_harms_nobody_else(tmp_path):
    write(tmp_path / "vgpu/containers/u1_train/r.cache", region_bytes()[:5000])

    async def look(page, cluster):
        seen = samples(await page())
        assert seen["pumice_monitor_bad_regions"] == [({}, 1)]
        assert [value for _, value in seen["vGPU_device_memory_limit_in_bytes"]] == [3000 * MIB]

    play(tmp_path, look, pod_object("p", gives(A), uid="u1", phase="Running"))


def test_an_address_that_is_not_ours_is_one_line(tmp_path):
    settings = monitor.Settings(NODE, hook_path=tmp_path, address="192.0.2.1", port=0)
    running = monitor.run(settings, cluster=node_cluster(), clock=FixedClock(), dice=random.Random(1),
                          stop=asyncio.Event())
    with pytest.raises(BadInput, match=r"monitor: cannot listen on 192\.0\.2\.1"):
        asyncio.run(running)


def test_label_values_are_escaped():
    family = Family("m", "gauge", "help\nof it")
    family.add(1.5, {"b": 'a"\\\n', "a": "x"})
    assert render([family]) == '# HELP m help\\nof it\n# TYPE m gauge\nm{a="x",b="a\\"\\\\\\n"} 1.5\n'
