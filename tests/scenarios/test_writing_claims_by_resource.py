"""The claim that the scheduler makes for a pod's extended resources, by the whole daemon on the embedded API server: the order of
its writes, faults and kills at each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kit.device_claims import cards
from kit.objects import node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.claims.by_resource import ANNOTATION, name_for
from pumice.ports.cluster import ApiError
from pumice.wire import kinds

Json = dict[str, Any]
RESOURCE = "example.com/gpu"
WRITES = ("made", "finalizer", "status", "mapping", "binding")
PATHS = {"made": ("POST", "/default/resourceclaims"), "mapping": ("PATCH", "/pods/p/status"),
         "binding": ("POST", "/pods/p/binding")}  # fmt: skip


def which(verb: str, path: str) -> str:
    """The name of a write; empty for another call."""
    if verb == "PUT" and "/resourceclaims/p-extended" in path:
        return "status" if path.endswith("/status") else "finalizer"
    return next((name for name, (how, end) in PATHS.items() if verb == how and path.endswith(end)), "")


async def made(running: Daemon) -> list[Json]:
    found = await running.cluster.list(kinds.RESOURCE_CLAIMS, "default")
    return [one for one in found["items"] if one["metadata"].get("annotations", {}).get(ANNOTATION) == "true"]


def run(story: Callable[[Daemon], Awaitable[None]], each: int = 1) -> None:
    async def main() -> None:
        async with daemon(node("n1")) as running:
            body = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": RESOURCE}}
            await running.cluster.create(kinds.DEVICE_CLASSES, body)
            await running.cluster.create(kinds.RESOURCE_SLICES, {k: v for k, v in cards("n1", each).items() if k != "kind"})
            await story(running)

    run_virtually(main())


def test_the_claim_is_made_given_its_devices_and_told_in_the_pods_status_before_the_pod_is_bound() -> None:
    async def story(running: Daemon) -> None:
        done: list[str] = []

        def listening(verb: str, path: str) -> None:
            if name := which(verb, path):
                done.append(name)

        running.cluster.fault = listening  # type: ignore[method-assign]
        await create(running.cluster, pod("p", limits={RESOURCE: "1"}))
        await running.bind_all("p")
        assert done[:5] == list(WRITES)
        (claim,) = await made(running)
        assert [one["name"] for one in claim["status"]["reservedFor"]] == ["p"]
        found = await running.cluster.get(kinds.PODS, "p", "default")
        assert found["status"]["extendedResourceClaimStatus"] == {
            "resourceClaimName": claim["metadata"]["name"],
            "requestMappings": [{"containerName": "main", "resourceName": RESOURCE, "requestName": "container-0-request-0"}],
        }
        assert list(running.scheduler.engine.state.device_claims.validate()) == []

    run(story)


FAULTS = {
    "a conflict": ApiError(409, "Conflict", "somebody was quicker"),
    "a lost answer": (ApiError(0, "Timeout", "no answer"), True),
    "an overloaded server": ApiError(503, "ServiceUnavailable", "later"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_write_is_got_over_with_one_claim(write: str, fault: str) -> None:
    async def story(running: Daemon) -> None:
        left = [FAULTS[fault]] * 2

        def failing(verb: str, path: str) -> Any:
            return left.pop() if left and which(verb, path) == write else None

        running.cluster.fault = failing  # type: ignore[method-assign]
        await create(running.cluster, pod("p", limits={RESOURCE: "1"}))
        await running.bind_all("p")
        (claim,) = await made(running)
        assert [one["name"] for one in claim["status"]["reservedFor"]] == ["p"]
        assert list(running.scheduler.engine.state.device_claims.validate()) == []

    run(story)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_successor_goes_on_with_one_claim_after_a_kill_at_any_write(write: str, carried_out: bool) -> None:
    async def story(running: Daemon) -> None:
        reached = asyncio.Event()

        def killing(verb: str, path: str) -> Any:
            if which(verb, path) == write:
                reached.set()
                return ApiError(0, "NoAnswer", "killed"), carried_out
            return None

        running.cluster.fault = killing  # type: ignore[method-assign]
        await create(running.cluster, pod("p", limits={RESOURCE: "1"}))
        await reached.wait()
        await running.die()
        running.cluster.fault = lambda verb, path: None  # type: ignore[method-assign]
        heir = running.heir()
        await heir.bind_all("p")
        (claim,) = await made(heir)
        assert [one["name"] for one in claim["status"]["reservedFor"]] == ["p"]
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 1

    run(story)


def test_a_claim_of_that_name_that_is_another_pods_is_left_alone_and_the_pod_is_told() -> None:
    async def story(running: Daemon) -> None:
        await create(running.cluster, pod("p", limits={RESOURCE: "1"}, gated=True))
        uid = (await running.cluster.get(kinds.PODS, "p", "default"))["metadata"]["uid"]
        foreign = {"metadata": {"name": name_for("p", uid), "namespace": "default"},
                   "spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu"}}]}}}  # fmt: skip
        await running.cluster.create(kinds.RESOURCE_CLAIMS, foreign, "default")
        await running.cluster.patch(kinds.PODS, "p", {"spec": {"schedulingGates": None}}, "default")
        for _ in range(400):
            found = await running.cluster.get(kinds.PODS, "p", "default")
            if "another claim has its name" in str(await running.cluster.list(kinds.EVENTS, "default")):
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError(found.get("status"))
        assert not found["spec"].get("nodeName")
        theirs = await running.cluster.get(kinds.RESOURCE_CLAIMS, name_for("p", uid), "default")
        assert "allocation" not in theirs.get("status", {})

    run(story)
