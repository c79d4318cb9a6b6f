"""The scheduler daemon on the embedded API server, in virtual time, with faults."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kit.faulty_cluster import faulty_cluster
from kit.objects import group, node, pod
from kit.scheduler_daemon import CONF, Daemon, create, daemon, lost_answer, write_conf
from kit.virtual_time import VirtualClock, run_virtually

from pumice.ports.cluster import ApiError
from pumice.wire import kinds


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


def test_a_binding_whose_answer_was_lost_is_believed_when_the_pod_is_bound() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            running.cluster.fault = lost_answer
            await create(running.cluster, pod("a", mib=4000))
            await running.bind_all("a")
            running.cluster.fault = lambda verb, path: None
            await running.clock.sleep(2)
            assert len(running.scheduler.engine.state.ledger.placements) == 1
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
            members = [pod(f"g-{i}", mib=8000, group="g", owner="g") for i in range(8)]
            await create(running.cluster, group("g", minimum=8), *members)
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
        await cluster.create(kinds.CONFIGMAPS, body, "volcano-system")
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


@pytest.mark.parametrize("code", [0, 403, 500, 503])
def test_a_default_queue_that_cannot_be_made_is_told_and_tried_until_it_can(code: int, caplog: pytest.LogCaptureFixture) -> None:
    tries: list[str] = []
    refused = [True]

    def fault(verb: str, path: str) -> ApiError | None:
        if verb == "POST" and path.endswith("/queues") and refused[0]:
            tries.append(path)
            return ApiError(code, "Refused", "no queues today")
        return None

    async def story() -> None:
        async with daemon(node("n1"), fault=fault) as running:
            await create(running.cluster, pod("a", cpu="1"))
            await running.clock.sleep(3)
            assert "queue default does not exist and cannot be created: no queues today" in await running.condition("a")
            await running.clock.sleep(600)
            assert 30 < len(tries) < 100
            refused[0] = False
            await running.clock.sleep(40)
            assert await running.bound("a")

    with caplog.at_level(logging.WARNING):
        run_virtually(story())
    reported = [record.getMessage() for record in caplog.records if "cannot create queue=default" in record.getMessage()]
    assert 4 < len(reported) < 12


def test_without_volcanos_kinds_bare_pods_are_scheduled_all_the_same() -> None:
    async def story() -> None:
        async with daemon(node("n1"), volcano_kinds=False) as running:
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
            await running.cluster.delete(kinds.PODS, "a", "default", grace=0)
            await create(running.cluster, pod("b", mib=8000))
            await running.clock.sleep(1)
            broken[0] = False
            await running.bind_all("b")
            await running.audit()

    run_virtually(story())


def test_what_is_ignored_of_an_object_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with daemon(node("n1")) as running:
            await create(running.cluster, group("g", minimum=1, priority_class="vanished"), pod("a", cpu="1", group="g"))
            await running.bind_all("a")
            await create(running.cluster, pod("b", cpu="1"))
            await running.bind_all("b")

    with caplog.at_level("WARNING", "pumice.scheduler"):
        run_virtually(story())
    said = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert said == ["ignored object=PodGroup default/g cause=priority class 'vanished' does not exist; 0 is used"]
