"""The controller as a service: who leads, and what one bad object or one failing write does to the rest."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import group, node, pod, queue
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import VirtualClock, run_virtually

from pumice.effects.work_queue import WorkQueue
from pumice.ports.cluster import ApiError, WatchEvent
from pumice.wire import kinds, volcano
from pumice.wire.names import CONTROLLER_NAME
from pumice_jobs.apps.controller.daemon import Controller, Settings, Watch


class Running:
    def __init__(self, cluster: FaultyCluster, clock: VirtualClock, seed: int, *, elect: bool = True) -> None:
        self.stop, self.ready = asyncio.Event(), asyncio.Event()
        settings = Settings(listen="127.0.0.1:0", leader_elect=elect)
        self.controller = Controller(settings, cluster, clock, random.Random(seed), self.stop, self.ready)
        self.task = asyncio.create_task(self.controller.run())

    async def close(self) -> None:
        self.stop.set()
        await self.task


async def groups(cluster: FaultyCluster) -> int:
    return len((await cluster.list(volcano.POD_GROUPS))["items"])


def test_a_controller_that_stops_hands_its_lease_over_at_once() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        first = Running(cluster, clock, 1)
        await asyncio.wait_for(first.ready.wait(), 10)
        second = Running(cluster, clock, 2)
        await clock.sleep(30)
        assert not second.ready.is_set()
        await first.close()
        await asyncio.wait_for(second.ready.wait(), 3)
        await create(cluster, pod("a", cpu="1"))
        await clock.sleep(2)
        assert await groups(cluster) == 1
        await second.close()
        assert not (await cluster.get(kinds.LEASES, CONTROLLER_NAME, "volcano-system"))["spec"]["holderIdentity"]

    run_virtually(story())


def test_a_bare_pod_costs_four_writes_and_its_group_is_never_written_again_while_it_only_stands() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=2)) as running:
            cluster, clock = running.cluster, running.clock
            controller = Running(cluster, clock, 1, elect=False)
            await asyncio.wait_for(controller.ready.wait(), 10)
            written: list[str] = []

            def watch(verb: str, path: str) -> None:
                if verb != "GET" and "/queues/" not in path:
                    written.append(f"{verb} {path.partition('/namespaces/default/')[2]}")

            await create(cluster, pod("a", mib=4000))
            cluster.fault = watch
            await running.bind_all("a")
            await clock.sleep(5)
            (group,) = (await cluster.list(volcano.POD_GROUPS))["items"]
            assert sorted(written) == ["PATCH pods/a", "POST events", "POST podgroups", "POST pods/a/binding"]
            assert group["status"]["phase"] == "Running"
            assert [c["type"] for c in group["status"]["conditions"]] == ["Scheduled"]
            assert await running.events("Scheduled") == ["Successfully assigned default/a to n1"]

            written.clear()
            status = {"status": {"phase": "Running"}}  # as its kubelet says
            await cluster.patch(kinds.PODS, "a", status, "default", subresource="status")
            await clock.sleep(5)
            (group,) = (await cluster.list(volcano.POD_GROUPS))["items"]
            assert group["status"]["running"] == 1
            assert await running.events("Scheduled") == ["Successfully assigned default/a to n1", "pod group is ready"]
            await controller.close()

    run_virtually(story())


def test_the_group_of_a_pod_that_finds_no_node_waits_for_others_a_second_at_most() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        running = Running(cluster, clock, 1, elect=False)
        await asyncio.wait_for(running.ready.wait(), 10)
        running.controller.work.others_busy = lambda: True
        await create(cluster, pod("a", cpu="1"))
        await clock.sleep(1.5)
        assert await groups(cluster) == 1
        await running.close()

    run_virtually(story())


def test_an_object_that_cannot_be_digested_does_not_end_the_controller() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        running = Running(cluster, clock, 1, elect=False)
        await asyncio.wait_for(running.ready.wait(), 10)

        def broken(event: WatchEvent) -> None:
            raise KeyError("what nobody thought of")

        reported = asyncio.create_task(running.controller._watch(Watch("pods", kinds.PODS, broken)))
        await create(cluster, pod("a", cpu="1"))
        await clock.sleep(2)
        assert not reported.done()
        reported.cancel()
        assert await groups(cluster) == 1
        await running.close()

    run_virtually(story())


@pytest.mark.parametrize("error", [ApiError(500, "InternalError", "later"), KeyError("surprise")])
def test_what_fails_is_tried_again_with_growing_pauses_and_keeps_nobody_else_waiting(error: Exception) -> None:
    async def story() -> None:
        clock, done, tried = VirtualClock(), [], []

        async def reconcile(kind: str, key: str) -> None:
            if key == "bad" and len(tried) < 5:
                tried.append(clock.monotonic())
                raise error
            done.append(key)

        work = WorkQueue(clock, random.Random(1), reconcile)
        running = asyncio.create_task(work.run(2))
        for key in ("bad", "good", "better"):
            work.add("pod", key)
        await clock.sleep(0.01)
        assert done == ["good", "better"]
        await clock.sleep(60)
        assert done == ["good", "better", "bad"]
        pauses = [after - before for before, after in itertools.pairwise(tried)]
        assert all(0.02 < pause < 10 for pause in pauses)
        assert pauses[-1] > pauses[0] or isinstance(error, KeyError)
        running.cancel()

    run_virtually(story())


QUEUE_API = "scheduling.volcano.sh/v1beta1"


async def give_command(cluster: FaultyCluster, action: str, kind: str = "Queue", name: str = "team", uid: str = "") -> None:
    if kind == "Queue" and not uid:
        uid = (await cluster.get(volcano.QUEUES, name))["metadata"]["uid"]
    target = {"apiVersion": QUEUE_API if kind == "Queue" else "batch.volcano.sh/v1alpha1", "kind": kind, "name": name, "uid": uid}
    body = {"metadata": {"generateName": f"{name}-"}, "action": action, "target": target}
    await cluster.create(volcano.COMMANDS, body, "default")


async def commands(cluster: FaultyCluster) -> int:
    return len((await cluster.list(volcano.COMMANDS))["items"])


async def state(cluster: FaultyCluster, name: str = "team") -> str:
    return str((await cluster.get(volcano.QUEUES, name))["status"]["state"])


async def reported(cluster: FaultyCluster) -> list[tuple[str, str]]:
    return [(e["reason"], e["message"]) for e in (await cluster.list(kinds.EVENTS))["items"]]


async def with_a_queue(clock: VirtualClock) -> tuple[FaultyCluster, Running]:
    cluster = await faulty_cluster(clock)
    running = Running(cluster, clock, 1, elect=False)
    await asyncio.wait_for(running.ready.wait(), 10)
    await cluster.create(volcano.QUEUES, queue("team"))
    await clock.sleep(2)
    return cluster, running


def test_a_command_closes_a_queue_which_is_closing_while_a_group_lives_and_another_opens_it() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster, running = await with_a_queue(clock)
        await cluster.create(volcano.POD_GROUPS, group("g", minimum=1, queue="team"), "default")
        await clock.sleep(1)
        await give_command(cluster, "CloseQueue")
        await clock.sleep(2)
        assert (await state(cluster), await commands(cluster)) == ("Closing", 0)
        await cluster.delete(volcano.POD_GROUPS, "g", "default")
        await clock.sleep(2)
        assert await state(cluster) == "Closed"
        await give_command(cluster, "OpenQueue")
        await clock.sleep(2)
        assert (await state(cluster), await commands(cluster)) == ("Open", 0)
        assert await reported(cluster) == [("CloseQueue", "Close queue succeed")]
        await running.close()

    run_virtually(story())


def test_a_queue_that_somebody_closed_stays_closed_while_a_group_lives_in_it() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster, running = await with_a_queue(clock)
        await cluster.create(volcano.POD_GROUPS, group("g", minimum=1, queue="team"), "default")
        await cluster.patch(volcano.QUEUES, "team", {"status": {"state": "Closed"}}, subresource="status")
        await clock.sleep(5)
        assert await state(cluster) == "Closed"
        await running.close()

    run_virtually(story())


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_command_is_carried_out_once_whatever_becomes_of_the_requests(carried_out: bool) -> None:
    """The deletion fails, with or without effect, and then the write on the queue; somebody opens the queue afterwards."""
    async def story() -> None:
        clock, closings, failures = VirtualClock(), [0], {"DELETE": 2, "PATCH": 2}
        cluster, running = await with_a_queue(clock)

        def fault(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
            watched = (verb == "DELETE" and "/commands/" in path) or (verb == "PATCH" and path.endswith("/queues/team/status"))
            if not watched:
                return None
            closings[0] += verb == "PATCH"
            failures[verb] -= 1
            if failures[verb] < 0:
                return None
            error = ApiError(500, "InternalError", "lost")
            return (error, True) if carried_out and verb == "DELETE" else error

        cluster.fault = fault
        await give_command(cluster, "CloseQueue")
        await clock.sleep(30)
        assert (await state(cluster), await commands(cluster), closings[0]) == ("Closed", 0, 3)
        await running.close()

    run_virtually(story())


def test_commands_on_one_queue_are_carried_out_in_the_order_in_which_they_came() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster, running = await with_a_queue(clock)
        for action in ("CloseQueue", "OpenQueue", "CloseQueue", "OpenQueue", "CloseQueue"):
            await give_command(cluster, action)
        await clock.sleep(5)
        assert (await state(cluster), await commands(cluster)) == ("Closed", 0)
        assert [reason for reason, _ in await reported(cluster)] == ["CloseQueue"] * 3
        await running.close()

    run_virtually(story())


def test_commands_that_came_while_no_controller_was_there_are_carried_out_in_their_order() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster, running = await with_a_queue(clock)
        await running.close()
        uid = (await cluster.get(volcano.QUEUES, "team"))["metadata"]["uid"]
        for name, action in (("z", "CloseQueue"), ("m", "OpenQueue"), ("a", "CloseQueue"), ("b", "OpenQueue")):
            target = {"apiVersion": QUEUE_API, "kind": "Queue", "name": "team", "uid": uid}
            await cluster.create(volcano.COMMANDS, {"metadata": {"name": name}, "action": action, "target": target}, "default")
        running = Running(cluster, clock, 2, elect=False)
        await asyncio.wait_for(running.ready.wait(), 10)
        await clock.sleep(5)
        assert (await state(cluster), await commands(cluster)) == ("Open", 0)
        await running.close()

    run_virtually(story())


@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_controller_that_dies_over_a_command_leaves_it_to_the_next(writes: int, carried_out: bool) -> None:
    """Whatever was written before it died, and whether it heard of it."""
    async def story() -> None:
        clock, left = VirtualClock(), [writes]
        cluster, running = await with_a_queue(clock)

        def fault(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
            left[0] -= verb != "GET"
            dead = ApiError(0, "Unreachable", "dead")
            return None if left[0] >= 0 else (dead, True) if left[0] == -1 and carried_out else dead

        await give_command(cluster, "CloseQueue")
        cluster.fault = fault
        await clock.sleep(1)
        await running.close()
        cluster.fault = lambda verb, path: None
        running = Running(cluster, clock, 2, elect=False)
        await asyncio.wait_for(running.ready.wait(), 10)
        await clock.sleep(5)
        assert (await state(cluster), await commands(cluster)) == ("Closed", 0)
        await running.close()

    run_virtually(story())


def test_a_command_that_is_for_nothing_that_is_there_says_so_and_one_for_another_kind_is_left_to_others() -> None:
    async def story() -> None:
        clock = VirtualClock()
        cluster, running = await with_a_queue(clock)
        await give_command(cluster, "CloseQueue", name="nobody", uid="x")
        await give_command(cluster, "CloseQueue", uid="of-its-forerunner")
        await clock.sleep(2)
        assert (await state(cluster), await commands(cluster)) == ("Open", 0)
        said = {message for _, message in await reported(cluster)}
        assert said == {"queue nobody does not exist", "queue team is another one than the Command is for"}
        await give_command(cluster, "RestartJob", kind="Job", name="j", uid="y")
        await clock.sleep(2)
        assert await commands(cluster) == 0
        said.add("job j does not exist")
        await give_command(cluster, "RestartJob", kind="CronJob", name="j", uid="y")
        await clock.sleep(60)
        assert await commands(cluster) == 1
        later = [message for _, message in await reported(cluster) if message not in said]
        meant = "Commands for CronJob of batch.volcano.sh/v1alpha1"
        assert later == [f"{meant} are not carried out here; those for a Queue or a Job are"]
        await running.close()

    run_virtually(story())
