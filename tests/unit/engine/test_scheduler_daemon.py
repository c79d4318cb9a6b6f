"""The scheduler daemon on the embedded API server, in virtual time, with faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.auditor import audit
from tests.kit.faulty_cluster import FaultyCluster, faulty_cluster
from tests.kit.objects import group, node, pod
from tests.kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler import Scheduler, Settings
from pumice.ports.cluster import ApiError
from pumice.wire import volcano

CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
      deviceshare.SchedulePolicy: binpack
  - name: proportion
"""


class Daemon:
    """A cluster with a running scheduler."""

    def __init__(self, cluster: FaultyCluster, clock: VirtualClock) -> None:
        self.cluster, self.clock = cluster, clock
        self.stop, self.ready = asyncio.Event(), asyncio.Event()
        self.scheduler = Scheduler(Settings(listen="127.0.0.1:0"), cluster, clock, random.Random(1), self.stop, self.ready)
        self.task = asyncio.create_task(self.scheduler.run())

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
        end = self.clock.monotonic() + seconds
        while not await holds():
            assert self.clock.monotonic() < end, await self.cluster.pods()
            if self.task.done():
                self.task.result()
            await self.clock.sleep(0.05)

    async def bound(self, *names: str) -> bool:
        pods = await self.cluster.pods()
        return all(pods[name]["spec"].get("nodeName") for name in names)

    async def bind_all(self, *names: str) -> None:
        async def holds() -> bool:
            return await self.bound(*names)

        await self.until(holds)

    async def audit(self) -> None:
        nodes = (await self.cluster.list(volcano.NODES))["items"]
        assert audit(nodes, (await self.cluster.pods()).values()) == []

    async def events(self, reason: str) -> list[str]:
        return [e["message"] for e in (await self.cluster.list(volcano.EVENTS))["items"] if e["reason"] == reason]

    async def close(self) -> None:
        self.stop.set()
        await self.task


@asynccontextmanager
async def daemon(*objects: dict[str, Any], conf: str | None = CONF, kinds: bool = True) -> AsyncIterator[Daemon]:
    clock = VirtualClock()
    cluster = await faulty_cluster(clock, volcano_kinds=kinds)
    if conf is not None:
        data = {"volcano-scheduler.conf": conf}
        body = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": data}
        await cluster.create(volcano.CONFIGMAPS, body, "volcano-system")
    for obj in objects:
        await cluster.put_node(obj)
    running = Daemon(cluster, clock)
    await running.until(lambda: _is_set(running.ready))
    try:
        yield running
    finally:
        await running.close()


async def _is_set(event: asyncio.Event) -> bool:
    return event.is_set()


async def create(cluster: FaultyCluster, *objects: dict[str, Any]) -> None:
    for obj in objects:
        body = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k not in ("uid", "creationTimestamp")}}
        body.pop("status", None)
        kind = volcano.POD_GROUPS if obj["kind"] == "PodGroup" else volcano.PODS
        await cluster.create(kind, body, obj["metadata"].get("namespace", ""))


def test_a_bare_pod_is_bound_with_its_decision_in_the_same_write() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2)) as running:
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            found = (await running.cluster.pods())["a"]
            assert found["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].startswith("GPU-n1-0,NVIDIA,4000,0:")
            await running.clock.sleep(1)
            assert await running.events("Scheduled") == ["Successfully assigned default/a to n1"]

    run_virtually(story())


def test_a_pod_that_does_not_fit_is_told_why_once() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1, mib=8000)) as running:
            await create(running.cluster, pod("big", mib=9000, cpu="1"))
            await running.clock.sleep(5)
            (condition,) = (await running.cluster.pods())["big"]["status"]["conditions"]
            assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
            assert condition["message"].startswith("0/1 nodes are unavailable: 1 Insufficient volcano.sh/vgpu-memory")
            assert await running.events("FailedScheduling") == [condition["message"]]
            writes = dict(running.cluster.requests)
            await running.clock.sleep(300)
            assert {verb: running.cluster.requests[verb] for verb in ("POST", "PATCH")} == {
                verb: writes[verb] for verb in ("POST", "PATCH")
            }

    run_virtually(story())


def lost_answer(verb: str, path: str) -> Any:
    return (ApiError(0, "Timeout", "no answer"), True) if path.endswith("/binding") else None


def test_a_binding_whose_answer_was_lost_is_believed_when_the_pod_is_bound() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            running.cluster.fault = lost_answer
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            running.cluster.fault = lambda verb, path: None
            await create(running.cluster, pod("b", mib=4000))
            await running.bind_all("b")
            await running.clock.sleep(1)
            await running.audit()
            assert await running.events("FailedScheduling") == []

    run_virtually(story())


@pytest.mark.parametrize("code", [409, 429, 500, 503])
def test_a_refused_binding_is_reported_and_tried_again(code: int) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            left = [2]

            def fault(verb: str, path: str) -> ApiError | None:
                if path.endswith("/binding") and left[0]:
                    left[0] -= 1
                    return ApiError(code, "Refused", "not now")
                return None

            running.cluster.fault = fault
            await create(running.cluster, pod("a", mib=8000))
            await running.bind_all("a")
            await running.clock.sleep(1)
            assert "failed to bind to node n1: not now" in await running.events("FailedScheduling")
            await running.audit()

    run_virtually(story())


@pytest.mark.parametrize("every", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("forever", [False, True], ids=["for a while", "for ever"])
def test_a_gang_is_bound_whole_or_evicted_whole(every: int, forever: bool) -> None:
    """Faults after every k-th Binding of 8: within 10 s all are bound, or the bound ones are evicted with an event."""

    async def story() -> None:
        async with daemon(node("n1", cards=8), node("n2", cards=8)) as running:
            count, marked = [0], set()

            def fault(verb: str, path: str) -> ApiError | None:
                if not path.endswith("/binding"):
                    return None
                count[0] += 1
                if count[0] % every == 0:
                    marked.add(path)
                if path in marked and (forever or running.clock.monotonic() < started + 2):
                    return ApiError(500, "InternalError", "injected")
                return None

            started = running.clock.monotonic()
            running.cluster.fault = fault
            await create(running.cluster, group("g", minimum=8), *(pod(f"g-{i}", mib=8000, group="g") for i in range(8)))
            await running.clock.sleep(10)
            pods = await running.cluster.pods()
            standing = [p for p in pods.values() if p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")]
            assert len(standing) in (0, 8)
            if not forever:
                assert len(standing) == 8
            elif every > 1:
                assert any("could not be bound as a whole" in text for text in await running.events("Evict"))
            await running.audit()

    run_virtually(story())


def test_no_decision_is_made_before_every_list_is_complete() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        await cluster.put_node(node("n1", cards=1))
        taken = pod("taken", mib=8000, nodeName="n1", annotations={
            "volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,8000,0:", "volcano.sh/vgpu-node": "n1"})  # fmt: skip
        await create(cluster, taken, pod("new", mib=8000))
        body = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": CONF}}
        await cluster.create(volcano.CONFIGMAPS, body, "volcano-system")
        cluster.fault = lambda verb, path: (
            ApiError(500, "InternalError", "later") if path == "/api/v1/pods" and clock.monotonic() < 5 else None
        )
        running = Daemon(cluster, clock)
        await clock.sleep(3)
        assert not running.ready.is_set()
        await clock.sleep(10)
        assert running.ready.is_set()
        assert not await running.bound("new")
        await running.close()

    run_virtually(story())


def test_the_configuration_follows_its_configmap_and_a_broken_one_changes_nothing() -> None:
    async def story() -> None:
        async with daemon(node("n1", cpu="4"), conf=CONF.replace(", backfill", "")) as running:
            await create(running.cluster, pod("idle"))
            await running.clock.sleep(3)
            assert not await running.bound("idle")
            for broken in ("{", 'actions: "enqueue, fly"', "tiers: 3"):
                await write_conf(running, broken)
                await running.clock.sleep(2)
                assert running.scheduler.engine.conf.actions == ("enqueue", "allocate")
            assert running.scheduler.configuration.refused == 3
            await write_conf(running, CONF)
            await running.bind_all("idle")

    run_virtually(story())


async def write_conf(running: Daemon, text: str) -> None:
    body = {"data": {"volcano-scheduler.conf": text}}
    await running.cluster.patch(volcano.CONFIGMAPS, "volcano-scheduler-configmap", body, "volcano-system")


def test_without_volcanos_kinds_bare_pods_are_scheduled_all_the_same() -> None:
    async def story() -> None:
        async with daemon(node("n1"), kinds=False) as running:
            await create(running.cluster, pod("a", cpu="1"))
            await running.bind_all("a")

    run_virtually(story())


def test_a_forgotten_resource_version_makes_a_relist_and_nothing_is_lost() -> None:
    """410 on the watch: what happened meanwhile is found by the list."""

    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await create(running.cluster, pod("a", mib=8000))
            await running.bind_all("a")
            broken = [True]
            stream = running.cluster.stream

            async def refuse(path: str, params: Any, *, idle: float) -> Any:
                if broken[0]:
                    raise ApiError(410, "Expired", "too old resource version")
                return await stream(path, params, idle=idle)

            running.cluster.stream = refuse  # type: ignore[method-assign]
            await running.cluster.delete(volcano.PODS, "a", "default", grace=0)
            await create(running.cluster, pod("b", mib=8000))
            await running.clock.sleep(1)
            broken[0] = False
            await running.bind_all("b")
            await running.audit()

    run_virtually(story())


def test_the_page_of_metrics_has_the_names_of_the_specification() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2)) as running:
            await create(running.cluster, pod("a", mib=4000, cores=30))
            await running.bind_all("a")
            await running.clock.sleep(1)
            page = running.scheduler.metrics.page().decode()
            for line in (
                'volcano_vgpu_device_allocated_memory{devID="GPU-n1-0",NodeName="n1"} 4000',
                'volcano_vgpu_device_memory_limit{devID="GPU-n1-1",NodeName="n1"} 8000',
                'volcano_vgpu_device_core_allocation_for_a_certain_pod{devID="GPU-n1-0",NodeName="n1",podName="a"} 30',
                'volcano_schedule_attempts_total{result="scheduled"} 1',
                'volcano_queue_weight{queue_name="default"} 1',
            ):
                assert line in page
            for name in ("e2e_scheduling_latency_milliseconds", "action_scheduling_latency_milliseconds",
                         "plugin_scheduling_latency_milliseconds", "unschedule_task_count", "job_share"):  # fmt: skip
                assert f"# TYPE volcano_{name} " in page
            await running.cluster.delete(volcano.PODS, "a", "default", grace=0)
            await running.clock.sleep(1)
            assert 'podName="a"' not in running.scheduler.metrics.page().decode()

    run_virtually(story())


GAUGES = """e2e_job_scheduling_duration e2e_job_scheduling_start_time e2e_job_scheduling_last_time pod_preemption_victims
unschedule_task_count unschedule_job_count job_share queue_allocated_milli_cpu queue_allocated_memory_bytes
queue_allocated_scalar_resources queue_request_milli_cpu queue_deserved_milli_cpu queue_inqueue_milli_cpu queue_capacity_milli_cpu
queue_real_capacity_milli_cpu queue_share queue_weight queue_overused namespace_share namespace_weight namespace_weighted_share
vgpu_device_allocated_memory vgpu_device_allocated_cores vgpu_device_shared_number vgpu_device_memory_limit
vgpu_device_memory_allocation_for_a_certain_pod vgpu_device_core_allocation_for_a_certain_pod"""
COUNTERS = "schedule_attempts_total total_preemption_attempts eviction_transactions_total job_retry_counts"
HISTOGRAMS = {
    "e2e_scheduling_latency_milliseconds": (1, 5000, 20), "open_session_duration_milliseconds": (1, 5000, 20),
    "e2e_job_scheduling_latency_milliseconds": (100, 120000, 30), "plugin_scheduling_latency_milliseconds": (0.1, 100, 15),
    "action_scheduling_latency_milliseconds": (1, 2000, 20), "task_scheduling_latency_milliseconds": (50, 60000, 30),
    "scheduling_stage_duration_milliseconds": (0.1, 500, 20),
}  # fmt: skip


def test_every_metric_of_the_specification_has_its_name_type_and_edges() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2)) as running:
            await create(running.cluster, group("g", minimum=1), pod("a", mib=4000, group="g"))
            await running.bind_all("a")
            await running.clock.sleep(1)
            page = running.scheduler.metrics.page().decode()
            for kind, names in (("gauge", GAUGES), ("counter", COUNTERS), ("histogram", " ".join(HISTOGRAMS))):
                for name in names.split():
                    assert f"# TYPE volcano_{name} {kind}\n" in page, name
            for name, (low, high, count) in HISTOGRAMS.items():
                edges = [line.split('le="')[1].split('"')[0] for line in page.splitlines()
                         if line.startswith(f"volcano_{name}_bucket")][:count + 1]  # fmt: skip
                if edges:
                    assert (float(edges[0]), float(edges[count - 1]), edges[count]) == (
                        pytest.approx(low), pytest.approx(high), "+Inf")  # fmt: skip
            assert 'volcano_e2e_job_scheduling_last_time{job_name="g",queue="default",job_namespace="default"}' in page

    run_virtually(story())
