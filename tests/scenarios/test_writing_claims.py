"""The writes on claims before a pod is bound, by the whole daemon on the embedded API server: faults and kills at each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kit.device_claims import GPU, cards, whole
from kit.objects import node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.effects.vocabulary import Deallocate
from pumice.ports.cluster import ApiError
from pumice.wire import kinds
from pumice.wire.kubernetes import CLAIM_PROTECTION

Json = dict[str, Any]
CLAIM = "/namespaces/default/resourceclaims/mine"
WRITES = {"finalizer": ("PUT", CLAIM), "status": ("PUT", f"{CLAIM}/status"), "binding": ("POST", "/pods/p/binding")}


async def world(running: Daemon, each: int = 1) -> None:
    await running.cluster.create(kinds.DEVICE_CLASSES, {k: v for k, v in GPU.items() if k != "kind"})
    await running.cluster.create(kinds.RESOURCE_SLICES, {k: v for k, v in cards("n1", each).items() if k != "kind"})
    await claims(running, "mine")


async def claims(running: Daemon, *names: str) -> None:
    for name in names:
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": whole()["spec"]}
        await running.cluster.create(kinds.RESOURCE_CLAIMS, body, "default")


def using(name: str, claim: str = "mine") -> Json:
    return pod(name, cpu="1", resourceClaims=[{"name": "gpu", "resourceClaimName": claim}])


async def claim(running: Daemon, name: str = "mine") -> Json:
    return await running.cluster.get(kinds.RESOURCE_CLAIMS, name, "default")


def users(found: Json) -> list[str]:
    return [one["name"] for one in found.get("status", {}).get("reservedFor", ())]


def run(story: Callable[[Daemon], Awaitable[None]]) -> None:
    async def main() -> None:
        async with daemon(node("n1")) as running:
            await world(running)
            await story(running)

    run_virtually(main())


def test_a_claim_has_its_finalizer_its_devices_and_its_pod_before_the_pod_is_bound() -> None:
    async def story(running: Daemon) -> None:
        done: list[str] = []

        def fault(verb: str, path: str) -> None:
            done.extend(name for name, (how, where) in WRITES.items() if verb == how and path.endswith(where))

        running.cluster.fault = fault  # type: ignore[method-assign]
        await create(running.cluster, using("p"))
        await running.bind_all("p")
        found = await claim(running)
        assert done == ["finalizer", "status", "binding"]
        assert found["metadata"]["finalizers"] == [CLAIM_PROTECTION]
        allocation = found["status"]["allocation"]
        assert allocation["devices"]["results"] == [
            {"request": "g", "driver": "gpu.example.com", "pool": "n1", "device": "card-0"}
        ]
        assert allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["n1"]
        assert users(found) == ["p"]

    run(story)


FAULTS = {
    "a conflict": ApiError(409, "Conflict", "somebody was quicker"),
    "a lost answer": (ApiError(0, "Timeout", "no answer"), True),
    "an overloaded server": ApiError(503, "ServiceUnavailable", "later"),
    "a refusal for good": ApiError(403, "Forbidden", "not now"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_write_is_got_over(write: str, fault: str) -> None:  # acceptance case 20
    async def story(running: Daemon) -> None:
        left = [FAULTS[fault]] * 2

        def failing(verb: str, path: str) -> Any:
            how, where = WRITES[write]
            return left.pop() if left and verb == how and path.endswith(where) else None

        running.cluster.fault = failing  # type: ignore[method-assign]
        await create(running.cluster, using("p"))
        await running.bind_all("p")
        assert users(await claim(running)) == ["p"]
        assert list(running.scheduler.engine.state.device_claims.validate()) == []

    run(story)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("carried_out", [False, True])
def test_a_successor_gets_over_a_kill_at_any_write(write: str, carried_out: bool) -> None:  # acceptance case 20
    async def story(running: Daemon) -> None:
        reached = asyncio.Event()

        def killing(verb: str, path: str) -> Any:
            how, where = WRITES[write]
            if verb == how and path.endswith(where):
                reached.set()
                return ApiError(0, "NoAnswer", "killed"), carried_out
            return None

        running.cluster.fault = killing  # type: ignore[method-assign]
        await create(running.cluster, using("p"))
        await reached.wait()
        await running.die()
        running.cluster.fault = lambda verb, path: None  # type: ignore[method-assign]
        heir = running.heir()
        await heir.bind_all("p")
        found = await claim(heir)
        assert users(found) == ["p"]
        assert len(found["status"]["allocation"]["devices"]["results"]) == 1

    run(story)


def test_devices_of_a_pod_that_cannot_be_bound_are_given_back() -> None:
    async def story(running: Daemon) -> None:
        await claims(running, "other")

        def fault(verb: str, path: str) -> Any:
            return ApiError(403, "Forbidden", "never") if path.endswith("/pods/p/binding") else None

        running.cluster.fault = fault  # type: ignore[method-assign]
        await create(running.cluster, using("p"))

        async def given_back() -> bool:
            found = await claim(running)
            clear = not found.get("status", {}).get("allocation") and "finalizers" not in found["metadata"]
            return clear and bool(await running.events("FailedScheduling"))

        await running.until(given_back)
        await create(running.cluster, using("q", "other"))
        await running.bind_all("q")
        assert users(await claim(running, "other")) == ["q"]

    run(story)


@pytest.mark.parametrize(("at", "written"), [("status", []), ("binding", ["p"])])
def test_a_scheduler_that_has_lost_the_lease_writes_no_claim_and_takes_none_back(at: str, written: list[str]) -> None:
    """The pod may run by its successor's Binding."""

    async def story(running: Daemon) -> None:
        leads = True

        async def allowed() -> bool:
            return leads

        def fault(verb: str, path: str) -> Any:
            nonlocal leads
            how, where = WRITES[at]
            if leads and verb == how and path.endswith(where):
                leads = False
                return ApiError(409, "Conflict", "somebody was quicker")
            return None

        running.scheduler.claim_writes.allowed = allowed
        running.cluster.fault = fault  # type: ignore[method-assign]
        await create(running.cluster, using("p"))

        async def told() -> bool:
            return bool(await running.events("FailedScheduling"))

        await running.until(told)
        await running.clock.sleep(30)
        assert users(await claim(running)) == written

    run(story)


def test_a_claim_of_a_pod_that_runs_is_not_given_back_where_its_binding_was_not_seen_yet() -> None:
    async def story(running: Daemon) -> None:
        await create(running.cluster, using("p"))
        await running.bind_all("p")
        held = await claim(running)
        [user] = held["status"]["reservedFor"]
        give_back = running.scheduler.claim_writes.deallocate
        await give_back(Deallocate("default", "mine", held["metadata"]["uid"], user["uid"]))
        assert users(await claim(running)) == ["p"]
        await running.cluster.delete(kinds.PODS, "p", "default", grace=0)
        await give_back(Deallocate("default", "mine", held["metadata"]["uid"], user["uid"]))
        assert "allocation" not in (await claim(running)).get("status", {})

    run(story)


def test_another_scheduler_that_was_quicker_keeps_the_claim() -> None:
    async def story(running: Daemon) -> None:
        taken = {"devices": {"results": [{"request": "g", "driver": "gpu.example.com", "pool": "n1", "device": "card-0"}]}}
        once = [True]

        def fault(verb: str, path: str) -> Any:
            if once and verb == "PUT" and path.endswith(CLAIM):
                once.clear()
                return ApiError(409, "Conflict", "somebody was quicker")
            return None

        running.cluster.fault = fault  # type: ignore[method-assign]
        found = await claim(running)
        found["status"] = {"allocation": taken, "reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}]}
        await create(running.cluster, using("p"))
        await running.cluster.update(kinds.RESOURCE_CLAIMS, found, subresource="status")
        await running.bind_all("p")
        assert users(await claim(running)) == ["x", "p"]

    run(story)


@pytest.mark.parametrize("before", ["", "status"], ids=["the finalizer", "the status"])
def test_a_claim_deleted_between_the_decision_and_a_write_leaves_its_device_to_the_next_and_its_pod_waits(before: str) -> None:
    async def story(running: Daemon) -> None:
        update, gone = running.scheduler.claim_writes.cluster.update, []

        async def deleting(resource: Any, body: Json, **more: Any) -> Json:
            if resource == kinds.RESOURCE_CLAIMS and more.get("subresource", "") == before and not gone:
                gone.append(body["metadata"]["name"])
                found = await claim(running)
                await update(kinds.RESOURCE_CLAIMS, {**found, "metadata": {**found["metadata"], "finalizers": []}})
                await running.cluster.delete(kinds.RESOURCE_CLAIMS, "mine", "default")
            return await update(resource, body, **more)

        running.scheduler.claim_writes.cluster.update = deleting
        await create(running.cluster, using("p"))

        async def told() -> bool:
            return 'claim mine: resourceclaims.resource.k8s.io "mine" not found' in str(await running.events("FailedScheduling"))

        await running.until(told)
        assert gone == ["mine"]
        await claims(running, "other")
        await create(running.cluster, using("q", "other"))
        await running.bind_all("q")
        assert users(await claim(running, "other")) == ["q"]
        assert not (await running.cluster.get(kinds.PODS, "p", "default"))["spec"].get("nodeName")
        assert list(running.scheduler.engine.state.device_claims.validate()) == []

    run(story)


def test_a_claim_that_went_before_the_answer_to_a_write_on_it_holds_nothing() -> None:
    async def story(running: Daemon) -> None:
        update, state = running.scheduler.claim_writes.cluster.update, running.scheduler.engine.state.device_claims
        late: list[Json] = []

        async def slow(resource: Any, body: Json, **more: Any) -> Json:
            answer = await update(resource, body, **more)
            if resource == kinds.RESOURCE_CLAIMS and more.get("subresource") and not late:
                late.append(answer)
                freed = {**answer, "metadata": {**answer["metadata"], "finalizers": []}}
                await update(kinds.RESOURCE_CLAIMS, freed)
                await running.cluster.delete(kinds.RESOURCE_CLAIMS, "mine", "default")
                while "default/mine" in state.claims:
                    await running.clock.sleep(0.1)
            return answer

        running.scheduler.claim_writes.cluster.update = slow
        await create(running.cluster, using("p"))

        async def answered() -> bool:
            return bool(late) and "default/mine" not in state.claims

        await running.until(answered)
        await running.clock.sleep(1)
        assert "default/mine" not in state.claims

    run(story)


@pytest.mark.parametrize("met", ["Attached", "Broken"])
def test_devices_with_binding_conditions_are_waited_for(met: str) -> None:
    async def story(running: Daemon) -> None:
        found = await running.cluster.get(kinds.RESOURCE_SLICES, "s-n1")
        found["spec"]["devices"][0] |= {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
        await running.cluster.update(kinds.RESOURCE_SLICES, found)
        await create(running.cluster, using("p"))

        async def reserved() -> bool:
            return users(await claim(running)) == ["p"]

        await running.until(reserved)
        await running.clock.sleep(20)
        assert not await running.bound("p")
        held = await claim(running)
        where = {"driver": "gpu.example.com", "pool": "n1", "device": "card-0"}
        said = {"type": met, "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        held["status"]["devices"] = [{**where, "conditions": [said]}]
        await running.cluster.update(kinds.RESOURCE_CLAIMS, held, subresource="status")
        if met == "Attached":
            await running.bind_all("p")
            return

        async def reported() -> bool:
            return any("device card-0 could not be bound: Broken" in one for one in await running.events("FailedScheduling"))

        await running.until(reported)

    run(story)


@pytest.mark.parametrize("code", [403, 404])
def test_without_the_api_or_the_right_the_scheduler_starts_and_says_so(code: int) -> None:
    async def story() -> None:
        def fault(verb: str, path: str) -> Any:
            return ApiError(code, "No", "no claims here") if "/resource.k8s.io/" in path and verb != "WATCH" else None

        async with daemon(node("n1"), fault=fault) as running:
            await create(running.cluster, pod("plain", cpu="1"), using("p"))
            await running.bind_all("plain")

            async def reported() -> bool:
                return "no claim can be allocated" in await running.condition("p")

            await running.until(reported)

    run_virtually(story())


