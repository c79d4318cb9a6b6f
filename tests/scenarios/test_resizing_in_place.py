"""A pod that is resized in place takes the larger of what it shall have and what it has, until the kubelet has done it."""

from __future__ import annotations

from typing import Any

import pytest
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.objects import node, pod, queue

Json = dict[str, Any]


def show(world: World, *, wants: str, has: str = "", admitted: str = "", refused: bool = False, sidecar: bool = False) -> None:
    """The object of the resized pod: its spec, and what the kubelet says of its container."""
    obj = world.pods["default/p"]
    container = obj["spec"]["initContainers" if sidecar else "containers"][0]
    container["resources"] = {"requests": {"cpu": wants}}
    said: Json = {"name": container["name"]}
    if has:
        said["resources"] = {"requests": {"cpu": has}}
    if admitted:
        said["allocatedResources"] = {"cpu": admitted}
    obj["status"] = {"phase": "Running", "initContainerStatuses" if sidecar else "containerStatuses": [said]}
    if refused:
        obj["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    world.add(obj)


def world_with(cpu: str, *, sidecar: bool = False) -> World:
    world = World()
    world.add(node("n1", cpu="4"), queue("q", capability={"cpu": "4"}))
    made = pod("p", cpu=cpu, nodeName="n1", queue="q")
    if sidecar:
        made["spec"]["initContainers"] = [{**made["spec"]["containers"][0], "name": "side", "restartPolicy": "Always"}]
        made["spec"]["containers"][0]["resources"] = {}
    world.add(made)
    return world


CASES = {
    "shrinks, and has not yet": ({"wants": "1", "has": "3", "admitted": "3"}, 3),
    "shrinks, admitted and not done": ({"wants": "1", "has": "3", "admitted": "1"}, 3),
    "shrinks, done": ({"wants": "1", "has": "1", "admitted": "1"}, 1),
    "grows, and has not yet": ({"wants": "3", "has": "1", "admitted": "1"}, 3),
    "grows, admitted and not done": ({"wants": "3", "has": "1", "admitted": "3"}, 3),
    "grows beyond the node, which refuses": ({"wants": "64", "has": "1", "admitted": "1", "refused": True}, 1),
    "an older kubelet, which says nothing": ({"wants": "2"}, 2),
    "written in another way": ({"wants": "2", "has": "2000m", "admitted": "2"}, 2),
    "not a quantity": ({"wants": "2", "has": "much", "admitted": "2"}, 2),
}


@pytest.mark.parametrize("sidecar", [False, True], ids=["container", "sidecar"])
@pytest.mark.parametrize("case", CASES)
def test_a_pod_takes_the_larger_of_what_it_shall_have_and_has(case: str, sidecar: bool) -> None:
    shown, taken = CASES[case]
    world = world_with("2", sidecar=sidecar)
    show(world, **shown, sidecar=sidecar)
    state = world.engine.state
    table = state.ledger.table
    assert table.used[table.row_of["n1"], table.dim("cpu")] == taken * 1000
    assert state.queues["q"].allocated["cpu"] == taken * 1000
    assert fingerprint(world.restarted().state.ledger) == fingerprint(state.ledger)


def test_who_waits_for_the_room_goes_when_the_kubelet_has_made_it() -> None:
    world = world_with("3")
    world.add(pod("w", cpu="3", queue="q"))
    world.settle()
    show(world, wants="1", has="3", admitted="3")
    world.settle()
    assert world.node_of("w") == ""
    show(world, wants="1", has="1", admitted="1")
    world.settle(1)
    assert world.node_of("w") == "n1"


def test_a_pod_with_resources_of_its_own_takes_the_larger_of_them() -> None:
    world = world_with("1")
    obj = world.pods["default/p"]
    obj["spec"]["resources"] = {"requests": {"cpu": "1"}}
    obj["status"] = {"phase": "Running", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}
    world.add(obj)
    table = world.engine.state.ledger.table
    assert table.used[table.row_of["n1"], table.dim("cpu")] == 3000
