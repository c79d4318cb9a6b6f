"""Ephemeral containers, as `kubectl debug` adds them: with real processes, beside what the pod runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kit.real_node import Cases, Cluster, outcome

from pumice.ports.cluster import Json
from pumice.wire.kinds import PODS


async def debug(cluster: Cluster, name: str, *command: str, **more: Any) -> None:
    pod = await cluster.kube.get(PODS, "p", "default")
    guests = [*(pod["spec"].get("ephemeralContainers") or ()), {"name": name, "image": "i", "command": list(command), **more}]
    body = json.dumps({"spec": {"ephemeralContainers": guests}}).encode()
    await cluster.kube.request("PATCH", "/api/v1/namespaces/default/pods/p/ephemeralcontainers", body=body,
                               content_type="application/strategic-merge-patch+json")


async def guest(cluster: Cluster, name: str, state: str) -> tuple[Json, Json]:
    """The pod's status, and that of the ephemeral container once it is so far."""
    async with asyncio.timeout(60):
        async for event in cluster.kube.watch(PODS, "default", field_selector="metadata.name=p"):
            if event.type in ("ADDED", "MODIFIED"):
                status = json.loads(event.raw)["status"]
                for shown in status.get("ephemeralContainerStatuses") or ():
                    if shown["name"] == name and state in shown["state"]:
                        return status, shown
    raise AssertionError("the watch ended")


def test_it_runs_beside_the_others_and_nothing_follows_from_its_end(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60", restartPolicy="Always")
        await cluster.until("p", "Running")
        await debug(cluster, "look", "sh", "-c", "echo seen; exit 3")
        status, shown = await guest(cluster, "look", "terminated")
        assert (shown["state"]["terminated"]["exitCode"], shown["restartCount"], shown["ready"]) == (3, 0, False)
        assert await cluster.log("p", container="look") == "seen\n"
        assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == ("Running", 0)
        ready = next(c for c in status["conditions"] if c["type"] == "Ready")
        assert ready["status"] == "True"
        await debug(cluster, "again", "sleep", "60")
        await guest(cluster, "again", "running")
        stdout, _, ended = await cluster.run("p", "echo", "inside", container="again")
        assert (stdout, ended["status"]) == (b"inside\n", "Success")

    on_cluster(work)


def test_a_terminal_without_a_command_is_a_shell(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60")
        await cluster.until("p", "Running")
        await debug(cluster, "shell", stdin=True, tty=True)
        await guest(cluster, "shell", "running")
        async with cluster.exec("p", subresource="attach", container="shell", stdin="true", tty="true", stderr="false") as socket:
            await socket.send_bytes(b"\0echo $((6*7)); exit\n")
            stdout, _, _ = await outcome(socket)
        assert b"42" in stdout
        await guest(cluster, "shell", "terminated")

    on_cluster(work)


def test_the_pods_own_end_is_its_end(on_cluster: Cases) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.pod("p", "sleep 60", terminationGracePeriodSeconds=0)
        await cluster.until("p", "Running")
        await debug(cluster, "long", "sleep", "600")
        await guest(cluster, "long", "running")
        await cluster.kube.delete(PODS, "p", "default")
        async with asyncio.timeout(30):
            while (await cluster.kube.list(PODS, "default"))["items"]:
                await asyncio.sleep(0.05)

    on_cluster(work)
