"""Late writes about a pod: it overtakes no Binding, and no successor of the name hears it."""

from __future__ import annotations

from typing import Any

from kit.objects import node, pod
from kit.scheduler_daemon import Daemon, create, daemon
from kit.virtual_time import run_virtually

from pumice.wire import kinds


def slow_conditions(running: Daemon, seconds: float) -> list[str]:
    """The next condition of a pod takes so long to get there; what was asked of the API server from then on."""
    cluster, requested, real = running.cluster, list[str](), running.cluster.request
    waiting = [True]

    async def request(verb: str, path: str, **options: Any) -> bytes:
        if verb == "PATCH" and path.endswith("/status") and "/pods/" in path and waiting.pop():
            waiting.append(False)
            requested.append("condition sent")
            await running.clock.sleep(seconds)
        elif path.endswith("/binding"):
            requested.append("binding sent")
        return await real(verb, path, **options)

    cluster.request = request  # type: ignore[method-assign]
    return requested


async def scheduled(running: Daemon, name: str) -> str:
    found = (await running.cluster.pods())[name].get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in found if each["type"] == "PodScheduled"), "")


def test_a_condition_on_its_way_does_not_come_after_the_binding() -> None:
    async def story() -> None:
        async with daemon(node("n1", cpu="1")) as running:
            requested = slow_conditions(running, 0.5)
            await create(running.cluster, pod("a", cpu="4"))
            await running.clock.sleep(0.2)
            await running.cluster.put_node(node("n2", cpu="8"))
            await running.bind_all("a")
            await running.clock.sleep(2)
            assert requested[:2] == ["condition sent", "binding sent"]
            assert await scheduled(running, "a") == "True"

    run_virtually(story())


def test_a_condition_of_a_pod_that_is_gone_is_not_written_on_the_next_of_its_name() -> None:
    async def story() -> None:
        async with daemon(node("n1", cpu="1")) as running:
            slow_conditions(running, 3)
            await create(running.cluster, pod("a", cpu="4"))
            await running.clock.sleep(0.2)
            await running.cluster.delete(kinds.PODS, "a", "default", grace=0)
            await create(running.cluster, pod("a", cpu="500m"))
            await running.bind_all("a")
            await running.clock.sleep(5)
            assert await scheduled(running, "a") == "True"

    run_virtually(story())
