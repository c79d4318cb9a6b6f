"""The controller's writes for a Job, and its reads."""

from __future__ import annotations

import asyncio

import pytest
from kit.faulty_cluster import NO_ANSWER
from kit.job_world import JobWorld, job, job_world, on, task
from kit.virtual_time import run_virtually

from pumice.apps.service.watches import object_of
from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano
from pumice.wire.batch import Job


def test_a_job_of_one_pod_costs_three_writes_until_it_runs_and_two_until_it_is_over() -> None:
    async def story() -> None:
        async with job_world() as world:
            written: list[str] = []

            def watch(verb: str, path: str) -> None:
                if verb != "GET" and "/events" not in path:
                    written.append(f"{verb} {path.partition('/default/')[2].partition('/')[0]}")

            await world.rest()
            world.cluster.fault = watch
            await world.hands.create(volcano.JOBS, job("j", task("main")), "default")
            await world.rest(0.3)
            await world.mark_group(next(iter(await world.groups())), phase="Inqueue")
            await world.rest(0.3)
            await world.run("j-main-0")
            await world.rest()
            assert written == ["POST podgroups", "POST pods", "PATCH jobs"]
            assert [each["status"] for each in (await world.status("j"))["conditions"]] == ["Pending", "Running"]
            await world.end("j-main-0")
            assert written[3:] == ["PATCH jobs", "DELETE podgroups"]
            assert await world.phase("j") == "Completed"

    run_virtually(story())


@pytest.mark.parametrize("told_to_wait", [True, False], ids=["our definition", "Volcano's definition"])
def test_whoever_watches_a_job_sees_each_of_its_phases_however_soon_the_next_one_comes(told_to_wait: bool) -> None:
    async def story() -> None:
        async with job_world(told_to_wait=told_to_wait) as world:
            seen: list[str] = []

            async def watch() -> None:
                async for event in world.hands.watch(volcano.JOBS, "default"):
                    found = object_of(Job, event) if event.raw else Job()
                    if found.phase not in ("", *seen[-1:]):
                        seen.append(found.phase)
                        assert (found.status.terminating > 0) == (found.phase == "Restarting")

            async def soon() -> None:
                await world.clock.sleep(0.05)

            async def starts() -> None:
                await soon()
                await world.mark_group(next(iter(await world.groups())), phase="Inqueue")
                await soon()
                await world.run("j-main-0")
                await soon()

            watching = asyncio.create_task(watch())
            await world.rest()
            policies = [on("PodFailed", "RestartJob")]
            await world.hands.create(volcano.JOBS, job("j", task("main"), policies=policies), "default")
            await starts()
            await world.report("j-main-0", "Failed")
            await starts()
            await world.report("j-main-0", "Succeeded")
            await world.rest()
            watching.cancel()
            assert seen == ["Pending", "Running", "Restarting", "Pending", "Running", "Completed"]

    run_virtually(story())


@pytest.mark.parametrize("allowed", [True, False], ids=["together", "no right to delete many"])
def test_the_groups_of_jobs_that_end_together_go_by_one_request_where_that_is_allowed(allowed: bool) -> None:
    async def story() -> None:
        async with job_world() as world:
            written: list[str] = []

            def watch(verb: str, path: str) -> ApiError | None:
                if verb != "DELETE":
                    return None
                written.append(path.rpartition("/")[2])
                return ApiError(403, "Forbidden", "may not") if path.endswith("/podgroups") and not allowed else None

            for number in range(5):
                await world.hands.create(volcano.JOBS, job(f"j{number}", task("main")), "default")
            await world.rest()
            await world.start()
            world.cluster.fault = watch
            ending = [f"j{number}-main-0" for number in range(4)]
            for name in ending:
                await world.report(name, "Succeeded")
            await world.rest()
            (left,) = await world.groups()
            assert left.startswith("j4-"), "of the Job that goes on"
            assert written[0] == "podgroups"
            assert len(written) == (1 if allowed else 5)
            assert {await world.phase(f"j{number}") for number in range(4)} == {"Completed"}

    run_virtually(story())


def test_a_job_is_not_looked_at_for_echoes_and_for_what_it_does_not_read() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("main", maxRetry=3)))
            await world.start()
            await world.rest(20)
            looks, work = list[str](), world.controller.work
            reconcile = work.reconcile

            async def look(kind: str, key: str) -> None:
                looks.append(kind)
                await reconcile(kind, key)

            work.reconcile = look
            (name,) = await world.groups()
            scheduled = {"type": "Scheduled", "status": "True", "message": "tasks in gang are ready to be scheduled"}
            await world.mark_group(name, phase="Running", running=1, conditions=[scheduled])
            await world.hands.patch(kinds.PODS, "j-main-0", {"metadata": {"annotations": {"what": "ever"}}}, "default")
            await world.rest(20)
            assert looks == []
            await world.end("j-main-0")
            assert looks.count("job") == 1, "its pod has ended; what it wrote itself is no news, nor that its group went by that"
            assert await world.phase("j") == "Completed"

    run_virtually(story())


def test_a_job_whose_counts_are_due_is_not_looked_at_on_and_on_while_another_one_waits_for_an_answer() -> None:
    """And has changed meanwhile, so that it will be looked at once more."""

    async def story() -> None:
        async with job_world() as world:
            for name in ("slow", "j"):
                await world.submit(job(name, task("main", 3)))
            await world.start()
            looks, work = list[str](), world.controller.work
            reconcile = work.reconcile

            async def look(kind: str, key: str) -> None:
                looks.append(key)
                assert len(looks) < 100, "it is looked at again and again"
                await reconcile(kind, key)

            work.reconcile = look
            unanswered = ApiError(0, NO_ANSWER, "nobody answers")
            world.cluster.fault = lambda verb, path: unanswered if verb == "POST" and path.endswith("/pods") else None
            await world.hands.delete(kinds.PODS, "slow-main-0", "default", grace=0)
            await world.rest(1)
            await world.report("j-main-0", "Succeeded")
            await world.report("slow-main-1", "Succeeded")
            await world.rest(20)
            assert (await world.status("j"))["succeeded"] == 1, "it waits for nobody's answer"
            assert 2 <= looks.count("default/j") <= 4

    run_virtually(story())


def test_amid_work_for_others_it_is_told_first_that_a_job_runs_and_last_how_many_of_its_pods_wait() -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.hands.create(kinds.NAMESPACES, {"metadata": {"name": "busy"}})
            unanswered = ApiError(0, NO_ANSWER, "nobody answers")
            world.cluster.fault = lambda verb, path: unanswered if verb == "POST" and path.endswith("/busy/pods") else None
            for number in range(6):  # so that most of them wait for an answer at any time
                await world.hands.create(volcano.JOBS, job(f"j{number}", task("main"), namespace="busy"), "busy")
                await let_in(world)
                await world.rest(4)
            for name in ("waits", "runs"):
                await world.hands.create(volcano.JOBS, job(name, task("main", 2)), "default")
            await let_in(world)
            await world.rest(10)
            assert [(await world.status(name)).get("pending") for name in ("waits", "runs")] == [None, None]
            for index in range(2):
                await world.run(f"runs-main-{index}")
            await world.rest(35)
            assert (await world.phase("runs"), (await world.status("runs"))["running"]) == ("Running", 2)
            assert (await world.status("waits")).get("pending") is None
            await world.rest(85)
            assert (await world.status("waits"))["pending"] == 2

    run_virtually(story())


async def let_in(world: JobWorld) -> None:
    """Every group, whichever its namespace."""
    await world.rest(0.5)
    for found in (await world.groups()).values():
        if found["status"]["phase"] == "Pending":
            body = {"status": {"phase": "Inqueue"}}
            await world.hands.patch(volcano.POD_GROUPS, found["metadata"]["name"], body, found["metadata"]["namespace"])
