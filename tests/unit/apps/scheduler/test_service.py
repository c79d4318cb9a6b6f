"""The daemon as a service: its pages, its stop, and what a slow or failing API server does to it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import group, node, pod
from kit.scheduler_daemon import CONF, Daemon, create, daemon
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli.daemon import JsonFormatter
from pumice.effects.vocabulary import PodCondition
from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano
from pumice.wire.names import QUEUE_GATE


def hold_back(running: Daemon, wanted: Any) -> asyncio.Event:
    """Requests for which ``wanted(verb, path)`` holds wait for the event: they neither fail nor end."""
    released, request = asyncio.Event(), running.cluster.request

    async def slow(verb: str, path: str, **options: Any) -> bytes:
        if wanted(verb, path):
            await released.wait()
        return await request(verb, path, **options)

    running.cluster.request = slow  # type: ignore[method-assign]
    return released


async def prepared() -> tuple[FaultyCluster, VirtualClock]:
    """A cluster with one node and the configuration, without a scheduler."""
    clock = VirtualClock()
    cluster = await faulty_cluster(clock)
    body = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": CONF}}
    await cluster.create(kinds.CONFIGMAPS, body, "volcano-system")
    await cluster.put_node(node("n1", cards=1))
    return cluster, clock


def test_readyz_names_the_lists_that_are_missing_and_healthz_is_well_all_the_time() -> None:
    async def story() -> None:
        cluster, clock = await prepared()
        await create(cluster, pod("a", mib=1000))
        cluster.fault = lambda verb, path: (
            ApiError(500, "InternalError", "later") if path.endswith(("/nodes", "/queues")) else None
        )
        running = Daemon(cluster, clock)
        await clock.sleep(30)
        assert await running.page("/readyz") == (503, "waiting for: nodes, queues")
        assert await running.page("/healthz") == (200, "ok")
        assert not await running.bound("a"), "no decision before the cache is complete"
        cluster.fault = lambda verb, path: None
        await running.bind_all("a")
        assert await running.page("/readyz") == (200, "ok")
        await running.close()

    run_virtually(story())


class Line:
    """The line to an API server: while ``down``, requests fail and the watches that were open have ended with an error."""

    def __init__(self, cluster: FaultyCluster) -> None:
        self.down = asyncio.Event()
        self.requested: Counter[str] = Counter()
        self._stream = cluster.stream
        cluster.fault = self._fault  # type: ignore[method-assign]
        cluster.stream = self._open  # type: ignore[method-assign]

    def _fault(self, verb: str, path: str) -> ApiError | None:
        self.requested[path] += self.down.is_set()
        return ApiError(0, "Unreachable", "connection refused") if self.down.is_set() else None

    async def _open(self, path: str, params: Any, *, idle: float) -> Any:
        if (error := self._fault("GET", path)) is not None:
            raise error
        answer = await self._stream(path, params, idle=idle)
        return SimpleNamespace(content=SimpleNamespace(iter_any=lambda: self._until_down(answer)), close=answer.close)

    async def _until_down(self, answer: Any) -> AsyncIterator[bytes]:
        chunks, cut = answer.content.iter_any(), asyncio.ensure_future(self.down.wait())
        while True:
            chunk = asyncio.ensure_future(anext(chunks))
            await asyncio.wait({chunk, cut}, return_when=asyncio.FIRST_COMPLETED)
            if cut.done():
                chunk.cancel()
                await asyncio.gather(chunk, return_exceptions=True)
                raise aiohttp.ClientPayloadError("connection reset")
            yield chunk.result()


def test_an_api_server_that_is_away_is_asked_less_and_less_often_and_found_again() -> None:
    async def story() -> None:
        cluster, clock = await prepared()
        line = Line(cluster)
        running = Daemon(cluster, clock)
        await asyncio.wait_for(running.ready.wait(), 5)
        line.down.set()
        await clock.sleep(300)
        assert len(line.requested) >= 8, "every watch was cut"
        assert 40 <= max(line.requested.values()) <= 130, "at most once in 2.5 s per kind, on average"
        line.down.clear()
        await create(cluster, pod("a", mib=1000))
        await running.until(lambda: running.bound("a"), 10)
        await running.close()

    run_virtually(story())


def test_who_waits_hears_of_new_and_lost_nodes_that_do_not_help_at_most_twice_a_minute() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await create(running.cluster, pod("big", mib=9000))
            await running.clock.sleep(1)
            assert (await running.condition("big")).startswith("0/1 nodes")
            for i in range(20):
                await running.cluster.put_node(node(f"x{i}", cards=1))
                await running.clock.sleep(0.5)
            writes = running.cluster.requests["PATCH"]
            await running.clock.sleep(60)
            assert (await running.condition("big")).startswith("0/21 nodes")
            await running.clock.sleep(600)
            assert running.cluster.requests["PATCH"] - writes <= 2
            for i in range(20):
                await running.cluster.delete(kinds.NODES, f"x{i}")
            await running.clock.sleep(60)
            assert (await running.condition("big")).startswith("0/1 nodes")

    run_virtually(story())


def test_status_writes_that_are_never_answered_keep_no_binding_waiting() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            released = hold_back(running, lambda verb, path: verb == "PATCH" or path.endswith("/events"))
            await create(running.cluster, *(pod(f"big-{i}", mib=9000) for i in range(50)))
            await running.clock.sleep(2)
            began = running.clock.monotonic()
            await create(running.cluster, *(pod(f"p{i}", mib=1000) for i in range(20)))
            await running.bind_all(*(f"p{i}" for i in range(20)))
            assert running.clock.monotonic() - began < 1
            assert running.scheduler.writer.backlog > 0
            released.set()
            await running.clock.sleep(5)
            assert running.scheduler.writer.backlog == 0
            assert "0/1 nodes are unavailable" in await running.condition("big-49")

    run_virtually(story())


def test_the_gate_of_a_pod_that_its_queue_lets_in_is_taken_off_and_tried_again_where_that_is_refused() -> None:
    async def story() -> None:
        refusals = 1

        def fault(verb: str, path: str) -> ApiError | None:
            nonlocal refusals
            if verb == "PATCH" and path.endswith("/pods/a") and refusals:
                refusals -= 1
                return ApiError(403, "Forbidden", "not today")
            return None

        async with daemon(node("n1", cpu="8"), fault=fault) as running:
            asking: dict[str, Any] = {"annotations": {QUEUE_GATE: "true"}, "schedulingGates": [{"name": QUEUE_GATE}]}
            await create(running.cluster, pod("a", cpu="1", **asking))
            await running.bind_all("a")
            assert not refusals
            assert not (await running.cluster.pods())["a"]["spec"].get("schedulingGates")

    run_virtually(story())


def test_one_beside_another_scheduler_leaves_it_to_that_to_say_how_queues_stand() -> None:
    async def story() -> None:
        async with daemon(node("n1", cpu="8")) as running:
            beside = Settings(scheduler_names=("default-scheduler",), configmap="", group_writes=False)
            other = Daemon(running.cluster, running.clock, beside, seed=2)
            for made in (pod("ours", cpu="1"), pod("theirs", cpu="2", scheduler="default-scheduler")):
                await create(running.cluster, made)
                await running.bind_all(made["metadata"]["name"])
                await running.clock.sleep(5)
            queue = await running.cluster.get(volcano.QUEUES, "default")
            assert queue["status"]["allocated"]["cpu"] == "1"
            await create(running.cluster, pod("large", cpu="9", scheduler="default-scheduler"))
            await running.clock.sleep(5)
            assert "Insufficient cpu" in await running.condition("large"), "of its pods it speaks"
            await other.close()

    run_virtually(story())


def test_of_many_changes_only_the_last_is_written() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await create(running.cluster, pod("big", mib=9000))
            await running.clock.sleep(1)
            released = hold_back(running, lambda verb, path: verb == "PATCH" and "/pods/" in path)
            writes = running.cluster.requests["PATCH"]
            uid = (await running.cluster.pods())["big"]["metadata"]["uid"]
            for i in range(20):
                running.scheduler.writer.put(PodCondition(uid, "default", "big", "Unschedulable", f"reason {i}"))
                await running.clock.sleep(1)
            released.set()
            await running.clock.sleep(5)
            assert running.cluster.requests["PATCH"] - writes == 2, "the one on its way and the last"
            assert await running.condition("big") == "reason 19"

    run_virtually(story())


def test_a_refusal_that_is_written_late_does_not_cover_a_binding() -> None:
    """The condition's write fails, the pod is bound, the write is tried again: it must not say that the pod waits."""

    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            running.cluster.fault = lambda verb, path: (
                ApiError(500, "InternalError", "not now") if verb == "PATCH" and "/pods/" in path else None
            )
            await create(running.cluster, pod("a", mib=9000))
            await running.clock.sleep(0.5)
            running.cluster.fault = lambda verb, path: None
            await running.cluster.put_node(node("n2", cards=1, mib=10000))
            await running.bind_all("a")
            await running.clock.sleep(20)
            (condition,) = (await running.cluster.pods())["a"]["status"]["conditions"]
            assert condition["status"] == "True"

    run_virtually(story())


def test_a_stop_waits_for_the_bindings_on_their_way_and_starts_none() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            released = hold_back(running, lambda verb, path: path.endswith("/binding"))
            await create(running.cluster, *(pod(f"p{i}", mib=1000) for i in range(4)))
            await running.clock.sleep(1)
            assert running.scheduler.binder.in_flight == 4
            running.stop.set()
            await create(running.cluster, pod("late", mib=1000))
            await running.clock.sleep(1)
            assert not running.task.done()
            released.set()
            await running.clock.sleep(0.5)
            assert running.task.done()
            assert await running.bound("p0", "p1", "p2", "p3")
            assert len(await running.events("Scheduled")) == 4
            assert not await running.bound("late")
            await running.audit()

    run_virtually(story())


def test_a_stop_does_not_wait_for_ever() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            hold_back(running, lambda verb, path: path.endswith("/binding"))
            await create(running.cluster, pod("a", mib=1000))
            await running.clock.sleep(1)
            began = running.clock.monotonic()
            running.stop.set()
            await running.task
            assert running.clock.monotonic() - began < 10

    run_virtually(story())


def test_status_waits_for_company_and_no_pod_waits_with_it() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=8)) as running:
            cluster, clock, engine = running.cluster, running.clock, running.scheduler.engine
            cycles, binding, delays = [0], asyncio.Event(), []
            cycle, bind = engine.cycle, cluster.bind

            def counted(*arguments: Any, **options: Any) -> Any:
                cycles[0] += 1
                return cycle(*arguments, **options)

            async def noticed(*arguments: Any) -> None:
                binding.set()
                await bind(*arguments)

            engine.cycle = counted  # type: ignore[method-assign]
            cluster.bind = noticed  # type: ignore[method-assign]
            for i in range(20):
                binding.clear()
                began = clock.monotonic()
                await create(cluster, pod(f"p{i}", mib=1000))
                await binding.wait()
                delays.append(clock.monotonic() - began)
                await clock.sleep(0.02)  # its echoes are status, and would be written in a cycle of their own
            assert cycles[0] <= 22
            assert max(delays) <= 2 * Settings().window + 1e-6

    run_virtually(story())


def test_what_a_stop_did_not_wait_for_is_not_sent_afterwards() -> None:
    """The lease is given back: whoever leads next may place others there."""

    async def story() -> None:
        async with daemon(node("n1", cards=4), settings=Settings(bind_concurrency=1)) as running:
            released = hold_back(running, lambda verb, path: path.endswith("/binding"))
            await create(running.cluster, *(pod(f"p{i}", mib=1000) for i in range(4)))
            await running.clock.sleep(1)
            running.stop.set()
            await running.task
            released.set()
            await running.clock.sleep(10)
            pods = (await running.cluster.pods()).values()
            assert not [p for p in pods if p["spec"].get("nodeName")]

    run_virtually(story())


def test_a_gang_does_not_wait_as_long_for_one_answer_as_a_request_may_last() -> None:
    """Neither for a half-open connection nor for a server that asks for patience."""

    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            hold_back(running, lambda verb, path: path.endswith("/g-1/binding"))
            members = [pod(f"g-{i}", mib=1000, group="g", owner="g") for i in range(4)]
            await create(running.cluster, group("g", minimum=4), *members)
            await running.clock.sleep(1)
            assert await running.bound("g-0", "g-2", "g-3")
            await running.clock.sleep(29)
            pods = (await running.cluster.pods()).values()
            standing = [p for p in pods if p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")]
            assert not standing

    run_virtually(story())


def test_an_error_of_our_own_in_a_binding_keeps_no_pod_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            bind, broken = running.cluster.bind, [True]

            async def once(namespace: str, name: str, body: bytes) -> None:
                if broken.pop() if broken else False:
                    raise KeyError("a mistake of ours")
                await bind(namespace, name, body)

            running.cluster.bind = once  # type: ignore[method-assign]
            await create(running.cluster, pod("a", mib=8000))
            await running.bind_all("a")
            await running.audit()

    with caplog.at_level(logging.ERROR):
        run_virtually(story())
    assert "binding failed pod=default/a" in caplog.text


def test_a_log_line_in_json_is_one_object() -> None:
    try:
        raise ValueError('a "quoted"\nword')
    except ValueError as error:
        caught = (type(error), error, error.__traceback__)
    record = logging.LogRecord("pumice.scheduler", logging.WARNING, "f", 1, "object set aside kind=%s", ("pods",), caught)
    record.created = 1_800_000_000.25
    line = JsonFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["time"] == "2027-01-15T08:00:00.250Z", "whatever zone the machine is in"
    assert (entry["level"], entry["logger"], entry["message"]) == ("warning", "pumice.scheduler", "object set aside kind=pods")
    assert 'a "quoted"\nword' in entry["error"]


@pytest.mark.parametrize("code", [409, 410, 429, 500, 0])
def test_a_status_write_that_is_refused_is_tried_again(code: int) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            left = [3]

            def fault(verb: str, path: str) -> ApiError | None:
                if verb == "PATCH" and "/pods/" in path and left[0]:
                    left[0] -= 1
                    return ApiError(code, "Refused", "not now", retry_after=1.0)
                return None

            running.cluster.fault = fault
            await create(running.cluster, pod("big", mib=9000))
            await running.clock.sleep(10)
            assert "Insufficient" in await running.condition("big")
            assert not left[0]

    run_virtually(story())
