"""The core's acceptance list (), one story per line; what a line leaves out is told elsewhere.

| line | story here | more of it in |
|---|---|---|
| 1 bare pod | test_line_1 | test_pods_and_queues.py, unit/jobs/controllers/test_podgroups_and_queues.py |
| 2 too big | test_line_2 | unit/apps/scheduler/test_daemon.py |
| 3 gang of three, as a PodGroup | test_line_3 | test_gangs.py |
| 5 two queues 1:3 | test_line_5 | test_pods_and_queues.py, test_queue_rules.py |
| 6 configuration | test_line_6 | unit/wire/test_scheduler_conf.py |
| 7 scores | test_line_7 | unit/scheduler/plugins/test_node_scores.py |
| 8 best effort | test_line_8 | test_pods_and_queues.py |
| 9 preempt | test_line_9 | test_making_room.py, test_promised_places.py, property/test_making_room.py |
| 10 reclaim | test_line_10 | test_claiming_back.py, test_queue_trees.py, property/test_queues_that_claim.py |
| 11 queue closed and opened | test_line_11 | unit/jobs/controllers/test_podgroups_and_queues.py, contract/test_webhook.py |
| 13 restart amid Bindings | test_line_13 | test_gangs_over_the_binding.py |
| 14 Binding refused | test_line_14 | unit/apps/scheduler/test_daemon.py |
| 15 metrics | test_line_15 | unit/apps/scheduler/test_metrics_page.py |
| 16 status writes never block | test_line_16 | unit/apps/scheduler/test_service.py |

Lines 4 and 12 are told by the Job controller's own stories, test_jobs.py and contract/test_jobs.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kit.engine_world import World
from kit.fake_cluster import FakeCluster
from kit.job_world import JobWorld, job, job_world, task
from kit.objects import group, node, pod, queue
from kit.room_worlds import room_conf
from kit.scheduler_confs import conf, sharing
from kit.scheduler_daemon import CONF, create, daemon, write_conf
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Scheduler, Settings
from pumice.audit.auditor import audit
from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano
from pumice_jobs.admission.jobs import queue_problem
from pumice_jobs.apps.controller import daemon as controller


class Queues:
    """The admission's view of the cluster."""

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def queue(self, name: str) -> Any:
        return next((each for each in self._found if each["metadata"]["name"] == name), None)

    def queues(self) -> list[Any]:
        return self._found

    def namespace(self, name: str) -> None:
        return None


LINES = (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16)


@pytest.mark.parametrize("line", LINES)
def test_every_line_has_its_story(line: int) -> None:
    assert [name for name in globals() if re.match(rf"test_line_{line}_", name)]
    assert f"test_line_{line} |" in (__doc__ or "")


def test_line_1_a_bare_pod_gets_a_podgroup_is_bound_and_its_group_runs() -> None:
    async def story() -> None:
        async with daemon(node("n1")) as running:
            stop, ready = asyncio.Event(), asyncio.Event()
            beside = asyncio.create_task(controller.run(
                controller.Settings(listen="127.0.0.1:0"), cluster=running.cluster, clock=running.clock,
                rng=random.Random(2), stop=stop, ready=ready))  # fmt: skip
            await ready.wait()
            await create(running.cluster, pod("a", cpu="1"))
            await running.bind_all("a")
            await running.clock.sleep(2)
            (found,) = (await running.cluster.pods()).values()
            (made,) = (await running.cluster.list(volcano.POD_GROUPS))["items"]
            assert made["metadata"]["name"] == f"podgroup-{found['metadata']['uid']}"
            assert found["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == made["metadata"]["name"]
            assert await running.events("Scheduled") == ["Successfully assigned default/a to n1"]  # its group was born standing
            assert (made["spec"]["minMember"], made["status"]["phase"]) == (1, "Running")
            stop.set()
            await beside

    run_virtually(story())


def test_line_2_a_pod_too_big_is_told_so_once() -> None:
    async def story() -> None:
        async with daemon(node("n1", cpu="4"), node("n2", cpu="4")) as running:
            await create(running.cluster, pod("big", cpu="5"))
            await running.clock.sleep(3)
            text = "0/2 nodes are unavailable: 2 Insufficient cpu."
            (condition,) = (await running.cluster.pods())["big"]["status"]["conditions"]
            assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
            assert (condition["reason"], condition["message"]) == ("Unschedulable", text)
            assert await running.events("FailedScheduling") == [text]
            before = (await running.cluster.pods())["big"]["metadata"]["resourceVersion"]
            await running.clock.sleep(600)
            assert (await running.cluster.pods())["big"]["metadata"]["resourceVersion"] == before

    run_virtually(story())


def test_line_3_three_on_room_for_two_wait_and_are_bound_in_one_cycle_after_a_node_is_added() -> None:
    world = World()
    world.add(node("n1", cpu="2"), group("g", minimum=3), *(pod(f"g-{i}", cpu="1", group="g") for i in range(3)))
    world.settle()
    assert world.bindings == []
    (condition,) = world.groups["default/g"]["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Unschedulable", "True", "NotEnoughResources")
    assert re.match(r"\d/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable", condition["message"])
    world.add(node("n2", cpu="2"))
    world.cycle()
    assert len(world.bindings) == 3


@pytest.mark.parametrize("dimension", ["cpu", "volcano.sh/vgpu-memory"])
def test_line_5_two_queues_of_weight_one_and_three_share_one_to_three(dimension: str) -> None:
    """Of the dominant resource: the cards' memory, although both ask for cpu, too."""
    shape: dict[str, Any] = {"cpu": "1"} if dimension == "cpu" else {"cpu": "100m", "mib": 1000}
    world = World()
    world.add(node("n1", cpu="40", pods=1000, cards=8, mib=5000), queue("a", weight=1), queue("b", weight=3))
    for name in ("a", "b"):
        world.add(*(pod(f"{name}-{i}-x", queue=name, **shape) for i in range(60)))
    world.settle(10)
    assert [sum(bool(world.node_of(f"{name}-{i}-x")) for i in range(60)) for name in ("a", "b")] == [10, 30]


def test_line_6_a_short_configuration_works_and_the_configmap_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    short = conf("predicates", sharing("VGPU"), "no-such-plugin", actions="allocate")

    async def story() -> None:
        caplog.set_level("INFO")
        async with daemon(node("n1", cards=1), conf=short) as running:
            await create(running.cluster, pod("a", mib=4000), pod("idle"))
            await running.bind_all("a")
            assert "no-such-plugin" in caplog.text
            await write_conf(running, short.replace("allocate", "allocate, fly"))
            await running.clock.sleep(3)
            assert running.scheduler.engine.conf.actions == ("allocate",)
            assert not await running.bound("idle")
            await write_conf(running, CONF)
            await running.bind_all("idle")

    run_virtually(story())


def test_line_7_binpack_and_nodeorder_choose_by_their_formulas() -> None:
    """n1 holds 4 of 8 cpu, n2 nothing: binpack scores (4+1)/8 against 1/8, least requested 37 against 87."""
    for plugin, chosen in (("binpack", "n1"), ("nodeorder", "n2")):
        world = World(f'actions: "allocate"\ntiers:\n- plugins:\n  - name: predicates\n  - name: {plugin}\n')
        world.add(node("n1", cpu="8"), node("n2", cpu="8"), pod("there", cpu="4", nodeName="n1"), pod("a", cpu="1"))
        world.settle()
        assert world.node_of("a") == chosen


def test_line_8_best_effort_pods_are_placed_by_backfill_only() -> None:
    for actions, where in (("enqueue, allocate", ""), ("enqueue, allocate, backfill", "n1")):
        world = World(f'actions: "{actions}"\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n')
        world.add(node("n1"), pod("idle"))
        world.settle()
        assert world.node_of("idle") == where


def test_line_9_a_more_important_job_preempts_in_its_queue_and_neither_a_gangs_minimum_nor_the_system() -> None:
    """Six pods of priority 0 fill the node: a gang at its minimum, one with a pod to spare, the system's, another queue's."""
    world = World(room_conf("enqueue, allocate, preempt, backfill", spares_gangs="true"))
    world.add(node("n1", cpu="6"), queue("other"), group("gang", minimum=2), group("spare", minimum=1))
    world.add(*(pod(f"{name}-{i}", cpu="1", group=name) for name in ("gang", "spare") for i in range(2)))
    world.add(pod("kept", namespace="kube-system", cpu="1"), pod("elsewhere", cpu="1", queue="other"))
    world.settle()
    for obj in list(world.pods.values()):
        world.set_phase(obj["metadata"]["name"], "Running", obj["metadata"]["namespace"])
    world.add(*(pod(f"high-{i}", cpu="1", priority=10) for i in range(3)))
    world.settle(10)
    assert len(world.evictions) == 1
    assert world.evictions[0].name.startswith("spare")
    assert sum(bool(world.node_of(f"high-{i}")) for i in range(3)) == 1


def test_line_10_reclaim_gives_a_queue_its_share_back_unless_the_other_may_keep_what_it_has() -> None:
    for reclaimable in (True, False):
        plugins = "  - name: proportion\n"
        world = World(room_conf("enqueue, allocate, reclaim, backfill", spares_gangs="false", more=plugins))
        world.add(node("n1", cpu="8"), queue("a", weight=3), queue("b", weight=1, reclaimable=reclaimable))
        world.add(*(pod(f"b-{i}", cpu="1", queue="b") for i in range(8)))
        world.settle()
        for i in range(8):
            world.set_phase(f"b-{i}", "Running")
        world.add(*(pod(f"a-{i}", cpu="1", queue="a") for i in range(8)))
        world.settle(30)
        held = [sum(bool(world.node_of(name)) for name in world.placements() if name.startswith(queue)) for queue in "ab"]
        assert held == ([6, 2] if reclaimable else [0, 8])


def test_line_11_a_queue_closes_when_its_last_job_is_gone_refuses_new_ones_and_opens_again() -> None:
    async def state(world: JobWorld) -> str:
        return str((await world.hands.get(volcano.QUEUES, "night"))["status"]["state"])

    async def operate(world: JobWorld, action: str) -> None:
        uid = (await world.hands.get(volcano.QUEUES, "night"))["metadata"]["uid"]
        target = {"apiVersion": volcano.SCHEDULING_API, "kind": "Queue", "name": "night", "uid": uid}
        body = {"metadata": {"generateName": "night-"}, "action": action, "target": target}
        await world.hands.create(volcano.COMMANDS, body, "default")
        await world.rest()

    async def refusal(world: JobWorld) -> str:
        return queue_problem("night", Queues((await world.hands.list(volcano.QUEUES))["items"]))

    async def story() -> None:
        async with job_world() as world:
            await world.hands.create(volcano.QUEUES, {"metadata": {"name": "night"}, "spec": {"weight": 1}})
            await world.submit(job("j", task("main"), queue="night"))
            await world.start()
            await operate(world, "CloseQueue")
            assert await state(world) == "Closing"
            assert await refusal(world) == " can only submit job to queue with state `Open`, queue `night` status is `Closing`;"
            await world.end("j-main-0")
            assert (await world.phase("j"), await state(world)) == ("Completed", "Closed")
            assert "status is `Closed`;" in await refusal(world)
            await operate(world, "OpenQueue")
            assert (await state(world), await refusal(world)) == ("Open", "")

    run_virtually(story())


def test_line_13_a_scheduler_that_dies_while_pods_are_binding_uses_nothing_twice_and_loses_no_pod() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            lost = ApiError(0, "Timeout", "no answer")  # of p0 and p2 the Binding is done all the same
            running.cluster.fault = lambda verb, path: (
                (lost, "/p0/" in path or "/p2/" in path) if path.endswith("/binding") else None)  # fmt: skip
            await create(running.cluster, *(pod(f"p{i}", mib=5000) for i in range(4)))
            await running.clock.sleep(0.2)
            await running.die()
            running.cluster.fault = lambda verb, path: None
            heir = running.heir(seed=3)
            await heir.bind_all(*(f"p{i}" for i in range(4)))
            await heir.audit()

    run_virtually(story())


@pytest.mark.parametrize("code", [409, 500])
def test_line_14_a_refused_binding_frees_its_devices_and_is_tried_again_with_back_off(code: int) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            times: list[float] = []

            def fault(verb: str, path: str) -> ApiError | None:
                if not path.endswith("/a/binding") or len(times) >= 5:
                    return None
                times.append(running.clock.monotonic())
                return ApiError(code, "Refused", "not now")

            running.cluster.fault = fault
            await create(running.cluster, pod("a", mib=8000))
            await running.clock.sleep(0.3)
            found = (await running.cluster.pods())["a"]["status"]["conditions"][0]
            assert (found["reason"], found["message"]) == ("SchedulerError", "failed to bind to node n1: not now")
            await create(running.cluster, pod("b", mib=4000))  # takes the card that the refusal gave back
            await running.bind_all("b")
            await running.cluster.delete(kinds.PODS, "b", "default", grace=0)
            await running.bind_all("a")
            gaps = [later - earlier for earlier, later in pairwise(times)]
            assert gaps == sorted(gaps)
            await running.audit()

    run_virtually(story())


def test_line_15_series_of_the_metrics_page_come_and_go_with_their_objects() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=1)) as running:
            await create(running.cluster, group("g", minimum=1), pod("a", mib=4000, group="g"))
            await running.bind_all("a")
            await running.clock.sleep(1)
            status, page = await running.page("/metrics")
            assert status == 200
            for series in ('volcano_vgpu_device_allocated_memory{devID="GPU-n1-0",NodeName="n1"} 4000', 'job_name="g"',
                           'podName="a"', 'volcano_schedule_attempts_total{result="scheduled"} 1'):  # fmt: skip
                assert series in page
            await running.cluster.delete(kinds.PODS, "a", "default", grace=0)
            await running.cluster.delete(volcano.POD_GROUPS, "g", "default")
            await running.cluster.delete(kinds.NODES, "n1")
            await running.clock.sleep(2)
            _, page = await running.page("/metrics")
            assert [word for word in ('NodeName="n1"', 'job_name="g"', 'podName="a"') if word in page] == []

    run_virtually(story())


def test_line_16_ten_thousand_pods_in_gangs_do_not_wait_for_status_writes_that_nobody_answers(tmp_path: Path) -> None:
    """1,000 nodes, 1,250 gangs of eight, 250 of which can never fit; every write but a Binding hangs for an hour."""
    nodes = [node(f"n{i}", cards=8) for i in range(1000)]
    pods = [pod(f"g{g}-{i}", mib=9000 if g % 5 == 0 else 8000, group=f"g{g}") for g in range(1250) for i in range(8)]

    async def story() -> None:
        clock = VirtualClock()
        cluster, begun, done = FakeCluster(clock=clock), [], []

        async def nobody_answers(verb: str, path: str) -> None:
            if verb not in ("GET", "WATCH") and not path.endswith(("/binding", "/queues")):
                begun.append(path)
                await clock.sleep(3600)
                done.append(path)

        cluster.gate = nobody_answers
        cluster.put(*nodes)
        stop, ready = asyncio.Event(), asyncio.Event()
        (tmp_path / "conf").write_text(CONF)
        settings = Settings(listen="127.0.0.1:0", conf=tmp_path / "conf", volumes=False)
        scheduler = Scheduler(settings, cluster, clock, random.Random(1), stop, ready)
        running = asyncio.create_task(scheduler.run())
        await ready.wait()
        cluster.put(*(group(f"g{g}", minimum=8) for g in range(1250)), *pods)
        began = clock.monotonic()
        for _ in range(400):
            await clock.sleep(0.05)
            if len(cluster.bound_at) >= 8000:
                break
        assert len(cluster.bound_at) == 8000
        assert max(cluster.bound_at.values()) - began < 10
        assert begun
        assert done == []
        assert audit(nodes, cluster.all("pods"), [group(f"g{g}", minimum=8) for g in range(1250)]) == []
        stop.set()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    run_virtually(story())


def test_the_table_names_tests_that_are_there() -> None:
    tests = Path(__file__).parents[1]
    named = re.findall(r"[\w/]+\.py", __doc__)
    assert len(named) > 10
    assert [name for name in named if not (tests / name).is_file() and not (tests / "scenarios" / name).is_file()] == []
