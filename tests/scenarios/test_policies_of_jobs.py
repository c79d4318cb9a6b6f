"""Policies of a Job, when its pods end, are evicted or wait too long (Volcano pkg/controllers/job)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from kit.faulty_cluster import NO_ANSWER
from kit.job_world import JobWorld, job, job_world, mindcluster_job, on, task
from kit.virtual_time import run_virtually

from pumice.ports.cluster import ApiError
from pumice.wire import kinds
from pumice.wire.kinds import SECRETS, SERVICES
from pumice.wire.times import stamp


def test_an_evicted_pod_restarts_its_job_until_the_retries_are_used_up() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(mindcluster_job())
            name, seen = "mindx-dls-default-test-0", []
            for _ in range(3):
                await world.start()
                assert await world.phase("mindx-dls") == "Running"
                seen.append((await world.pods())[name]["metadata"]["annotations"]["volcano.sh/job-version"])
                old = await world.group_uids()
                await world.remove(name)
                assert not old & await world.group_uids(), "the group is a new one"
            status = await world.status("mindx-dls")
            assert (status["state"]["phase"], status["retryCount"], seen) == ("Failed", 3, ["0", "1", "2"])
            assert [c["status"] for c in status["conditions"]] == [
                *["Pending", "Running", "Restarting"] * 3, "Failed",
            ]  # fmt: skip
            assert await world.pods() == {}
            assert await world.groups() == {}
            for kind, called in ((SERVICES, "mindx-dls"), (kinds.CONFIGMAPS, "mindx-dls-svc"), (SECRETS, "mindx-dls-ssh")):
                assert await world.found(kind, called) is None
            assert await world.events("ExecuteAction") == ["Start to execute action RestartJob "] * 3

    run_virtually(story())


def test_the_way_from_eviction_to_the_new_pod_is_written_before_it_is_gone() -> None:
    """While a Job restarts, its new pods wait for the old ones to be gone and for the new group to be let in."""

    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), policies=[on("PodFailed", "RestartJob")]))
            await world.start()
            await world.end("j-main-0", code=1)
            status = await world.status("j")
            assert (status["state"]["phase"], status["version"], status["retryCount"]) == ("Restarting", 1, 1)
            assert status["terminating"] == 1, "the one that runs goes when its kubelet lets it"
            marks = [pod["metadata"]["annotations"] for pod in (await world.pods()).values()]
            assert all("volcano.sh/controller-out-of-sync" in each for each in marks)
            await world.bury()
            assert (await world.phase("j"), await world.pods()) == ("Pending", {})
            await world.start()
            pods = await world.pods()
            assert {pod["metadata"]["annotations"]["volcano.sh/job-retry-count"] for pod in pods.values()} == {"1"}
            assert await world.phase("j") == "Running"

    run_virtually(story())


@pytest.mark.parametrize(("action", "way", "end"), [
    ("AbortJob", "Aborting", "Aborted"), ("TerminateJob", "Terminating", "Terminated"),
    ("CompleteJob", "Completing", "Completed"),
])  # fmt: skip
def test_a_policy_ends_the_job_and_keeps_the_pods_that_ended(action: str, way: str, end: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 3), policies=[on("PodFailed", action)]))
            await world.start()
            await world.end("j-main-1", code=1)
            assert await world.phase("j") == way
            await world.bury()
            assert (await world.phase("j"), list(await world.pods())) == (end, ["j-main-1"])
            assert await world.groups() == {}
            assert await world.events("ExecuteAction") == [f"Start to execute action {action} "]

    run_virtually(story())


@pytest.mark.parametrize(("code", "phase"), [(3, "Restarting"), (4, "Running"), (137, "Terminating")])
def test_an_exit_code_chooses_its_policy_and_a_task_speaks_before_its_job(code: int, phase: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            kind = task("main", 2, policies=[{"exitCode": 137, "action": "TerminateJob"}])
            await world.submit(job("j", kind, task("other", 1), minAvailable=2,
                                   policies=[{"exitCode": 3, "action": "RestartJob"}, {"exitCode": 137, "action": "RestartJob"}]))
            await world.start()
            await world.end("j-main-0", code=code)
            assert await world.phase("j") == phase

    run_virtually(story())


def test_an_exit_code_of_zero_in_a_policy_means_nothing() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), minAvailable=1, policies=[{"exitCode": 0, "action": "TerminateJob"}]))
            await world.start()
            await world.end("j-main-0", code=0)
            assert await world.phase("j") == "Running"
            await world.remove("j-main-1")
            assert (await world.phase("j"), len(await world.pods())) == ("Running", 2), "the pod is made again"

    run_virtually(story())


@pytest.mark.parametrize(("action", "gone"), [
    ("RestartPod", {"j-a-1"}), ("RestartTask", {"j-a-0", "j-a-1", "j-a-2", "j-a-3"}), ("RestartPartition", {"j-a-0", "j-a-1"}),
])  # fmt: skip
def test_a_restart_of_a_part_leaves_the_rest_its_group_and_its_version(action: str, gone: set[str]) -> None:
    async def story() -> None:
        async with job_world() as world:
            parts = {"totalPartitions": 2, "partitionSize": 2}
            await world.submit(job("j", task("a", 4, partitionPolicy=parts), task("b", 1), policies=[on("PodFailed", action)]))
            await world.start()
            before = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
            groups = await world.group_uids()
            await world.end("j-a-1", code=1)
            assert await world.phase("j") in ("Restarting", "Pending")
            await world.bury()
            await world.start()
            after = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
            assert {name for name in before if after[name] != before[name]} == gone
            status = await world.status("j")
            assert (status["state"]["phase"], status.get("version", 0), status["retryCount"]) == ("Running", 0, 1)
            assert await world.group_uids() == groups

    run_virtually(story())


def test_containers_that_restart_too_often_fail_their_task() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2, maxRetry=4), policies=[on("TaskFailed", "TerminateJob")]))
            await world.start()
            await world.restart_container("j-main-0", 3)
            assert await world.phase("j") == "Running"
            await world.restart_container("j-main-1", 1)
            assert await world.phase("j") == "Terminating"

    run_virtually(story())


def test_a_task_that_is_through_completes_its_job() -> None:
    async def story() -> None:
        async with job_world() as world:
            lead = task("lead", 2, policies=[on("TaskCompleted", "CompleteJob")])
            await world.submit(job("j", lead, task("worker", 2)))
            await world.start()
            await world.end("j-lead-0")
            assert await world.phase("j") == "Running"
            await world.end("j-lead-1")
            await world.bury()
            assert (await world.phase("j"), sorted(await world.pods())) == ("Completed", ["j-lead-0", "j-lead-1"])

    run_virtually(story())


def test_a_timeout_delays_an_action_and_what_passes_meanwhile_cancels_it() -> None:
    async def story() -> None:
        async with job_world() as world:
            delayed = on("PodPending", "TerminateJob", timeout="30s")
            await world.submit(job("quick", task("main", 1), policies=[delayed]))
            await world.submit(job("stuck", task("main", 1), policies=[delayed]))
            await world.admit()
            await world.rest(20)
            await world.start("quick-main-0")
            await world.rest(20)
            assert (await world.phase("quick"), await world.phase("stuck")) == ("Running", "Terminated")
            assert "Execute action TerminateJob after 30s" in await world.events("ExecuteAction")

    run_virtually(story())


@pytest.mark.parametrize("answered", [True, False], ids=["answer", "watch"])
def test_a_pod_that_waits_too_long_is_acted_upon_whatever_tells_first_that_it_is_there(answered: bool) -> None:
    async def story() -> None:
        async with job_world() as world:

            def fault(verb: str, path: str) -> tuple[ApiError, bool] | None:
                if verb != "POST" or not path.endswith("/pods"):
                    return None
                if not answered:
                    return ApiError(0, NO_ANSWER, "nobody answers"), True
                world.cluster.hang_up(forget=False, seconds=5)
                return None

            world.cluster.fault = fault
            await world.submit(job("j", task("main"), policies=[on("PodPending", "TerminateJob", timeout="30s")]))
            await world.admit()
            await world.rest(60)
            assert await world.phase("j") == "Terminated"

    run_virtually(story())


async def a_pod_fails(world: JobWorld) -> None:
    end = {"exitCode": 1, "finishedAt": stamp(world.clock.now())}
    await world.report("j-main-0", "Failed", state={"terminated": end})


async def a_pod_is_evicted(world: JobWorld) -> None:
    await world.remove("j-main-0")


async def containers_restart(world: JobWorld) -> None:
    """Three times in all, the last time now."""
    for name, times in (("j-main-0", 1), ("j-main-1", 2)):
        now = stamp(world.clock.now())
        await world.report(name, "Running", ready=True, restartCount=times, state={"running": {"startedAt": now}})


async def a_container_restarts_and_ends(world: JobWorld) -> None:
    """And waits to be started again."""
    run = {"exitCode": 1, "startedAt": stamp(world.clock.now())}
    run["finishedAt"] = stamp(world.clock.now() + 30)
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    await world.report("j-main-1", "Running", restartCount=3, state=waits, lastState={"terminated": run})


async def the_group_is_lost(world: JobWorld) -> None:
    (name,) = await world.groups()
    now = stamp(world.clock.now())
    said = [{"type": "Scheduled", "status": "True", "lastTransitionTime": stamp(world.clock.now() - 100)},
            {"type": "Unschedulable", "status": "True", "lastTransitionTime": now, "message": "1/2 tasks"}]  # fmt: skip
    await world.mark_group(name, phase="Unknown", conditions=said)


async def the_last_pod_succeeds(world: JobWorld) -> None:
    """Long after the other one."""
    for name, earlier in (("j-main-0", 100), ("j-main-1", 0)):
        end = {"exitCode": 0, "finishedAt": stamp(world.clock.now() - earlier)}
        await world.report(name, "Succeeded", state={"terminated": end})


@pytest.mark.parametrize(("event", "happens"), [
    ("PodFailed", a_pod_fails), ("PodEvicted", a_pod_is_evicted), ("TaskFailed", containers_restart),
    ("TaskFailed", a_container_restarts_and_ends), ("Unknown", the_group_is_lost), ("TaskCompleted", the_last_pod_succeeds),
])  # fmt: skip
def test_a_delay_that_began_before_the_controller_did_is_neither_waited_for_again_nor_forgotten(
    event: str, happens: Callable[[JobWorld], Awaitable[None]]
) -> None:  # fmt: skip
    async def story() -> None:
        async with job_world() as world:
            lasting = task("other", policies=[])
            await world.submit(job("j", task("main", 2, policies=[on(event, "RestartJob", timeout="60s")]), lasting,
                                   policies=[on("Unknown", "RestartJob", timeout="60s")]))  # fmt: skip
            await world.start()
            await happens(world)
            await world.rest(40)
            await world.replace()
            assert (await world.status("j")).get("retryCount", 0) == 0
            await world.rest(10)
            assert (await world.status("j")).get("retryCount", 0) == 0, "not before its time either"
            await world.rest(15)
            assert (await world.status("j")).get("retryCount", 0) == 1

    run_virtually(story())


def test_a_pod_that_runs_in_place_of_an_evicted_one_takes_the_delay_away_whoever_looks() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", 2), policies=[on("PodEvicted", "RestartJob", timeout="60s")]))
            await world.start()
            await world.remove("j-main-0")
            await world.kill()
            await world.run("j-main-0")
            await world.up()
            await world.rest(90)
            assert (await world.status("j")).get("retryCount", 0) == 0
            await world.remove("j-main-1")
            await world.start()
            await world.rest(90)
            assert (await world.status("j")).get("retryCount", 0) == 0

    run_virtually(story())
