"""A gang whose Bindings meet an outage, or are refused for good: no pod that nobody would make anew is ever deleted, time in
which the API server was away does not count, and what was refused is told and tried again ever more rarely."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from kit.objects import group, node, pod, priority_class
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.apps.scheduler.binder import BROKEN_GANG
from pumice.apps.scheduler.daemon import Settings
from pumice.ports.cluster import ApiError, Resource
from pumice.scheduler.state.jobs import Status
from pumice.wire.kinds import PODS, PRIORITY_CLASSES

SIZE = 4
AWAY = ApiError(0, "Unreachable", "connection refused")
FORBIDDEN = "admission webhook denied the request: no node for you"


def gang(owner: str = "") -> list[dict[str, Any]]:
    return [group("g", minimum=SIZE), *(pod(f"g-{i}", mib=8000, group="g", owner=owner) for i in range(SIZE))]


async def uids(running: Daemon) -> dict[str, str]:
    """Of every pod that is there and is not going."""
    fault, running.cluster.fault = running.cluster.fault, lambda verb, path: None
    pods = await running.cluster.pods()
    running.cluster.fault = fault
    return {name: obj["metadata"]["uid"] for name, obj in pods.items() if not obj["metadata"].get("deletionTimestamp")}


class Outage:
    """From the k-th Binding on, the API server is away for some seconds: it refuses connections, or never answers."""

    def __init__(self, running: Daemon, first: int, seconds: float, *, silent: bool) -> None:
        self.running, self.first, self.seconds = running, first, seconds
        self.count, self.over_at = 0, 0.0
        cluster = running.cluster
        cluster.fault = self.refuse
        if silent:
            self.request = cluster.request
            cluster.request = self.hang  # type: ignore[method-assign]

    def away(self, path: str) -> bool:
        now = self.running.clock.monotonic()
        if path.endswith("/binding") and not self.over_at:
            self.count += 1
            if self.count > self.first:
                self.over_at = now + self.seconds
        return now < self.over_at

    def refuse(self, verb: str, path: str) -> ApiError | None:
        return AWAY if self.away(path) else None

    async def hang(self, verb: str, path: str, **rest: Any) -> bytes:
        while self.away(path):
            await self.running.clock.sleep(0.5)
        return await self.request(verb, path, **rest)


@pytest.mark.parametrize("owner", ["", "job"], ids=["bare", "of a Job"])
@pytest.mark.parametrize("silent", [False, True], ids=["refusing connections", "never answering"])
@pytest.mark.parametrize("seconds", [3, 7, 30, 180])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_an_outage_amid_the_bindings_of_a_gang_deletes_nobody(first: int, seconds: float, silent: bool, owner: str) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            Outage(running, first, seconds, silent=silent)
            await create(running.cluster, *gang(owner))
            before = await uids(running)
            await running.clock.sleep(seconds + 15)
            running.cluster.fault = lambda verb, path: None
            assert await uids(running) == before
            assert await running.bound(*before)
            await running.audit()

    run_virtually(story())


class Policy:
    """Refuses the Binding of one pod, a moment after the others are bound, until it is lifted."""

    def __init__(self, running: Daemon, name: str, code: int = 403) -> None:
        self.tries: list[float] = []
        self.lifted = False
        bind = running.cluster.bind

        async def guarded(namespace: str, pod_name: str, body: bytes) -> None:
            if pod_name == name and not self.lifted:
                self.tries.append(running.clock.monotonic())
                await running.clock.sleep(0.1)
                raise ApiError(code, "Forbidden", FORBIDDEN)
            await bind(namespace, pod_name, body)

        running.cluster.bind = guarded  # type: ignore[method-assign]


@pytest.mark.parametrize("code", [403, 422])
@pytest.mark.parametrize("name", ["g-0", "g-3"])
def test_a_member_that_policy_refuses_is_told_and_tried_ever_more_rarely_and_the_bare_others_stay(name: str, code: int) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            policy = Policy(running, name, code)
            await create(running.cluster, *gang())
            before = await uids(running)
            await running.clock.sleep(300)
            assert await uids(running) == before
            assert FORBIDDEN in await running.condition(name)
            assert any(BROKEN_GANG in text and FORBIDDEN in text for text in await running.events("FailedScheduling"))
            assert len(policy.tries) < 15
            assert max(b - a for a, b in pairwise(policy.tries)) > 30
            policy.lifted = True
            await running.clock.sleep(70)
            assert await running.bound(*before)
            await running.audit()

    run_virtually(story())


@pytest.mark.parametrize("shape", ["of a Job", "bare, where the option says so"])
def test_members_that_may_be_deleted_go_when_policy_refuses_one_and_the_gang_waits(shape: str) -> None:
    async def story() -> None:
        bare = shape != "of a Job"
        async with daemon(node("n1", cards=8), settings=Settings(evict_bare_pods=bare)) as running:  # those that go hold theirs
            policy = Policy(running, "g-3")
            await create(running.cluster, *gang("" if bare else "job"))
            await running.clock.sleep(0.5)
            assert set(await uids(running)) == {"g-3"}
            for number in range(3):  # as its controller would
                await create(running.cluster, pod(f"h-{number}", mib=8000, group="g", owner="job"))
            await running.clock.sleep(0.3)
            assert not any([await running.bound(f"h-{i}") for i in range(3)])  # it is held back
            policy.lifted = True
            await running.bind_all("g-3", "h-0", "h-1", "h-2")

    run_virtually(story())


def test_what_was_not_sent_when_a_member_was_refused_is_not_sent() -> None:
    """With one Binding at a time the first refusal leaves nobody in part."""

    async def story() -> None:
        async with daemon(node("n1", cards=4), settings=Settings(bind_concurrency=1)) as running:
            sent: list[str] = []

            def fault(verb: str, path: str) -> ApiError | None:
                if not path.endswith("/binding"):
                    return None
                sent.append(path)
                return ApiError(403, "Forbidden", FORBIDDEN)

            running.cluster.fault = fault
            await create(running.cluster, *gang())
            await running.clock.sleep(0.5)
            assert len(sent) == 1

    run_virtually(story())


@pytest.mark.parametrize("outage", [0.0, 20.0])
def test_a_successor_deletes_no_bare_member_of_a_gang_that_was_left_half_bound(outage: float) -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            running.cluster.fault = lambda verb, path: AWAY if path.endswith(("/g-2/binding", "/g-3/binding")) else None
            await create(running.cluster, *gang())
            before = await uids(running)
            await running.clock.sleep(0.5)
            await running.die()
            running.cluster.fault = lambda verb, path: None
            if outage:
                Outage(running, 0, outage, silent=False)
            else:
                Policy(running, "g-3")
            heir = running.heir()
            await running.clock.sleep(40)
            assert await uids(heir) == before
            assert (await heir.bound(*before)) is bool(outage)

    run_virtually(story())


def test_half_a_gang_of_a_job_is_not_given_up_while_the_server_is_away() -> None:
    """A successor gives it five seconds, and an outage is none of them."""

    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            running.cluster.fault = lambda verb, path: AWAY if path.endswith("/g-3/binding") else None
            await create(running.cluster, *gang("job"))
            before = await uids(running)
            await running.clock.sleep(0.5)
            await running.die()
            running.cluster.fault = lambda verb, path: None
            heir = running.heir()
            until = running.clock.monotonic() + 30
            away: Callable[[str], bool] = lambda path: "/pods/g-" in path and running.clock.monotonic() < until  # noqa: E731
            running.cluster.fault = lambda verb, path: AWAY if away(path) else None
            await running.clock.sleep(45)
            assert await uids(heir) == before
            assert await heir.bound(*before)

    run_virtually(story())


@pytest.mark.parametrize("leaders", [1, 2], ids=["the first successor", "the second, for the first one dies"])
def test_a_successor_gives_up_half_a_gang_of_which_members_run_and_whose_room_is_gone(leaders: int) -> None:
    """The phase of its PodGroup still says that it never stood."""

    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            running.cluster.fault = lambda verb, path: AWAY if path.endswith(("/g-2/binding", "/g-3/binding")) else None
            await create(running.cluster, *gang("job"))
            await running.clock.sleep(0.5)
            await running.die()
            running.cluster.fault = lambda verb, path: None
            for name in ("g-0", "g-1"):
                await running.cluster.patch(PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")
            await running.cluster.create(PRIORITY_CLASSES, priority_class("urgent", 100))
            await create(running.cluster, pod("urgent", mib=8000, cores=100, priorityClassName="urgent"))
            for leader in range(leaders):
                heir = running.heir()
                await running.clock.sleep(2.0)
                assert await heir.bound("urgent")
                if leader < leaders - 1:
                    await heir.die()
            assert {"g-0", "g-1"} <= set(await uids(running))
            await running.clock.sleep(8.0)
            assert not {"g-0", "g-1"} & set(await uids(running)), "they hold cards for a gang that cannot stand"

    run_virtually(story())


def test_a_pod_whose_eviction_is_refused_is_counted_as_running_on_and_its_place_is_promised_to_nobody() -> None:
    async def story() -> None:
        async with daemon(node("n1", cards=4)) as running:
            delete = running.cluster.delete

            async def protected(resource: Resource, name: str, namespace: str = "", **rest: Any) -> Any:
                if name.startswith("g-"):
                    raise ApiError(403, "Forbidden", "this pod is protected")
                return await delete(resource, name, namespace, **rest)

            running.cluster.delete = protected  # type: ignore[method-assign]
            Policy(running, "g-3")
            await create(running.cluster, *gang("job"))
            await running.clock.sleep(3)
            await create(running.cluster, pod("later", mib=8000))
            await running.clock.sleep(3)
            state = running.scheduler.engine.state
            shown = {task.name: task.status for task in state.tasks.values() if task.name.startswith("g-")}
            assert shown == {"g-0": Status.BOUND, "g-1": Status.BOUND, "g-2": Status.BOUND, "g-3": Status.PENDING}
            assert not state.ledger.table.releasing_rows
            assert any("this pod is protected" in text for text in await running.events("EvictionRefused"))
            marks = {c["type"]: c["status"] for c in (await running.cluster.pods())["g-0"]["status"]["conditions"]}
            assert marks["DisruptionTarget"] == "False"
            await running.audit()

    run_virtually(story())
