"""The monitor's page: what it tells, and that a dead pod leaves no series (HAMi volcano-vgpu-device-plugin cmd/vgpu-monitor)."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from kit.machines import Programs, cards_of
from kit.node_objects import NODE, A, B, container, gives, pod_object, two_cards
from kit.node_world import node_cluster, until
from kit.region_files import Proc, region_bytes, write
from prometheus_client.parser import text_string_to_metric_families

from pumice.adapters.region import read_region
from pumice.apps.monitor import daemon as monitor
from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
from pumice.metrics.text import MetricFamily, render
from pumice.model.errors import BadInput
from pumice.ports.clock import SystemClock
from pumice.wire import limits_page
from pumice.wire.limits_page import GrantedCard, LimitsPage

MIB = 1 << 20
RESERVED = two_cards().cards[0].reserved


class FixedClock(SystemClock):
    def now(self) -> float:
        return 1760000010.0


async def serve(tmp_path, test, cards, *pods, notes=None, **settings):
    """The monitor at work on these cards while ``test`` looks at its page. ``notes``: the node's annotations."""
    cluster = node_cluster(notes)
    for pod in pods:
        cluster.put(pod)
    stop, ready = asyncio.Event(), asyncio.Event()
    given = replace(monitor.Settings(NODE, hook_path=tmp_path, address="127.0.0.1", port=0), **settings)
    port = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        monitor.run(given, cluster=cluster, clock=FixedClock(), rng=random.Random(1), stop=stop, ready=ready,
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


def play(tmp_path, test, *pods, at_work=lambda machine: None, notes=None, virtual_time=True, **settings):
    """On an emulated machine. ``at_work``: what happened on it before the page is asked for."""
    with cards_of(two_cards(virtual_time=virtual_time)) as (machine, cards):
        at_work(machine)
        asyncio.run(serve(tmp_path, test, cards, *pods, notes=notes, **settings))


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


def test_a_container_that_mps_holds_shows_what_it_was_given_and_no_use_that_nobody_knows(tmp_path):
    held = []

    def at_work(machine):
        held.append(Programs(machine).hold(300))

    async def look(page, cluster):
        for _ in range(10):
            await asyncio.sleep(0.02)
        text = await page()
        seen = samples(text)
        assert [value for _, value in seen["vGPU_device_memory_limit_in_bytes"]] == [2000 * MIB]
        assert "vGPU_device_memory_usage_in_bytes" not in seen
        assert "pumice_card_unaccounted_bytes" not in seen
        assert "pumice_region_suspect" not in seen
        assert not [event for event in cluster.events if event["reason"] in ("UnaccountedMemory", "RegionSuspect")]

    write(Path(ResponseOptions(hook=str(tmp_path)).page("u1", "train", limits_page.MPS_NOTE)), b"")
    try:
        pod = pod_object("p", gives(A, 2000), uid="u1", phase="Running")
        play(tmp_path, look, pod, at_work=at_work, virtual_time=False, feedback_every=0.02)
    finally:
        held[0].kill()


def test_the_monitor_looks_where_the_plugin_writes(tmp_path):
    """With the same HOOK_PATH; and where upstream's plugin of one layout or the other wrote (HAMi volcano-vgpu-device-plugin
    cmd/vgpu-monitor)."""
    settings = monitor.Settings("n", hook_path=tmp_path)
    written = Path(ResponseOptions(hook=str(tmp_path)).directory("uid", "train"))
    assert settings.folders == written.parent
    (tmp_path / "containers").mkdir()
    assert settings.folders == tmp_path / "containers"
    written.mkdir(parents=True)
    assert settings.folders == written.parent


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


def test_no_label_comes_from_a_region(tmp_path):
    """The file is the tenant's: other cards, and other names for its own, make no series, and the limit is the one given."""
    forged = {0: B.encode(), 1: A.encode(), 2: b"GPU-" + b"f" * 36}
    region = region_bytes(devices=3, procs=(Proc(1, dict.fromkeys(range(3), (0, 0, 7, 7))),), uuids=forged, limits=1 << 60)
    write(tmp_path / "vgpu/containers/u1_train/r.cache", region)
    write(tmp_path / "vgpu/containers/nobody_x/r.cache", region)

    async def look(page, cluster):
        text = await page()
        assert "f" * 36 not in text
        assert "nobody" not in text
        seen = samples(text)
        (used,) = seen["vGPU_device_memory_usage_in_bytes"]
        assert (used[0]["deviceuuid"], used[0]["vdeviceid"], used[1]) == (A, "0", 7)
        assert [value for _, value in seen["vGPU_device_memory_limit_in_bytes"]] == [3000 * MIB]
        assert seen["pumice_monitor_regions_without_grant"] == [({}, 1)]
        where = {"podnamespace": "ns1", "podname": "p", "ctrname": "train"}
        assert seen["pumice_region_suspect"] == [({**where, "sign": "memory-limit"}, 1)]

    play(tmp_path, look, pod_object("p", gives(A), uid="u1", phase="Running"))


def test_a_container_with_a_slice_shows_the_slice_and_what_is_used_in_it(tmp_path):
    with cards_of("1xA100-SXM4-40GB") as (machine, cards):
        programs = Programs(machine)
        (uuid,) = [card.uuid for card in cards.facts()]
        programs.smi("-i", "0", "-mig", "1")
        programs.smi("mig", "-i", "0", "-cgi", "19,14", "-C")
        slice_ = next(one for one in cards.instances() if one.profile == "1g.5gb")

        async def look(page, cluster):
            seen = samples(await page())
            ((labels, one),) = seen["hami_mig_device_info"]
            assert one == 1
            assert {labels[key] for key in ("container", "device_uuid", "mig_uuid", "profile")} == {
                "train", uuid, slice_.uuid, "1g.5gb"}  # fmt: skip
            assert labels["gpu_instance_id"] == str(slice_.gpu_instance)
            assert [(labels["instanceid"], one) for labels, one in seen["MigInfo"]] == [(str(slice_.gpu_instance), 1)]
            assert [value for _, value in seen["vGPU_device_memory_limit_in_bytes"]] == [5120 * MIB]
            assert {labels["profile"] for labels, _ in seen["pumice_mig_memory_used_bytes"]} == {"1g.5gb", "2g.10gb"}

        given = f"{uuid}[1g.5gb@{slice_.start}],NVIDIA,5120,0:"
        pod = pod_object("p", given, container("train", 1, 5120), uid="u1", phase="Running")
        asyncio.run(serve(tmp_path, look, cards, pod))


def test_another_region_that_a_tenant_makes_beside_its_own_is_not_looked_at(tmp_path):
    """The limits page names the one that its library uses."""
    folder = tmp_path / "vgpu/containers/u1_train"
    for name, used in (("r.cache", 100), ("s.cache", 1)):
        write(folder / name, region_bytes(devices=1, procs=(Proc(1, {0: (0, 0, used, used)}),), uuids={0: A.encode()}))
    os.utime(folder / "r.cache", (1, 1))
    given = LimitsPage((GrantedCard(A, 3000 * MIB, 50),), "/tmp/vgpu/r.cache")
    write(tmp_path / "vgpu/limits/u1_train/limits", limits_page.render(given))

    async def look(page, cluster):
        assert [value for _, value in samples(await page())["vGPU_device_memory_usage_in_bytes"]] == [100]

    play(tmp_path, look, pod_object("p", gives(A), uid="u1", phase="Running"))


def test_what_is_given_away_of_each_card_is_told(tmp_path):
    async def look(page, cluster):
        seen = samples(await page())
        reported = {name: {labels["deviceuuid"]: value for labels, value in seen[f"pumice_card_{name}"]}
                for name in ("granted_memory_bytes", "granted_core_percent", "shares", "processes")}  # fmt: skip
        assert reported["granted_memory_bytes"] == {A: 5000 * MIB, B: 1000 * MIB}
        assert reported["granted_core_percent"] == {A: 100, B: 50}
        assert reported["shares"] == {A: 2, B: 1}
        assert reported["processes"] == {A: 0, B: 0}
        assert {v for _, v in seen["pumice_container_core_limit_percent"]} == {50}

    pods = [pod_object("p", gives(A)), pod_object("q", gives(A, 2000) + gives(B, 1000), container("c", 2))]
    play(tmp_path, look, *pods)


def test_a_program_without_an_account_is_told_by_metric_and_event(tmp_path):
    held = []

    def at_work(machine):
        held.append(Programs(machine).hold(300))

    async def look(page, cluster):
        def events():
            return [e for e in cluster.events if e["reason"] == "UnaccountedMemory"]

        await until(lambda: events())
        (event,) = events()
        assert event["involvedObject"]["name"] == NODE
        assert f"MiB of card {A}" in event["message"]
        ((labels, stray),) = samples(await page())["pumice_card_unaccounted_bytes"]
        assert labels == {"deviceuuid": A, "podname": "", "podnamespace": "", "ctrname": ""}
        assert stray > 300 * MIB
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert len(events()) == 1, "once for as long as it lasts"

    try:
        pod = pod_object("p", gives(A), uid="u1", phase="Running")
        play(tmp_path, look, pod, at_work=at_work, virtual_time=False, feedback_every=0.02)
    finally:
        held[0].kill()


def test_a_region_that_is_damaged_and_then_taken_away_is_told_as_gone(tmp_path):
    path = write(tmp_path / "vgpu/containers/u1_train/r.cache", region_bytes()[:3000])

    async def look(page, cluster):
        def reported(words):
            return any(e["reason"] == "RegionSuspect" and words in e["message"] for e in cluster.events)

        await until(lambda: reported("not what the library writes"))
        path.unlink()
        await until(lambda: reported("not any more"))

    pod = pod_object("p", gives(A), uid="u1", phase="Running")
    pod["status"]["containerStatuses"] = [{"name": "train", "state": {"running": {}}}]
    play(tmp_path, look, pod, feedback_every=0.02)


def test_a_region_that_its_tenant_changed_or_took_away_is_told_on_the_pod(tmp_path):
    path = write(tmp_path / "vgpu/containers/u1_train/r.cache", region_bytes(devices=1, uuids={0: A.encode()}))

    async def look(page, cluster):
        def reported(words):
            found = [e for e in cluster.events if e["reason"] == "RegionSuspect" and words in e["message"]]
            assert all(e["involvedObject"]["name"] == "p" for e in found)
            return found

        assert "pumice_region_suspect" not in await page()
        write(path, region_bytes(devices=1, uuids={0: A.encode()}, limits=1 << 40))
        await until(lambda: reported("higher memory limit"))
        write(path, b"x" * 4000)
        write(path, region_bytes()[:3000])
        await until(lambda: reported("not what the library writes"))
        write(path, region_bytes(devices=1, uuids={0: A.encode()}))
        async with asyncio.timeout(60):
            while "pumice_region_suspect" in await page():
                await asyncio.sleep(0.01)
        path.unlink()
        await until(lambda: reported("not any more"))

    pod = pod_object("p", gives(A), uid="u1", phase="Running")
    pod["status"]["containerStatuses"] = [{"name": "train", "state": {"running": {}}}]
    play(tmp_path, look, pod, feedback_every=0.02)


def test_a_container_that_begins_anew_with_an_empty_region_is_no_suspect(tmp_path):
    path = write(tmp_path / "vgpu/containers/u1_train/r.cache", region_bytes(devices=1, uuids={0: A.encode()}))

    async def look(page, cluster):
        assert "Device_utilization_desc_of_container" in await page()
        path.write_bytes(b"")
        async with asyncio.timeout(60):
            while "Device_utilization_desc_of_container" in await page():
                await asyncio.sleep(0.01)
        assert "pumice_region_suspect" not in await page()

    play(tmp_path, look, pod_object("p", gives(A), uid="u1", phase="Running"), feedback_every=0.02)


class UnhealthyCards:
    """A driver whose calls never return."""

    def __init__(self) -> None:
        self.requested = threading.Event()

    def readings(self):
        self.requested.set()
        threading.Event().wait()

    processes = instances = close = readings


def test_a_driver_that_hangs_keeps_neither_page_nor_feedback_nor_end_waiting(tmp_path):
    path = write(tmp_path / "vgpu/containers/u1_train/r.cache", region_bytes(devices=1, uuids={0: A.encode()}, recent=9))
    cards = UnhealthyCards()

    async def look(page, cluster):
        seen = samples(await page())
        assert cards.requested.is_set()
        assert [value for _, value in seen["vGPU_device_memory_limit_in_bytes"]] == [3000 * MIB]
        assert seen["pumice_monitor_driver_silent_seconds"][0][1] > 0
        await until(lambda: read_region(path).recent_kernel == 0)

    pod = pod_object("p", gives(A), uid="u1", phase="Running")
    asyncio.run(serve(tmp_path, look, cards, pod, feedback_every=0.02, driver_patience=0.05))


def test_an_address_that_is_not_ours_is_one_line(tmp_path):
    settings = monitor.Settings(NODE, hook_path=tmp_path, address="192.0.2.1", port=0)
    running = monitor.run(settings, cluster=node_cluster(), clock=FixedClock(), rng=random.Random(1),
                          stop=asyncio.Event())
    with pytest.raises(BadInput, match=r"monitor: cannot listen on 192\.0\.2\.1"):
        asyncio.run(running)


def test_label_values_are_escaped():
    family = MetricFamily("m", "gauge", "help\nof it")
    family.add(1.5, {"b": 'a"\\\n', "a": "x"})
    assert render([family]) == '# HELP m help\\nof it\n# TYPE m gauge\nm{a="x",b="a\\"\\\\\\n"} 1.5\n'
