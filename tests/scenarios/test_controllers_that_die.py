"""A controller of Jobs that dies between any two of its writes, or before it hears the answer to one, whatever it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest
from kit.job_world import JobWorld, job, job_world, on, task
from kit.seeds import some_of
from kit.virtual_time import run_virtually

from pumice.wire import kinds, volcano
from pumice.wire.batch import CRON_JOBS, JOB_TEMPLATES
from pumice.wire.kinds import NETWORK_POLICIES, SECRETS, SERVICES

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


async def twice(world: JobWorld) -> None:
    """Somebody changes their mind before anybody has looked."""
    await command(world, "AbortJob")
    await command(world, "ResumeJob")


async def in_parts(world: JobWorld) -> None:
    """One task of two pairs, and one that waits for it."""
    pairs = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    again = [{"exitCode": 3, "action": "RestartPartition"}]
    tasks = [task("a", 4, partitionPolicy=pairs, policies=again), task("b", dependsOn={"name": ["a"]})]
    await world.hands.create(volcano.JOBS, job("j", *tasks, plugins={"svc": [], "ssh": [], "pytorch": ["--master=a"]}), "default")


async def parts_run(world: JobWorld) -> None:
    await in_parts(world)
    await world.rest()
    await world.start()
    await world.start()


async def fail(world: JobWorld, code: int) -> None:
    await world.tell("j-a-0", "Failed", state={"terminated": {"exitCode": code}})


async def succeed(world: JobWorld) -> None:
    for name in await world.pods():
        await world.tell(name, "Succeeded", state={"terminated": {"exitCode": 0}})


async def shrink(world: JobWorld) -> None:
    tasks = (await world.job("j"))["spec"]["tasks"]
    tasks[0]["replicas"] = 1
    await world.hands.patch(volcano.JOBS, "j", {"spec": {"tasks": tasks, "minAvailable": 2}}, "default")


async def resized(world: JobWorld) -> None:
    """To nothing, and up again."""
    spec = (await world.job("j"))["spec"]
    none = {"tasks": [{**each, "replicas": 0} for each in spec["tasks"]], "minAvailable": 0}
    await world.hands.patch(volcano.JOBS, "j", {"spec": none}, "default")
    await world.rest(0.3)
    await world.hands.patch(volcano.JOBS, "j", {"spec": {"tasks": spec["tasks"], "minAvailable": 3}}, "default")


STORIES: dict[str, tuple[Step, Step, str, int, int]] = {
    # before, what happens, then phase, retries and pods
    "it is made": (nothing, submit, "Running", 0, 3),
    "it restarts": (run, lambda world: fail(world, 1), "Running", 1, 3),
    "a task restarts": (run, lambda world: fail(world, 3), "Running", 1, 3),
    "it is suspended": (run, lambda world: command(world, "AbortJob"), "Aborted", 0, 0),
    "it is resumed": (suspended, lambda world: command(world, "ResumeJob"), "Running", 1, 3),
    "it is restarted": (run, lambda world: command(world, "RestartJob"), "Running", 1, 3),
    "it is completed": (run, lambda world: command(world, "CompleteJob"), "Completed", 0, 0),
    "it ends": (run, succeed, "Completed", 0, 3),
    "it is made smaller": (run, shrink, "Running", 0, 2),
    "it is scaled to nothing and up again": (run, resized, "Running", 0, 3),
    "it is suspended and resumed at once": (run, twice, "Running", 1, 3),
    "one of its tasks waits for the other": (nothing, in_parts, "Running", 0, 5),
    "a partition restarts": (parts_run, lambda world: fail(world, 3), "Running", 1, 5),
}  # fmt: skip


@pytest.mark.parametrize(("what", "writes", "answer"), some_of(product(STORIES, range(9), ("lost", "unanswered")), 60))
def test_a_job_is_brought_to_its_end_by_the_next_controller_while(what: str, writes: int, answer: str) -> None:
    before, happens, phase, retries, pods = STORIES[what]

    async def story() -> None:
        async with job_world() as world:
            await before(world)
            world.cut_off(writes, carried_out=answer == "unanswered")
            await happens(world)
            await world.rest(0.8)
            await world.replace()
            for _ in range(3):
                await world.bury()
                await world.start()
            status, there = await world.status("j"), await world.pods()
            assert (status["state"]["phase"], status.get("retryCount", 0), len(there)) == (phase, retries, pods)
            versions = {pod["metadata"]["annotations"]["volcano.sh/job-version"] for pod in there.values()}
            assert versions <= {str(status.get("version", 0))}
            lives = phase == "Running"
            assert len(await world.groups()) == int(lives)
            for kind, name in ((SERVICES, "j"), (NETWORK_POLICIES, "j"), (SECRETS, "j-ssh"), (kinds.CONFIGMAPS, "j-svc")):
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


async def a_flow(world: JobWorld) -> None:
    """Of two steps, whose pods end as soon as they run."""
    spec = {"tasks": [task("main")]}
    for name in ("first", "second"):
        await world.hands.create(JOB_TEMPLATES, {"metadata": {"name": name}, "spec": spec}, "default")
    steps = [{"name": "first"}, {"name": "second", "dependsOn": {"targets": ["first"]}}]
    await world.hands.create(volcano.JOB_FLOWS, {"metadata": {"name": "f"}, "spec": {"flows": steps}}, "default")
    await world.rest()
    await complete(world)


async def flow_ran(world: JobWorld) -> None:
    for _ in range(3):
        await complete(world)
    found = await world.hands.get(volcano.JOB_FLOWS, "f", "default")
    jobs = (await world.hands.list(volcano.JOBS, "default"))["items"]
    assert sorted((each["metadata"]["name"], each["status"]["state"]["phase"]) for each in jobs) == [
        ("f-first", "Completed"), ("f-second", "Completed")]  # fmt: skip
    assert found["status"]["state"]["phase"] == "Succeed"


async def a_schedule(world: JobWorld) -> None:
    template = {"spec": {"tasks": [task("main")]}}
    spec = {"schedule": "@every 20s", "jobTemplate": template, "successfulJobsHistoryLimit": 1}
    await world.hands.create(CRON_JOBS, {"metadata": {"name": "c"}, "spec": spec}, "default")
    await world.rest(25)
    await complete(world)


async def schedule_ran(world: JobWorld) -> None:
    await world.hands.patch(CRON_JOBS, "c", {"spec": {"suspend": True}}, "default")
    for _ in range(2):
        await complete(world)
    jobs = (await world.hands.list(volcano.JOBS, "default"))["items"]
    left = [each for each in jobs if not each["metadata"].get("deletionTimestamp")]
    assert [each["status"]["state"]["phase"] for each in left] == ["Completed"], "the last one is kept"
    status = (await world.hands.get(CRON_JOBS, "c", "default"))["status"]
    assert not status.get("active")


async def closed_queues(world: JobWorld) -> None:
    for name, parent in (("above", "root"), ("below", "above")):
        spec = {"weight": 1, "parent": parent}
        made = await world.hands.create(volcano.QUEUES, {"metadata": {"name": name}, "spec": spec})
        if name == "above":
            uid = made["metadata"]["uid"]
    target = {"apiVersion": volcano.SCHEDULING_API, "kind": "Queue", "name": "above", "uid": uid}
    body = {"metadata": {"generateName": "c-"}, "action": "CloseQueue", "target": target}
    await world.hands.create(volcano.COMMANDS, body, "default")


async def queues_are_closed(world: JobWorld) -> None:
    there = (await world.hands.list(volcano.QUEUES))["items"]
    assert {each["metadata"]["name"] for each in there if each["status"].get("state") == "Closed"} == {"above", "below"}
    assert not (await world.hands.list(volcano.COMMANDS, "default"))["items"]


async def bare_pods(world: JobWorld) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "abc", "controller": True}
    for index in range(2):
        spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "x"}]}
        meta = {"name": f"s-{index}", "ownerReferences": [owner]}
        await world.hands.create(kinds.PODS, {"metadata": meta, "spec": spec}, "default")


async def pods_have_groups(world: JobWorld) -> None:
    groups = await world.groups()
    told = {each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for each in (await world.pods()).values()}
    assert told == set(groups)


async def complete(world: JobWorld) -> None:
    """Whatever waits runs and ends well."""
    await world.start()
    for name in await world.pods():
        await world.tell(name, "Succeeded", state={"terminated": {"exitCode": 0}})
    await world.rest(5)


OTHERS: dict[str, tuple[Step, Step]] = {
    "a flow makes its jobs": (a_flow, flow_ran), "a schedule makes its jobs": (a_schedule, schedule_ran),
    "queues are closed": (closed_queues, queues_are_closed), "bare pods get their groups": (bare_pods, pods_have_groups),
}  # fmt: skip


@pytest.mark.parametrize(("what", "writes", "answer"), some_of(product(OTHERS, range(6), ("lost", "unanswered")), 16))
def test_what_a_controller_began_is_ended_by_the_next_one_while(what: str, writes: int, answer: str) -> None:
    happens, holds = OTHERS[what]

    async def story() -> None:
        async with job_world() as world:
            world.cut_off(writes, carried_out=answer == "unanswered")
            await happens(world)
            await world.rest()
            await world.replace()
            await holds(world)

    run_virtually(story())
