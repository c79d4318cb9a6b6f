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
from kit.job_world import JobWorld, job, job_world, on, task
from kit.virtual_time import run_virtually

from pumice.controllers.job.phases import ACTIONS, FINISHED, LIVING, MOVES, PHASES, STEPS
from pumice.ports.cluster import ApiError, Json
from pumice.wire import volcano
from pumice.wire.batch import NETWORK_POLICIES, SERVICES

HISTORIES = int(os.environ.get("PUMICE_JOB_HISTORIES", "40"))
STEPS_EACH = 50
EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown", "*")
LEGAL = {
    *((phase, move.to) for phase, moves in MOVES.items() for move in moves.values()),
    *((phase, to) for phase, nexts in STEPS.items() for to in nexts),
    *(("", phase) for phase in ("Restarting", "Aborting", "Terminating", "Completing")),  # an action before the first status
}


class History:
    """One world with its Jobs, and what must hold of every status that is written."""

    def __init__(self, world: JobWorld, seed: int) -> None:
        self.world, self.dice = world, Random(seed)
        self.last: dict[str, Json] = {}
        """Uid of a Job to its status as it was last seen."""
        self.told: list[str] = []
        self.graves: list[str] = []
        """Uids of deleted Jobs whose things the garbage collector has not taken yet."""

    # -- what happens -------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        await self.world.hands.create(volcano.JOBS, self.random_job("j0"), "default")
        for _ in range(STEPS_EACH):
            step = self.dice.choices(
                [self.submit, self.admit, self.run, self.end, self.restart, self.vanish, self.bury, self.command, self.scale,
                 self.lose_group, self.kill, self.die, self.trouble, self.delete, self.collect, self.intrude],
                [2, 8, 12, 6, 2, 5, 8, 3, 2, 1, 2, 3, 4, 1, 2, 1])[0]  # fmt: skip
            self.told.append(step.__name__)
            await step()
            await self.world.clock.sleep(self.dice.choice([0.0, 0.0, 0.01, 0.3, 1.0]))
            await self.look()

    def random_job(self, job_name: str) -> Json:
        dice = self.dice
        called = dice.sample("abc", dice.randint(1, 2))
        tasks = [task(name, dice.randint(1, 3), policies=self.policies(0.3)) for name in called]
        fields: dict[str, Any] = {"policies": self.policies(0.8), "maxRetry": dice.randint(1, 4)}
        if dice.random() < 0.5:
            fields["minAvailable"] = dice.randint(1, sum(each["replicas"] for each in tasks))
        if dice.random() < 0.3:
            fields["plugins"] = {"svc": [], "env": []}
        if dice.random() < 0.2:
            fields["minSuccess"] = 1
        return job(job_name, *tasks, **fields)

    def policies(self, likely: float) -> list[Json]:
        dice = self.dice
        if dice.random() > likely:
            return []
        chosen = [on(dice.choice(EVENTS), dice.choice(ACTIONS)), {"exitCode": 3, "action": dice.choice(ACTIONS)}]
        if dice.random() < 0.3:
            chosen.append(on("PodPending", dice.choice(ACTIONS), timeout="5s"))
        return chosen

    async def submit(self) -> None:
        await self.quietly(self.world.hands.create(volcano.JOBS, self.random_job(f"j{self.dice.randint(0, 1)}"), "default"))

    async def admit(self) -> None:
        for name in await self.world.groups():
            await self.world.mark_group(name, phase="Inqueue")

    async def run(self) -> None:
        for name in await self.some_pods("Pending"):
            await self.world.run(name)

    async def end(self) -> None:
        for name in await self.some_pods("Running"):
            code = self.dice.choice([0, 0, 1, 3])
            await self.world.tell(name, "Failed" if code else "Succeeded", state={"terminated": {"exitCode": code}})

    async def restart(self) -> None:
        for name in await self.some_pods("Running"):
            await self.world.tell(name, "Running", ready=True, restartCount=self.dice.randint(1, 3))

    async def vanish(self) -> None:
        for name in (await self.some_pods())[:1]:
            grace = self.dice.choice([0, 30])
            await self.quietly(self.world.hands.delete(volcano.PODS, name, "default", grace=grace))

    async def bury(self) -> None:
        for name, found in (await self.world.pods()).items():
            if found["metadata"].get("deletionTimestamp"):
                await self.quietly(self.world.hands.delete(volcano.PODS, name, "default", grace=0))

    async def command(self) -> None:
        for found in await self.jobs():
            meta = found["metadata"]
            target = {"apiVersion": found["apiVersion"], "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
            body = {"metadata": {"generateName": "c-"}, "action": self.dice.choice(ACTIONS), "target": target}
            await self.quietly(self.world.hands.create(volcano.COMMANDS, body, "default"))

    async def scale(self) -> None:
        for found in await self.jobs():
            tasks = [{**each, "replicas": self.dice.randint(1, 4)} for each in found["spec"]["tasks"]]
            for each in tasks:
                each.pop("minAvailable", None)
            spec = {"tasks": tasks, "minAvailable": self.dice.randint(1, sum(each["replicas"] for each in tasks))}
            await self.quietly(self.world.hands.patch(volcano.JOBS, found["metadata"]["name"], {"spec": spec}, "default"))

    async def lose_group(self) -> None:
        for name in await self.world.groups():
            await self.world.mark_group(name, phase="Unknown")

    async def kill(self) -> None:
        self.world.cluster.fault = lambda verb, path: None
        await self.world.kill()
        await self.look()
        await self.world.up()

    async def die(self) -> None:
        """The controller dies between two of its next writes, or before it hears the answer to one."""
        self.world.cut_off(self.dice.randint(0, 6), carried_out=self.dice.random() < 0.5)
        await self.dice.choice([self.end, self.vanish, self.command, self.run, self.admit, self.scale])()
        await self.world.clock.sleep(self.dice.choice([0.01, 0.1, 1.0]))
        await self.kill()

    async def intrude(self) -> None:
        """Somebody else's pod takes the name of a task's pod, or goes."""
        mine = [name for name, found in (await self.world.pods()).items() if not found["metadata"].get("ownerReferences")]
        for name in mine:
            await self.quietly(self.world.hands.delete(volcano.PODS, name, "default", grace=0))
        for found in (await self.jobs())[:1] if not mine else []:
            name = f"{found['metadata']['name']}-{found['spec']['tasks'][0]['name']}-0"
            body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
            await self.quietly(self.world.hands.create(volcano.PODS, body, "default"))

    async def trouble(self) -> None:
        """The next few writes fail, or their answers are lost."""
        left, lost = [self.dice.randint(1, 4)], self.dice.random() < 0.5
        code = self.dice.choice([0, 409, 500])

        def fault(verb: str, path: str) -> ApiError | tuple[ApiError, bool] | None:
            if verb == "GET" or left[0] == 0 or self.dice.random() < 0.3:
                return None
            left[0] -= 1
            error = ApiError(code, "Fault", "it is so")
            return (error, True) if lost and code != 409 else error

        self.world.cluster.fault = fault

    async def delete(self) -> None:
        for found in (await self.jobs())[:1]:
            self.graves.append(found["metadata"]["uid"])
            await self.quietly(self.world.hands.delete(volcano.JOBS, found["metadata"]["name"], "default"))

    async def collect(self) -> None:
        """The garbage collector comes by."""
        for kind in (volcano.PODS, volcano.POD_GROUPS, SERVICES, NETWORK_POLICIES, volcano.CONFIGMAPS):
            for found in (await self.world.hands.list(kind, "default"))["items"]:
                owners = {each["uid"] for each in found["metadata"].get("ownerReferences", ())}
                if owners & set(self.graves):
                    grace = {"grace": 0} if kind is volcano.PODS else {}
                    await self.quietly(self.world.hands.delete(kind, found["metadata"]["name"], "default", **grace))

    async def some_pods(self, phase: str = "") -> list[str]:
        there = [name for name, found in (await self.world.pods()).items()
                 if phase in ("", found["status"].get("phase")) and not found["metadata"].get("deletionTimestamp")]  # fmt: skip
        return self.dice.sample(there, self.dice.randint(0, len(there)))

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
        assert (status.get("state") or {}).get("phase", "") == way[-1]
        assert all(step in LEGAL for step in pairwise(way)), way
        assert set(way[1:]) <= set(PHASES)
        restarts = sum(to == "Restarting" != was for was, to in pairwise(way))
        assert status.get("retryCount", 0) == restarts, way
        assert status.get("version", 0) >= before.get("version", 0)

    async def calm(self) -> None:
        """No more trouble: everybody does what is left to do. Then look at what there is."""
        self.world.cluster.fault = lambda verb, path: None
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
        pods, groups = await self.world.pods(), await self.world.groups()
        for found in await self.jobs():
            self.check_rest(found, pods, groups)
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
            wanted = {f"{meta['name']}-{each['name']}-{i}" for each in found["spec"]["tasks"] for i in range(each["replicas"])}
            assert set(mine) == wanted
            versions = {mine[name]["metadata"]["annotations"]["volcano.sh/job-version"] for name in live}
            assert versions <= {str(status.get("version", 0))}
        else:
            assert not live
            assert not any(meta["uid"] in owned(group) for group in groups.values())
        for kind, count in {"pending": "Pending", "running": "Running", "succeeded": "Succeeded", "failed": "Failed"}.items():
            assert status.get(kind, 0) == sum(pod["status"]["phase"] == count for pod in mine.values())


def owned(obj: Json) -> Iterator[str]:
    return (each["uid"] for each in obj["metadata"].get("ownerReferences", ()))


def play(seed: int) -> None:
    async def story() -> None:
        async with job_world() as world:
            history = History(world, seed)
            try:
                await history.play()
                await history.calm()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, after {' '.join(history.told)}: {error}") from error

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
