"""Room on nodes of many pods: it is found however many there are, whatever votes, and nobody goes who need not."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import budget, group, node, pod, queue
from kit.room_worlds import ACTIONS, BUNDLES, capacity, full, gone, room_conf

Json = dict[str, Any]

SIZES = [(30, 3), (90, 2), (110, 1), (110, 5), (150, 16), (200, 40)]
"""Pods of one CPU on a node, and CPUs of the pod that comes."""
BUDGETS = room_conf("enqueue, allocate, preempt", spares_gangs="false").replace(
    "  - name: conformance\n", "  - name: conformance\n  - name: pdb\n    enablePreemptable: %s\n"
)
ELASTIC = room_conf(ACTIONS, spares_gangs="true", more="  - name: nodeorder\n")
RECLAIM = [
    capacity("gang", tree=tree, actions="enqueue, allocate, reclaim").replace("gang\n", "gang\n    enableReclaimable: false\n")
    for tree in (False, True)
]  # fmt: skip
GUARDED = {"app": "guarded"}


def crowded(world: World, pods: list[Json], *, cpus: int) -> World:
    """One node that has that many CPUs, and pods that hold all of them."""
    return full(world, node("n1", cpu=str(cpus), pods=300, memory="900Gi"), *pods)


@pytest.mark.parametrize(("number", "wanted"), SIZES)
def test_room_is_found_beside_pods_that_a_budget_keeps(number: int, wanted: int) -> None:
    world = World(BUDGETS % "true")
    world.add(budget("some", GUARDED, 1))
    pods = [pod(f"p{at}", cpu="1", priority=1, labels=GUARDED if at % 2 else None) for at in range(number)]
    crowded(world, pods, cpus=number)
    world.add(pod("high", cpu=str(wanted), priority=10))
    world.settle(3)
    assert len(gone(world)) == wanted
    assert sum(int(name[1:]) % 2 for name in gone(world)) <= 1
    assert world.node_of("high") == "n1"


@pytest.mark.parametrize(("number", "wanted"), SIZES)
def test_no_budget_is_broken_where_others_can_go(number: int, wanted: int) -> None:
    world = World(BUDGETS % "false")
    world.add(budget("some", GUARDED, 0))
    pods = [pod(f"p{at}", cpu="1", priority=1 + at % 2, labels=None if at % 2 else GUARDED) for at in range(number)]
    crowded(world, pods, cpus=number)
    world.add(pod("high", cpu=str(wanted), priority=10))
    world.settle(3)
    assert len(gone(world)) == wanted
    assert all(int(name[1:]) % 2 for name in gone(world)), "they are more important, and no budget guards them"


@pytest.mark.parametrize(("number", "wanted"), SIZES)
def test_elastic_gangs_give_what_they_have_beyond_their_minimum(number: int, wanted: int) -> None:
    world = World(ELASTIC)
    pods = []
    for first in range(0, number, 10):
        members = min(10, number - first)
        pods += [group(f"g{first}", minimum=members // 2 + 1)]
        pods += [pod(f"g{first}-w-{at}", cpu="1", priority=1, group=f"g{first}") for at in range(members)]
    crowded(world, pods, cpus=number)
    world.add(pod("high", cpu=str(wanted), priority=10), group("high", minimum=1))
    world.settle(3)
    assert len(gone(world)) == wanted
    assert world.node_of("high") == "n1"


@pytest.mark.parametrize("tree", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize(("number", "wanted"), SIZES)
def test_a_queue_gets_back_what_others_borrowed_though_one_of_them_owes_little(number: int, wanted: int, tree: bool) -> None:
    """``bit`` holds one pod more than it deserves, ``most`` all the rest of the node."""
    world = World(RECLAIM[tree])
    third, root = number // 3, {"parent": "root"} if tree else {}
    shares = {"bit": third, "most": 0, "due": number - third}
    world.add(queue("root"), *(queue(name, deserved={"cpu": str(share)}, **root) for name, share in shares.items()))
    held = [*["bit"] * (third + 1), *["most"] * (number - third - 1)]
    crowded(world, [pod(f"{name}-{at}", cpu="1", queue=name) for at, name in enumerate(held)], cpus=number)
    world.add(pod("high", cpu=str(wanted), queue="due"))
    world.settle(3)
    assert len(gone(world)) == wanted
    assert sum(name.startswith("bit") for name in gone(world)) <= 1
    assert world.node_of("high") == "n1"


@pytest.mark.parametrize("others", [5, 40, 180])
def test_who_alone_stands_in_the_way_is_found_among_many_who_are_less_important(others: int) -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "blocker"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}}  # fmt: skip
    for more, claim in (
        ({"labels": {"app": "blocker"}}, {"affinity": apart}),
        ({"containers": [_with_port(8080)]}, {"containers": [_with_port(8080)]}),
    ):
        world = World(BUNDLES)
        crowded(world, [pod(f"p{at}", cpu="1", priority=0) for at in range(others)], cpus=others + 9)
        full(world, pod("blocker", priority=1, cpu="1", **more))
        world.add(pod("high", priority=10, cpu="1", **claim))
        world.settle(3)
        assert gone(world) == {"blocker"}
        assert world.node_of("high") == "n1"


def _with_port(port: int) -> Json:
    return {"name": "c", "image": "x", "ports": [{"containerPort": port, "hostPort": port}]}


def test_spare_pods_of_an_elastic_gang_go_before_a_gang_that_falls() -> None:
    world = World(BUNDLES)
    firm = [group("firm", minimum=50), *(pod(f"firm-w-{at}", cpu="2", group="firm") for at in range(50))]
    spare = [group("spare", minimum=1), *(pod(f"spare-w-{at}", cpu="1", group="spare") for at in range(3))]
    full(world, node("n1", cpu="103", pods=300), *firm, *spare)
    world.add(pod("high", priority=10, cpu="2"))
    world.settle(3)
    assert len(gone(world)) == 2
    assert all(name.startswith("spare") for name in gone(world))


def test_of_gangs_that_fall_the_one_of_fewer_pods_goes() -> None:
    world = World(BUNDLES)
    pods = []
    for name, size in (("large", 30), ("small", 2), ("least", 2)):
        cpu = "3" if name == "large" else "1"
        pods += [group(name, minimum=size), *(pod(f"{name}-w-{at}", cpu=cpu, group=name) for at in range(size))]
    full(world, node("n1", cpu="94", pods=300), *pods)
    world.add(pod("high", priority=10, cpu="3"))
    world.settle(3)
    assert gone(world) == {f"{name}-w-{at}" for name in ("small", "least") for at in range(2)}
