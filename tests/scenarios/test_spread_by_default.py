"""Pods of one Service or controller that do not say how they want to be spread are spread by Kubernetes' default rules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import node, pod
from kit.scheduler_confs import conf
from kit.scheduler_daemon import create, daemon
from kit.virtual_time import run_virtually

from pumice.wire import kinds

ZONE = "topology.kubernetes.io/zone"
SPREADS = conf("predicates",
               {"nodeorder": {"leastrequested.weight": 0, "balancedresource.weight": 0, "podtopologyspread.weight": "%d"}})
WEB = {"app": "web"}


def web(name: str, *, owner: str = "", kind: str = "ReplicaSet", **shape: Any) -> dict[str, Any]:
    made = pod(name, cpu="1", labels=WEB, **shape)
    if owner:
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": version, "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
        ]  # fmt: skip
    return made


def world_of(weight: int = 2) -> World:
    world = World(SPREADS % weight)
    world.add(node("n0", labels={ZONE: "a"}), node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}))
    return world


def one_by_one(world: World, *pods: dict[str, Any]) -> Counter[str]:
    for obj in pods:
        world.add(obj)
        world.settle(2)
    return Counter(world.node_of(obj["metadata"]["name"]) for obj in pods)


@pytest.mark.parametrize(("kind", "selector"), [
    ("Service", WEB), ("ReplicationController", WEB), ("ReplicaSet", {"matchLabels": WEB}),
    ("StatefulSet", {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]}),
])  # fmt: skip
def test_pods_of_one_workload_are_spread_over_nodes_and_zones(kind: str, selector: dict[str, Any]) -> None:
    world = world_of()
    world.engine.state.classes.workloads.put(kind, "default", "web", selector)
    owner = {} if kind == "Service" else {"owner": "web", "kind": kind}
    assert one_by_one(world, *[web(f"p{i}", **owner) for i in range(4)]) == {"n0": 1, "n1": 1, "n2": 2}


def test_pods_of_nothing_and_where_nobody_scores_spreading_are_not_spread() -> None:
    world = world_of()
    assert one_by_one(world, *[web(f"p{i}") for i in range(3)]) == {"n0": 3}
    world = world_of(0)
    world.engine.state.classes.workloads.put("Service", "default", "web", WEB)
    assert one_by_one(world, *[web(f"p{i}") for i in range(3)]) == {"n0": 3}


def test_rules_of_a_pods_own_take_the_place_of_the_default() -> None:
    world = world_of()
    world.engine.state.classes.workloads.put("Service", "default", "web", WEB)
    rule = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": WEB}}
    assert one_by_one(world, *[web(f"p{i}", topologySpreadConstraints=[rule]) for i in range(3)]) == {"n0": 3}


def test_services_of_other_namespaces_and_other_pods_mean_nothing() -> None:
    world = world_of()
    put = world.engine.state.classes.workloads.put
    put("Service", "elsewhere", "web", WEB)
    put("Service", "default", "api", {"app": "api"})
    put("Service", "default", "all", {})
    put("Service", "default", "external", None)
    assert one_by_one(world, *[web(f"p{i}", owner="gone") for i in range(3)]) == {"n0": 3}


def test_a_service_that_comes_while_pods_wait_spreads_them() -> None:
    world = World(SPREADS % 2)
    world.add(web("p0"), web("p1"))
    world.settle(2)
    world.engine.state.classes.workloads.put("Service", "default", "web", WEB)
    world.add(node("n0"), node("n1"))
    world.settle(2)
    assert {world.node_of("p0"), world.node_of("p1")} == {"n0", "n1"}


def test_the_daemon_follows_services_and_controllers() -> None:
    async def story() -> None:
        nodes = [node("n0", labels={ZONE: "a"}), node("n1", labels={ZONE: "b"})]
        async with daemon(*nodes, conf=SPREADS % 2) as running:
            service = {"metadata": {"name": "web"}, "spec": {"selector": WEB, "ports": [{"port": 80}]}}
            await running.cluster.create(kinds.SERVICES, service, "default")
            await running.clock.sleep(1)
            for i in range(2):
                await create(running.cluster, web(f"p{i}"))
                await running.bind_all(f"p{i}")
            pods = await running.cluster.pods()
            assert {pods[f"p{i}"]["spec"]["nodeName"] for i in range(2)} == {"n0", "n1"}

    run_virtually(story())
