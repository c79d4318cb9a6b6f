"""Random lives of Jobs: pods that end and vanish, Commands, changes, lost answers, and controllers that die at any moment.

Whatever happens, phases follow their table, every restart is counted once, no pod runs beside its successor, and once the world
is quiet, what is there is what the Job's phase says, and nobody writes any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from kit.faulty_cluster import NO_ANSWER, Fault
from kit.job_world import JobWorld, job, job_world, on, task
from kit.virtual_time import run_virtually

from pumice.ports.cluster import ApiError, Json
from pumice.wire import kinds, volcano
from pumice.wire.kinds import NETWORK_POLICIES, SECRETS, SERVICES
from pumice.wire.times import stamp
from pumice_jobs.controllers.job.defaults import NEEDS
from pumice_jobs.controllers.job.phases import ACTIONS, FINISHED, LIVING, MOVES, PHASES, STEPS

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
HISTORIES = int(os.environ.get("PUMICE_JOB_HISTORIES", "16"))
STEPS_EACH = 50
PLUGINS = (("svc", "env"), ("pytorch",), ("tensorflow", "env"), ("mpi",), ("ssh", "svc", "hcclrank"),
           ("ray", "svc", "ssh", "env"))  # fmt: skip
"""Of which some bring others along."""
EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown", "*")
DELAYED = ("PodPending", "PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown")
LEGAL = {
    *((phase, move.to) for phase, moves in MOVES.items() for move in moves.values()),
    *((phase, to) for phase, nexts in STEPS.items() for to in nexts),
    *(("", phase) for phase in ("Restarting", "Aborting", "Terminating", "Completing")),  # an action before the first status
}


class History:
    """One world with its Jobs, and what must hold of every status that is written."""

    def __init__(self, world: JobWorld, seed: int) -> None:
        self.world, self.rng = world, Random(seed)
        self.last: dict[str, Json] = {}
        """Uid of a Job to its status as it was last seen."""
        self.reported: list[str] = []
        self.graves: list[str] = []
        """Uids of deleted Jobs whose things the garbage collector has not taken yet."""
        self.closed = False
        """True if the queue is."""
        self.meet()

    # -- what happens -------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        await self.world.hands.create(volcano.JOBS, self.random_job("j0"), "default")
        for _ in range(STEPS_EACH):
            step = self.rng.choices(
                [self.submit, self.admit, self.run, self.end, self.restart, self.vanish, self.bury, self.command, self.scale,
                 self.lose_group, self.kill, self.die, self.trouble, self.delete, self.collect, self.intrude, self.foresee,
                 self.rewrite, self.take_group, self.write_over, self.close_queue, self.lag, self.wait],
                [2, 8, 12, 6, 2, 5, 8, 3, 2, 1, 2, 3, 4, 1, 2, 1, 1, 2, 1, 1, 1, 1, 2])[0]  # fmt: skip
            self.reported.append(step.__name__)
            await step()
            await self.world.clock.sleep(self.rng.choice([0.0, 0.0, 0.01, 0.3, 1.0]))
            await self.look()

    def random_job(self, job_name: str) -> Json:
        rng = self.rng
        called = rng.sample("abc", rng.randint(1, 3))
        tasks = [self.random_task(name, called[:at]) for at, name in enumerate(called)]
        fields: dict[str, Any] = {"policies": self.policies(0.8), "maxRetry": rng.randint(1, 4)}
        if rng.random() < 0.5:
            fields["minAvailable"] = rng.randint(1, sum(each["replicas"] for each in tasks))
        if rng.random() < 0.4:
            roles = [f"--{role}={rng.choice(called)}" for role in ("master", "worker", "ps", "head")]
            fields["plugins"] = {plugin: roles if rng.random() < 0.8 else roles[:1] for plugin in rng.choice(PLUGINS)}
        if rng.random() < 0.2:
            fields["minSuccess"] = 1
        if rng.random() < 0.2:
            fields["ttlSecondsAfterFinished"] = rng.choice([0, 3, 60])
        if rng.random() < 0.1:
            fields["volumes"] = [{"mountPath": "/data", "volumeClaim": CLAIM}]
        return job(job_name, *tasks, **fields)

    def random_task(self, name: str, others: list[str]) -> Json:
        """``others``: the tasks that it may wait for."""
        rng, fields = self.rng, dict[str, Any]()
        replicas = rng.randint(1, 3)
        if others and rng.random() < 0.3:
            needed = rng.sample(others, rng.randint(1, len(others)))
            fields["dependsOn"] = {"name": needed, "iteration": rng.choice(["any", "all"])}
        if rng.random() < 0.2:
            size, parts = rng.randint(1, 2), rng.randint(1, 2)
            replicas = size * parts
            fields["partitionPolicy"] = {"totalPartitions": parts, "partitionSize": size, "minPartitions": rng.randint(0, parts)}
        elif rng.random() < 0.3:
            fields["minAvailable"] = rng.randint(0, replicas)
        if rng.random() < 0.2:
            fields["maxRetry"] = rng.randint(1, 3)
        return task(name, replicas, policies=self.policies(0.3), **fields)

    def policies(self, likely: float) -> list[Json]:
        rng = self.rng
        if rng.random() > likely:
            return []
        chosen = [on(rng.choice(EVENTS), rng.choice(ACTIONS)), {"exitCode": 3, "action": rng.choice(ACTIONS)}]
        if rng.random() < 0.3:
            chosen.append(on(rng.choice(DELAYED), rng.choice(ACTIONS), timeout=rng.choice(["1s", "5s", "60s"])))
        return chosen

    async def submit(self) -> None:
        await self.quietly(self.world.hands.create(volcano.JOBS, self.random_job(f"j{self.rng.randint(0, 1)}"), "default"))

    async def admit(self) -> None:
        for name in await self.world.groups():
            await self.world.mark_group(name, phase="Inqueue")

    async def run(self) -> None:
        for name in await self.some_pods("Pending"):
            await self.world.run(name)

    async def end(self) -> None:
        for name in await self.some_pods("Running"):
            code = self.rng.choice([0, 0, 1, 3])
            end = {"exitCode": code, "finishedAt": stamp(self.world.clock.now())}
            await self.world.report(name, "Failed" if code else "Succeeded", state={"terminated": end})

    async def restart(self) -> None:
        for name in await self.some_pods("Running"):
            await self.world.report(name, "Running", ready=True, restartCount=self.rng.randint(1, 3))

    async def vanish(self) -> None:
        for name in (await self.some_pods())[:1]:
            grace = self.rng.choice([0, 30])
            await self.quietly(self.world.hands.delete(kinds.PODS, name, "default", grace=grace))

    async def bury(self) -> None:
        for name, found in (await self.world.pods()).items():
            if found["metadata"].get("deletionTimestamp"):
                await self.quietly(self.world.hands.delete(kinds.PODS, name, "default", grace=0))

    async def command(self) -> None:
        for found in [each for each in await self.jobs() for _ in range(self.rng.choice([1, 1, 2]))]:
            meta = found["metadata"]
            target = {"apiVersion": found["apiVersion"], "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
            body = {"metadata": {"generateName": "c-"}, "action": self.rng.choice(ACTIONS), "target": target}
            await self.quietly(self.world.hands.create(volcano.COMMANDS, body, "default"))

    async def foresee(self) -> None:
        """A Command for a Job that is not there, or is another one."""
        name = f"j{self.rng.randint(0, 3)}"
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name, "uid": "nobody's"}
        body = {"metadata": {"generateName": "c-"}, "action": self.rng.choice(ACTIONS), "target": target}
        await self.quietly(self.world.hands.create(volcano.COMMANDS, body, "default"))
        if self.rng.random() < 0.5:
            await self.submit()

    async def scale(self) -> None:
        for found in await self.jobs():
            tasks = [self.scaled(each) for each in found["spec"]["tasks"]]
            spec = {"tasks": tasks, "minAvailable": self.rng.randint(0, sum(each["replicas"] for each in tasks))}
            await self.quietly(self.world.hands.patch(volcano.JOBS, found["metadata"]["name"], {"spec": spec}, "default"))

    def scaled(self, there: Json) -> Json:
        """A task of another size, also of none."""
        parts = there.get("partitionPolicy", {"partitionSize": 1, "minPartitions": 0})
        least = parts["minPartitions"]
        replicas = parts["partitionSize"] * self.rng.randint(least, 4)
        left = {key: value for key, value in there.items() if key != "minAvailable"}
        if not least and self.rng.random() < 0.5:
            left["minAvailable"] = self.rng.randint(0, replicas)
        return {**left, "replicas": replicas}

    async def rewrite(self) -> None:
        """A Job is changed in ways that no webhook would let through."""
        for found in (await self.jobs())[:1]:
            new = self.random_job(found["metadata"]["name"])["spec"]
            free = [] if found["spec"].get("plugins") else ["tasks"]  # flags of plugins name tasks
            keys = self.rng.sample(["policies", "maxRetry", "minSuccess", "ttlSecondsAfterFinished", *free], 2)
            spec = {key: new.get(key) for key in keys}
            if "tasks" in keys:
                spec["minAvailable"] = self.rng.randint(0, sum(each["replicas"] for each in new["tasks"]))
            await self.quietly(self.world.hands.patch(volcano.JOBS, found["metadata"]["name"], {"spec": spec}, "default"))

    async def lose_group(self) -> None:
        lacks = {"type": "Unschedulable", "status": "True", "lastTransitionTime": stamp(self.world.clock.now())}
        for name in await self.world.groups():
            await self.world.mark_group(name, phase="Unknown", **{"conditions": [lacks]} if self.rng.random() < 0.5 else {})

    async def take_group(self) -> None:
        """Somebody deletes a PodGroup, or changes what it says."""
        for name in (await self.world.groups()) if self.rng.random() < 0.5 else ():
            await self.quietly(self.world.hands.delete(volcano.POD_GROUPS, name, "default"))
            return
        for name in await self.world.groups():
            await self.quietly(self.world.hands.patch(volcano.POD_GROUPS, name, {"spec": {"minMember": 9}}, "default"))

    async def write_over(self) -> None:
        """Somebody writes into the status what the controller counts."""
        for found in await self.jobs():
            status = {"running": self.rng.randint(0, 9), "pending": None}
            name = found["metadata"]["name"]
            await self.quietly(self.world.hands.patch(volcano.JOBS, name, {"status": status}, "default", subresource="status"))

    async def close_queue(self) -> None:
        """No group may be made in it, as the webhook says, until somebody opens it."""
        await self.mark_queue("Open" if self.closed else "Closed")

    async def mark_queue(self, state: str) -> None:
        self.closed = state == "Closed"
        await self.quietly(self.world.hands.patch(volcano.QUEUES, "default", {"status": {"state": state}}, subresource="status"))

    async def wait(self) -> None:
        await self.world.clock.sleep(self.rng.choice([3.0, 31.0, 61.0]))

    async def kill(self) -> None:
        self.meet()
        await self.world.kill()
        await self.look()
        await self.world.up()

    async def die(self) -> None:
        """The controller dies between two of its next writes, or before it hears the answer to one."""
        self.world.cut_off(self.rng.randint(0, 6), carried_out=self.rng.random() < 0.5)
        await self.rng.choice([self.end, self.vanish, self.command, self.run, self.admit, self.scale])()
        await self.world.clock.sleep(self.rng.choice([0.01, 0.1, 1.0]))
        await self.kill()

    async def intrude(self) -> None:
        """Somebody else's pod takes the name of a task's pod, or goes."""
        mine = [name for name, found in (await self.world.pods()).items() if not found["metadata"].get("ownerReferences")]
        for name in mine:
            await self.quietly(self.world.hands.delete(kinds.PODS, name, "default", grace=0))
        for found in (await self.jobs())[:1] if not mine else []:
            name = f"{found['metadata']['name']}-{found['spec']['tasks'][0]['name']}-0"
            body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
            await self.quietly(self.world.hands.create(kinds.PODS, body, "default"))

    async def trouble(self) -> None:
        """The next few writes fail, or their answers are lost."""
        left, lost = [self.rng.randint(1, 4)], self.rng.random() < 0.5
        code = self.rng.choice([0, 409, 429, 500, 504])

        def fault(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
            if verb == "GET" or left[0] == 0 or self.rng.random() < 0.3:
                return None
            left[0] -= 1
            error = ApiError(code, "Fault" if code else self.rng.choice(["Fault", NO_ANSWER]), "it is so",
                             retry_after=2.0 if code == 429 else 0.0)  # fmt: skip
            return (error, True) if lost and code not in (409, 429) else error

        self.meet(fault)

    def meet(self, fault: Fault = lambda verb, path: None) -> None:
        """Requests come to this, and none makes a group in a queue that is closed."""
        refusal = ApiError(403, "Forbidden", "can only submit PodGroup to queue with state `Open`")

        def closed(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
            return refusal if self.closed and verb == "POST" and path.endswith("/podgroups") else fault(verb, path)

        self.world.cluster.fault = closed

    async def lag(self) -> None:
        """The watches end, and are not answered for a while, or their versions are forgotten: all is listed again."""
        self.world.cluster.hang_up(forget=self.rng.random() < 0.5, seconds=self.rng.choice([0.0, 1.0, 20.0]))

    async def delete(self) -> None:
        for found in (await self.jobs())[:1]:
            self.graves.append(found["metadata"]["uid"])
            await self.quietly(self.world.hands.delete(volcano.JOBS, found["metadata"]["name"], "default"))

    async def collect(self) -> None:
        """The garbage collector comes by."""
        dying = {found["metadata"]["uid"]: found["metadata"]["name"] for found in await self.jobs()
                 if found["metadata"].get("deletionTimestamp")}  # fmt: skip
        for kind in (kinds.PODS, volcano.POD_GROUPS, SERVICES, NETWORK_POLICIES, SECRETS, kinds.CONFIGMAPS,
                     kinds.PERSISTENT_VOLUME_CLAIMS):
            for found in (await self.world.hands.list(kind, "default"))["items"]:
                owners = {each["uid"] for each in found["metadata"].get("ownerReferences", ())}
                if owners & {*self.graves, *dying}:
                    grace = {"grace": 0} if kind is kinds.PODS else {}
                    await self.quietly(self.world.hands.delete(kind, found["metadata"]["name"], "default", **grace))
        for name in dying.values():
            await self.quietly(self.world.hands.patch(volcano.JOBS, name, {"metadata": {"finalizers": None}}, "default"))

    async def some_pods(self, phase: str = "") -> list[str]:
        there = [name for name, found in (await self.world.pods()).items()
                 if phase in ("", found["status"].get("phase")) and not found["metadata"].get("deletionTimestamp")]  # fmt: skip
        return self.rng.sample(there, self.rng.randint(0, len(there)))

    async def jobs(self) -> list[Json]:
        return list((await self.world.hands.list(volcano.JOBS))["items"])

    async def quietly(self, call: Any) -> None:
        with suppress(ApiError):
            await call

    # -- what must hold -----------------------------------------------------------------------------------------------

    async def look(self) -> None:
        for found in await self.jobs():
            self.check_status(found)

    def check_status(self, found: Json) -> None:
        status = found.get("status") or {}
        before, self.last[found["metadata"]["uid"]] = self.last.get(found["metadata"]["uid"], {}), status
        way = ["", *(each["status"] for each in status.get("conditions", ()))]
        assert way[: len(before.get("conditions", ())) + 1] == ["", *(c["status"] for c in before.get("conditions", ()))]
        phase = (status.get("state") or {}).get("phase", "")
        assert phase == way[-1] or (way, phase) == ([""], "Pending")
        assert all(step in LEGAL for step in pairwise(way)), way
        assert set(way[1:]) <= set(PHASES)
        restarts = sum(to == "Restarting" != was for was, to in pairwise(way))
        assert status.get("retryCount", 0) == restarts, way
        assert status.get("version", 0) >= before.get("version", 0)

    async def calm(self) -> None:
        """No more trouble: everybody does what is left to do. Then look at what there is."""
        self.meet()
        await self.mark_queue("Open")
        await self.intrude()
        if any(not found["metadata"].get("ownerReferences") for found in (await self.world.pods()).values()):
            await self.intrude()
        for _ in range(8):
            await self.collect()
            await self.bury()
            await self.admit_waiting()
            await self.world.clock.sleep(40)
        await self.look()
        sent = dict(self.world.cluster.requests)
        await self.world.clock.sleep(300)
        written = {verb: count - sent.get(verb, 0) for verb, count in self.world.cluster.requests.items() if verb != "GET"}
        assert not any(written.values()), f"somebody still writes: {written}"
        assert not (await self.world.hands.list(volcano.COMMANDS))["items"], "a Command is left"
        pods, groups = await self.world.pods(), await self.world.groups()
        for found in await self.jobs():
            self.check_rest(found, pods, groups)
            await self.check_beside(found)
        owners = {found["metadata"]["uid"] for found in await self.jobs()}
        assert all(owners & set(owned(each)) for each in (*pods.values(), *groups.values())), "an orphan"

    async def admit_waiting(self) -> None:
        for name, found in (await self.world.groups()).items():
            if found["status"].get("phase") == "Pending":
                await self.world.mark_group(name, phase="Inqueue")

    def check_rest(self, found: Json, pods: dict[str, Json], groups: dict[str, Json]) -> None:
        meta, status = found["metadata"], found["status"]
        mine = {name: pod for name, pod in pods.items() if meta["uid"] in owned(pod)}
        live = {name for name, pod in mine.items() if pod["status"]["phase"] in ("Pending", "Running")}
        phase = status["state"]["phase"]
        assert phase in (*LIVING, *FINISHED, "Aborted"), f"{phase} is no place to rest"
        if phase in LIVING:
            every = {each["name"]: seats(meta["name"], each) for each in found["spec"]["tasks"]}
            assert set(mine) <= set[str]().union(*every.values())
            for each in found["spec"]["tasks"]:
                assert every[each["name"]] <= set(mine) or waits(each, found["spec"]["tasks"], mine)
            versions = {mine[name]["metadata"]["annotations"]["volcano.sh/job-version"] for name in live}
            assert versions <= {str(status.get("version", 0))}
        else:
            assert not live
            assert not any(meta["uid"] in owned(group) for group in groups.values())
        for kind, count in {"pending": "Pending", "running": "Running", "succeeded": "Succeeded", "failed": "Failed"}.items():
            assert status.get(kind, 0) == sum(pod["status"]["phase"] == count for pod in mine.values())


    async def check_beside(self, found: Json) -> None:
        """Check that objects of plugins exist while the Job lives, and have the number of pods."""
        name, spec = found["metadata"]["name"], found["spec"]
        if found["status"]["state"]["phase"] not in LIVING:
            assert not any(key.startswith("plugin-") for key in found["status"].get("controlledResources", ()))
            return
        plugins = {*spec.get("plugins", ()), *(need for each in spec.get("plugins", ()) for need in NEEDS.get(each, ()))}
        hosts = await self.world.found(kinds.CONFIGMAPS, f"{name}-svc")
        assert (hosts is not None) == (await self.world.found(SERVICES, name) is not None) == ("svc" in plugins)
        assert (await self.world.found(SECRETS, f"{name}-ssh") is not None) == ("ssh" in plugins)
        if hosts is not None:
            counts = {each["name"]: hosts["data"][f"VC_{each['name'].upper()}_NUM"] for each in spec["tasks"]}
            assert counts == {each["name"]: str(each["replicas"]) for each in spec["tasks"]}


def seats(job_name: str, task: Json) -> set[str]:
    """The names of a task's pods."""
    return {f"{job_name}-{task['name']}-{index}" for index in range(task["replicas"])}


def waits(task: Json, tasks: list[Json], pods: dict[str, Json]) -> bool:
    """Return whether what a task depends on is not up (Volcano pkg/controllers/job)."""
    needs = task.get("dependsOn", {"name": []})
    met = [up(other, pods) for other in tasks if other["name"] in needs["name"]]
    return bool(met) and not (any if needs["iteration"] == "any" else all)(met)


def up(task: Json, pods: dict[str, Json]) -> bool:
    """Return whether as many pods of a task have succeeded, or run and are ready, as must stand."""
    parts = task.get("partitionPolicy", {"partitionSize": 0, "minPartitions": 0})
    least = task.get("minAvailable", parts["partitionSize"] * parts["minPartitions"] or task["replicas"])
    there = [pod["status"] for pod in pods.values() if pod["metadata"]["labels"]["volcano.sh/task-spec"] == task["name"]]
    return least <= sum(each["phase"] == "Succeeded" or (each["phase"] == "Running" and each["containerStatuses"][0]["ready"])
                        for each in there)  # fmt: skip


def owned(obj: Json) -> Iterator[str]:
    return (each["uid"] for each in obj["metadata"].get("ownerReferences", ()))


def play(seed: int) -> None:
    async def story() -> None:
        async with job_world(told_to_wait=bool(seed % 2)) as world:
            history = History(world, seed)
            try:
                await history.play()
                await history.calm()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, after {' '.join(history.reported)}: {error}") from error

    run_virtually(story())


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_whatever_happens_to_a_job_its_phases_retries_and_pods_are_right(seed: int) -> None:
    play(seed)


@pytest.mark.soak
@pytest.mark.timeout(36000)
def test_the_same_over_a_million_events() -> None:
    first = int(os.environ.get("PUMICE_SOAK_JOBS_FROM", "1000000"))
    for seed in range(first, first + int(os.environ.get("PUMICE_SOAK_JOBS", "20000"))):
        play(seed)
