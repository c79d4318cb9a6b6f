"""The scheduler's page of metrics: upstream's names, types, labels and edges, and no more work than what changed."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

import pytest
from kit.engine_world import World
from kit.metric_pages import WITH_DRF, busy_page
from kit.objects import group, node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually
from prometheus_client.parser import text_string_to_metric_families

from pumice.apps.service.http import read_process
from pumice.metrics.scheduler import SchedulerMetrics
from pumice.metrics.text import process_families
from pumice.wire import kinds, volcano

JOB = "job_name queue job_namespace"
CARD = "devID NodeName"
QUEUE_PARTS = ("allocated", "request", "deserved", "inqueue", "capacity", "real_capacity")

# Volcano pkg/scheduler/metrics: name, type, labels; for histograms lowest and highest edge and their number.
TABLE: list[tuple[str, str, str, tuple[float, float, int] | None]] = [
    ("e2e_scheduling_latency_milliseconds", "histogram", "", (1, 5000, 20)),
    ("open_session_duration_milliseconds", "histogram", "", (1, 5000, 20)),
    ("e2e_job_scheduling_latency_milliseconds", "histogram", "", (100, 120000, 30)),
    ("e2e_job_scheduling_duration", "gauge", JOB, None),
    ("e2e_job_scheduling_start_time", "gauge", JOB, None),
    ("e2e_job_scheduling_last_time", "gauge", JOB, None),
    ("plugin_scheduling_latency_milliseconds", "histogram", "plugin OnSession", (0.1, 100, 15)),
    ("action_scheduling_latency_milliseconds", "histogram", "action", (1, 2000, 20)),
    ("task_scheduling_latency_milliseconds", "histogram", "stage", (50, 60000, 30)),
    ("scheduling_stage_duration_milliseconds", "histogram", "stage", (0.1, 500, 20)),
    ("schedule_attempts_total", "counter", "result", None),
    ("pod_preemption_victims", "gauge", "", None),
    ("total_preemption_attempts", "counter", "", None),
    ("eviction_transactions_total", "counter", "action", None),
    ("unschedule_task_count", "gauge", "job_id", None),
    ("unschedule_job_count", "gauge", "", None),
    ("job_retry_counts", "counter", "job_id", None),
    ("job_share", "gauge", "job_ns job_id", None),
    *((f"queue_{part}_milli_cpu", "gauge", "queue_name", None) for part in QUEUE_PARTS),
    *((f"queue_{part}_memory_bytes", "gauge", "queue_name", None) for part in QUEUE_PARTS),
    *((f"queue_{part}_scalar_resources", "gauge", "queue_name resource", None) for part in QUEUE_PARTS),
    ("queue_share", "gauge", "queue_name", None),
    ("queue_weight", "gauge", "queue_name", None),
    ("queue_overused", "gauge", "queue_name", None),
    ("namespace_share", "gauge", "namespace_name", None),
    ("namespace_weight", "gauge", "namespace_name", None),
    ("namespace_weighted_share", "gauge", "namespace_name", None),
    ("vgpu_device_allocated_memory", "gauge", CARD, None),
    ("vgpu_device_allocated_cores", "gauge", CARD, None),
    ("vgpu_device_shared_number", "gauge", CARD, None),
    ("vgpu_device_memory_limit", "gauge", CARD, None),
    ("vgpu_device_memory_allocation_for_a_certain_pod", "gauge", f"{CARD} podName", None),
    ("vgpu_device_core_allocation_for_a_certain_pod", "gauge", f"{CARD} podName", None),
]
UNUSED = {"namespace_share", "namespace_weight", "namespace_weighted_share"}
"""Upstream declares them for a plugin that we do not have."""

@pytest.fixture(scope="module")
def page() -> str:
    return run_virtually(busy_page())


@pytest.mark.parametrize(("name", "kind", "labels", "edges"), TABLE, ids=[row[0] for row in TABLE])
def test_each_metric_of_the_specification_has_its_type_labels_and_edges(
    page: str, name: str, kind: str, labels: str, edges: tuple[float, float, int] | None
) -> None:
    full = f"volcano_{name}"
    assert f"# TYPE {full} {kind}\n" in page
    samples = [s for found in text_string_to_metric_families(page) for s in found.samples
               if s.name in (full, f"{full}_total", f"{full}_bucket")]  # fmt: skip # the parser gives counters _total
    assert samples or name in UNUSED, "no sample of it"
    for sample in samples:
        assert set(sample.labels) - {"le"} == set(labels.split())
    if edges is not None:
        low, high, count = edges
        first = [s for s in samples if {**s.labels, "le": ""} == {**samples[0].labels, "le": ""}]
        bounds = [float(s.labels["le"]) for s in first]
        assert bounds == sorted(bounds)
        assert (bounds[0], bounds[-2], len(bounds) - 1) == (pytest.approx(low), pytest.approx(high), count)


def test_the_stages_of_a_pods_way_are_told_apart(page: str) -> None:
    stages = {s.labels["stage"] for found in text_string_to_metric_families(page) for s in found.samples
              if s.name == "volcano_task_scheduling_latency_milliseconds_count" and s.value}  # fmt: skip
    assert stages == {"Watched", "Assumed", "PreBound", "Bound"}
    stages = {s.labels["stage"] for found in text_string_to_metric_families(page) for s in found.samples
              if s.name == "volcano_scheduling_stage_duration_milliseconds_count" and s.value}  # fmt: skip
    assert stages == {"Predicate", "Scoring", "PreBind", "Bind"}


def test_the_backlog_is_shown_by_queue_and_reason(page: str) -> None:
    assert 'pumice_pending_pods{queue_name="default",reason="unschedulable"} 1' in page


def test_the_process_tells_of_itself_by_the_usual_names(page: str) -> None:
    found = {s.name: s.value for f in text_string_to_metric_families(page) for s in f.samples if s.name.startswith("process_")}
    assert found.keys() == {f"process_{name}" for name in (
        "cpu_seconds_total", "resident_memory_bytes", "virtual_memory_bytes", "start_time_seconds", "open_fds", "max_fds")}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    assert 0 < found["process_cpu_seconds_total"] <= usage.ru_utime + usage.ru_stime + 0.1
    assert 2**20 < found["process_resident_memory_bytes"] <= 1.1 * usage.ru_maxrss * 1024
    assert found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 0 < found["process_open_fds"] < found["process_max_fds"]
    assert time.time() - 3600 < found["process_start_time_seconds"] < time.time()


def test_where_the_system_does_not_tell_the_page_goes_without(tmp_path: Path) -> None:
    assert process_families(read_process(tmp_path)) == []


def test_no_series_stands_twice(page: str) -> None:
    series = [line.rsplit(" ", 1)[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_what_is_gone_leaves_no_series() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2), conf=WITH_DRF) as running:
            await create(running.cluster, group("g", minimum=1), pod("a", mib=4000, cores=30, group="g"))
            await running.bind_all("a")
            await running.clock.sleep(1)
            _, page = await running.page("/metrics")
            assert 'volcano_vgpu_device_core_allocation_for_a_certain_pod{devID="GPU-n1-0",NodeName="n1",podName="a"} 30' in page
            assert 'job_id="default/g"' in page
            await running.cluster.delete(kinds.PODS, "a", "default", grace=0)
            await running.cluster.delete(volcano.POD_GROUPS, "g", "default")
            await running.clock.sleep(1)
            _, page = await running.page("/metrics")
            assert 'podName="a"' not in page
            assert "default/g" not in page
            await running.cluster.delete(kinds.NODES, "n1")
            await running.clock.sleep(1)
            assert "GPU-n1-0" not in (await running.page("/metrics"))[1]

    run_virtually(story())


def test_a_page_renders_the_cards_that_changed_and_nothing_when_nothing_did() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4), node("n2", cards=4)) as running:
            metrics, page = running.scheduler.metrics, running.scheduler.page
            first = await page.fresh()
            assert metrics.devices.rendered == 8
            await running.clock.sleep(100)
            assert await page.fresh() is first
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            await running.clock.sleep(1)
            second = await page.fresh()
            assert metrics.devices.rendered == 9
            assert b'podName="a"' in second
            await heartbeat(running)
            assert (await page.fresh()).count(b"\n") == second.count(b"\n")
            assert metrics.devices.rendered == 9

    run_virtually(story())


async def heartbeat(running: Daemon) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2027-01-01T00:00:00Z"}]}}
    await running.cluster.patch(kinds.NODES, "n1", body, subresource="status")
    await running.clock.sleep(1)


def test_rendering_gives_way_between_nodes() -> None:
    """A scrape after many changes must not keep a cycle waiting for the whole page."""
    async def story() -> None:
        async with daemon(*(node(f"n{i}", cards=1) for i in range(5))) as running:
            turns = [0]

            async def others() -> None:
                while True:
                    turns[0] += 1
                    await asyncio.sleep(0)

            other = asyncio.create_task(others())
            running.scheduler.page.slice_ = 0.0
            await running.scheduler.page.fresh()
            other.cancel()
            assert turns[0] >= 5

    run_virtually(story())


def test_what_changes_while_a_page_is_made_is_in_the_next_one() -> None:
    async def story() -> None:
        async with daemon(*(node(f"n{i}", cards=1) for i in range(5)), conf=WITH_DRF) as running:
            served = running.scheduler.page
            served.slice_ = 0.0
            await create(running.cluster, group("old", minimum=1), pod("a", mib=1000, group="old"))
            await running.bind_all("a")
            making = asyncio.create_task(served.fresh())
            while not making.done():
                moved = running.scheduler.informers.changes
                await running.cluster.patch(volcano.POD_GROUPS, "old", {"metadata": {"labels": {"n": str(moved)}}}, "default")
                await asyncio.sleep(0)
            await running.cluster.delete(volcano.POD_GROUPS, "old", "default")
            await running.cluster.delete(kinds.PODS, "a", "default", grace=0)
            await running.clock.sleep(1)
            page = (await served.fresh()).decode()
            assert "default/old" not in page
            assert await served.fresh() == page.encode()

    run_virtually(story())


def test_jobs_that_are_gone_take_no_room_even_when_nobody_asks_for_the_page() -> None:
    world = World()
    metrics = SchedulerMetrics(world.engine)
    world.add(group("stays", minimum=2))
    for i in range(5000):
        metrics.jobs.tried(["default/stays", f"default/gone-{i}"])
    assert len(metrics.jobs.retries) <= 1003
    assert metrics.jobs.retries["default/stays"] == 5000
