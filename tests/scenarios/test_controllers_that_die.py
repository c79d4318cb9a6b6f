"""A controller of Jobs that dies between any two of its writes, or before it hears the answer to one, whatever it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kit.job_world import JobWorld, job, job_world, on, task
from kit.virtual_time import run_virtually

from pumice.wire import volcano
from pumice.wire.batch import NETWORK_POLICIES, SECRETS, SERVICES

Step = Callable[[JobWorld], Awaitable[Any]]


async def nothing(world: JobWorld) -> None:
    pass


async def submit(world: JobWorld) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    tasks = [task("a", 2, policies=[{"exitCode": 3, "action": "RestartTask"}]), task("b")]
    body = job("j", *tasks, policies=[on("PodFailed", "RestartJob")], plugins={"svc": [], "ssh": [], "env": []},
               volumes=[{"mountPath": "/data", "volumeClaim": claim}])  # fmt: skip
    await world.hands.create(volcano.JOBS, body, "default")


async def run(world: JobWorld) -> None:
    await submit(world)
    await world.rest()
    await world.start()


async def suspended(world: JobWorld) -> None:
    await run(world)
    await world.command("AbortJob", "j")
    await world.bury()


async def command(world: JobWorld, action: str) -> None:
    meta = (await world.job("j"))["metadata"]
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": meta["uid"]}
    body = {"metadata": {"generateName": "c-"}, "action": action, "target": target}
    await world.hands.create(volcano.COMMANDS, body, "default")


async def fail(world: JobWorld, code: int) -> None:
    await world.tell("j-a-0", "Failed", state={"terminated": {"exitCode": code}})


async def succeed(world: JobWorld) -> None:
    for name in await world.pods():
        await world.tell(name, "Succeeded", state={"terminated": {"exitCode": 0}})


async def shrink(world: JobWorld) -> None:
    tasks = (await world.job("j"))["spec"]["tasks"]
    tasks[0]["replicas"] = 1
    await world.hands.patch(volcano.JOBS, "j", {"spec": {"tasks": tasks, "minAvailable": 2}}, "default")


STORIES: dict[str, tuple[Step, Step, str, str, int, int]] = {
    # before, what happens, a Command that may have to be given again, then phase, retries and pods
    "it is made": (nothing, submit, "", "Running", 0, 3),
    "it restarts": (run, lambda world: fail(world, 1), "", "Running", 1, 3),
    "a task restarts": (run, lambda world: fail(world, 3), "", "Running", 1, 3),
    "it is suspended": (run, lambda world: command(world, "AbortJob"), "AbortJob", "Aborted", 0, 0),
    "it is resumed": (suspended, lambda world: command(world, "ResumeJob"), "ResumeJob", "Running", 1, 3),
    "it is completed": (run, lambda world: command(world, "CompleteJob"), "CompleteJob", "Completed", 0, 0),
    "it ends": (run, succeed, "", "Completed", 0, 3),
    "it is made smaller": (run, shrink, "", "Running", 0, 2),
}  # fmt: skip


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost", "unanswered"])
@pytest.mark.parametrize("writes", range(9))
@pytest.mark.parametrize("what", STORIES)
def test_a_job_is_brought_to_its_end_by_the_next_controller_while(what: str, writes: int, carried_out: bool) -> None:
    before, happens, again, phase, retries, pods = STORIES[what]

    async def story() -> None:
        async with job_world() as world:
            await before(world)
            world.cut_off(writes, carried_out=carried_out)
            await happens(world)
            await world.rest(0.8)
            await world.replace()
            if again and await world.phase("j") in {"Running", "Aborted"} - {phase}:
                await command(world, again)  # a Command is carried out once at most
                await world.rest()
            for _ in range(3):
                await world.bury()
                await world.start()
            status, there = await world.status("j"), await world.pods()
            assert (status["state"]["phase"], status.get("retryCount", 0), len(there)) == (phase, retries, pods)
            versions = {pod["metadata"]["annotations"]["volcano.sh/job-version"] for pod in there.values()}
            assert versions <= {str(status.get("version", 0))}
            lives = phase == "Running"
            assert len(await world.groups()) == int(lives)
            for kind, name in ((SERVICES, "j"), (NETWORK_POLICIES, "j"), (SECRETS, "j-ssh"), (volcano.CONFIGMAPS, "j-svc")):
                assert (await world.found(kind, name) is not None) == lives, (kind.plural, name)

    run_virtually(story())


@pytest.mark.parametrize("writes", range(4))
def test_a_finished_job_goes_after_its_time_whoever_looks(writes: int) -> None:
    async def story() -> None:
        async with job_world() as world:
            await world.submit(job("j", task("a"), ttlSecondsAfterFinished=5))
            await world.start()
            world.cut_off(writes)
            await world.tell("j-a-0", "Succeeded", state={"terminated": {"exitCode": 0}})
            await world.rest(8)
            await world.replace()
            await world.rest(10)
            jobs = (await world.hands.list(volcano.JOBS, "default"))["items"]
            assert all(each["metadata"].get("deletionTimestamp") for each in jobs), "it may wait for what it owns"

    run_virtually(story())
