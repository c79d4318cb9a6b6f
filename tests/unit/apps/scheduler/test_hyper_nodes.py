"""HyperNodes on the API server: the daemon follows them, writes what became of them, and holds gangs to them."""

from __future__ import annotations

from typing import Any

from kit.objects import group, hyper_node, node, pod
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import run_virtually

from pumice.wire import volcano
from pumice.wire.objects import Pod, convert
from pumice_jobs.controllers.podgroup import group_body


async def put(running: Any, *hyper_nodes: dict[str, Any]) -> None:
    for obj in hyper_nodes:
        obj["metadata"] = {"name": obj["metadata"]["name"]}
        await running.cluster.create(volcano.HYPER_NODES, obj)


def test_the_daemon_writes_what_became_of_hyper_nodes_and_holds_gangs_to_them() -> None:
    async def story() -> None:
        async with daemon(*[node(f"n{i}", cpu="2") for i in range(4)]) as running:
            await put(running, hyper_node("s0", 1, "n0", "n1"))
            await running.clock.sleep(1)
            await put(running, hyper_node("s1", 1, "n1", "n2", "n3"))
            requested = {"mode": "hard", "highestTierAllowed": 1}
            await create(running.cluster, group("g", minimum=4, topology=requested))
            await create(running.cluster, *[pod(f"g-{i}", cpu="1", group="g") for i in range(4)])
            await running.bind_all(*[f"g-{i}" for i in range(4)])
            await running.clock.sleep(1)
            pods = await running.cluster.pods()
            assert {pods[f"g-{i}"]["spec"]["nodeName"] for i in range(4)} in ({"n0", "n1"}, {"n2", "n3"})
            status = (await running.cluster.get(volcano.HYPER_NODES, "s1"))["status"]
            assert status["nodeCount"] == 2
            (condition,) = status["conditions"]
            assert condition["lastTransitionTime"]
            assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
                "Accepted", "False", "MembersRefused", "overlap: n1 belong to s0 already")  # fmt: skip
            (event,) = await running.events("MembersRefused")
            assert event == condition["message"]
            await running.cluster.delete(volcano.HYPER_NODES, "s0")
            await running.clock.sleep(1)
            assert (await running.cluster.get(volcano.HYPER_NODES, "s1"))["status"]["nodeCount"] == 3

    run_virtually(story())


def test_a_pods_annotations_stand_in_the_podgroup_that_is_made_for_it() -> None:
    requested = {"volcano.sh/network-topology-mode": "soft", "volcano.sh/network-topology-highest-tier": "2"}
    body = group_body(convert(Pod, pod("a", annotations=requested)), {})
    assert body["spec"]["networkTopology"] == {"mode": "soft", "highestTierAllowed": 2}
    assert "networkTopology" not in group_body(convert(Pod, pod("a")), {})["spec"]
