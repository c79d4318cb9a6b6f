"""Pods that ask for an extended resource in whose place a DeviceClass stands: the scheduler makes the claim, as upstream does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.claims import published, shared_card
from kit.device_claims import GPU, ClaimWorld, cards
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf

from pumice.claims.by_resource import Asking, by_resource

Json = dict[str, Any]
RESOURCE = "example.com/gpu"


def standing(name: str = "gpu", resource: str = RESOURCE, **meta: Any) -> Json:
    return {"kind": "DeviceClass", "metadata": {"name": name, **meta}, "spec": {"extendedResourceName": resource}}


def world_with(text: str = conf("gang", "predicates"), nodes: int = 1, each: int = 2) -> ClaimWorld:
    world = ClaimWorld(text)
    world.publish(standing())
    for at in range(nodes):
        world.add(node(f"n{at}"))
        world.publish(cards(f"n{at}", each))
    return world


def ask(world: ClaimWorld, name: str, number: int = 1, resource: str = RESOURCE, **more: Any) -> str:
    world.add(pod(name, limits={resource: str(number)}, **more))
    world.settle()
    return world.node_of(name)


def made_for(world: ClaimWorld, name: str) -> list[Json]:
    uid = world.pods[f"default/{name}"]["metadata"]["uid"]
    return [obj for obj in world.claims.values() if any(one["uid"] == uid for one in obj["metadata"].get("ownerReferences", ()))]


def test_a_pod_gets_a_claim_and_its_node_and_the_third_of_two_cards_waits() -> None:  # acceptance case 25, on a node of a driver
    world = world_with()
    assert [ask(world, name) for name in "abc"] == ["n0", "n0", ""]
    (made,) = made_for(world, "a")
    assert made["metadata"]["name"].startswith("a-extended-resources-")
    assert made["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (request,) = made["spec"]["devices"]["requests"]
    assert request == {"name": "container-0-request-0",
                       "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}  # fmt: skip
    assert [one["name"] for one in made["status"]["reservedFor"]] == ["a"]
    uid = world.pods["default/a"]["metadata"]["uid"]
    assert world.mapped[uid] == [
        {"containerName": "main", "resourceName": RESOURCE, "requestName": "container-0-request-0"}
    ]
    assert "cannot allocate all claims" in world.condition("c")["message"]
    world.delete_pod("a")
    world.settle()
    assert world.node_of("c") == "n0"


def test_a_node_that_offers_the_resource_itself_needs_no_claim_and_holds_no_more_than_it_offers() -> None:  # case 25
    world = ClaimWorld(conf("gang", "predicates"))
    world.publish(standing())
    world.add(node("plugin", extra={RESOURCE: "2"}))
    assert [ask(world, name) for name in "abc"] == ["plugin", "plugin", ""]
    assert world.claims == {}
    world.add(node("n0"))
    world.publish(cards("n0", 1))
    world.settle()
    assert world.node_of("c") == "n0"
    assert len(made_for(world, "c")) == 1
    assert ask(world, "d") == ""


def test_a_gang_takes_all_its_devices_or_makes_no_claim() -> None:
    world = world_with()
    world.add(group("gang", minimum=3))
    world.add(*(pod(f"g{at}", limits={RESOURCE: "1"}, group="gang") for at in range(3)))
    world.settle()
    assert world.claims == {}
    world.add(node("n1"))
    world.publish(cards("n1", 1))
    world.settle()
    assert len([world.node_of(f"g{at}") for at in range(3) if world.node_of(f"g{at}")]) == 3


def test_a_class_that_comes_later_and_one_that_goes_change_what_a_waiting_pod_is() -> None:
    world = ClaimWorld(conf("gang", "predicates"))
    world.add(node("n0"))
    world.publish(cards("n0", 1))
    assert ask(world, "a") == ""
    assert "example.com/gpu" in world.condition("a")["message"]
    world.publish(standing())
    world.settle()
    assert world.node_of("a") == "n0"
    assert ask(world, "b") == ""
    world.withdraw("DeviceClass", "gpu")
    world.publish(cards("n0", 2))
    world.settle()
    assert world.node_of("b") == ""


def test_a_resource_that_is_named_after_a_class_stands_for_it() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    world = ClaimWorld(conf("gang", "predicates"))
    world.add(node("n0"))
    world.publish(cards("n0", 1))
    assert ask(world, "a", resource=name) == ""
    assert "there is no device class gpu" in world.condition("a")["message"]
    world.publish(GPU)
    world.settle()
    assert world.node_of("a") == "n0"
    assert made_for(world, "a")[0]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"


@pytest.mark.parametrize(("classes", "chosen"), [
    ([("old", "2026-01-01T00:00:00Z"), ("new", "2026-02-01T00:00:00Z")], "new"),
    ([("new", "2026-02-01T00:00:00Z"), ("old", "2026-01-01T00:00:00Z")], "new"),
    ([("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")], "a"),
])  # fmt: skip
def test_of_two_classes_for_one_resource_the_newer_one_stands_for_it(classes: list[tuple[str, str]], chosen: str) -> None:
    world = ClaimWorld(conf("gang", "predicates"))
    world.add(node("n0"))
    world.publish(cards("n0", 1), *(standing(name, creationTimestamp=made) for name, made in classes))
    assert ask(world, "a") == "n0"
    assert made_for(world, "a")[0]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == chosen


def test_of_a_shared_card_one_unit_takes_the_default() -> None:
    world = ClaimWorld(conf("gang", "predicates"))
    world.add(node("n0"))
    world.publish(standing(), {"kind": "ResourceSlice", **published(shared_card(), pool="n0", nodeName="n0")})
    assert [ask(world, name) for name in "ab"] == ["n0", ""]
    (result,) = made_for(world, "a")[0]["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": "80Gi", "cores": "100"}


def test_a_queue_pays_for_the_devices_of_such_a_claim() -> None:
    world = world_with(conf("gang", "predicates", "capacity"), each=3)
    world.add(queue("team", capability={"deviceclass/gpu": "2"}))
    assert [ask(world, name, queue="team") for name in "abc"] == ["n0", "n0", ""]
    assert "deviceclass/gpu: 1 wanted, 2 of 2 in use" in world.condition("c")["message"]


def test_a_successor_goes_on_with_the_claim_that_was_made_before_a_kill() -> None:
    """Killed between the claim and its status, and between the status and the Binding."""
    for step in ("made", "allocated"):
        world = world_with()
        world.refuse_claim = lambda bind: True
        ask(world, "a")
        assert world.node_of("a") == ""
        bind = next(one for one in world.bindings if one.name == "a")
        (one,) = bind.device_claims
        made = json.loads(json.dumps(one.made))
        if step == "allocated":
            made["status"] = {"allocation": one.allocation, "reservedFor": [{"resource": "pods", "name": "a", "uid": bind.uid}]}
        world.publish(made)
        world.refuse_claim = lambda bind: False
        world.engine = world.restarted()
        for _ in range(5):
            world.settle()
        assert world.node_of("a") == "n0"
        assert len(made_for(world, "a")) == 1
        assert len(world.devices_of(made["metadata"]["name"])) == 1


def test_a_refused_write_leaves_the_device_to_the_next_try() -> None:
    world = world_with(each=1)
    refused = [True]
    world.refuse_claim = lambda bind: refused.pop() if refused else False
    ask(world, "a")
    world.now += 60
    world.settle()
    assert world.node_of("a") == "n0"
    assert len(world.claims) == 1


SERVES = {RESOURCE: "gpu", "example.com/nic": "nic"}


def requests_of(*containers: Asking) -> tuple[list[tuple[str, str, int]], list[tuple[str, str]]]:
    found = by_resource(containers, SERVES.get)
    assert found is not None
    return list(found.requests), [(one.container, one.request) for one in found.mappings]


def test_requests_are_named_by_container_and_place_of_the_resource() -> None:
    first = Asking("a", {"cpu": 1, RESOURCE: 2, "memory": 5})
    requests, mappings = requests_of(first, Asking("b", {"example.com/nic": 1, RESOURCE: 1}), Asking("c", {"cpu": 1}))
    assert requests == [("container-0-request-1", "gpu", 2), ("container-1-request-0", "gpu", 1),
                        ("container-1-request-1", "nic", 1)]  # fmt: skip
    assert sorted(mappings) == [("a", "container-0-request-1"), ("b", "container-1-request-0"), ("b", "container-1-request-1")]


def test_init_containers_that_end_use_devices_of_the_others_again_and_the_largest_rest_is_asked_once() -> None:
    requests, mappings = requests_of(
        Asking("first", {RESOURCE: 3}, short=True), Asking("second", {RESOURCE: 5}, short=True), Asking("main", {RESOURCE: 2})
    )
    assert requests == [("container-1-request-0", "gpu", 3), ("container-2-request-0", "gpu", 2)]
    assert mappings == [("main", "container-2-request-0"), ("first", "container-2-request-0"), ("first", "container-1-request-0"),
                        ("second", "container-2-request-0"), ("second", "container-1-request-0")]  # fmt: skip


def test_sidecars_before_an_init_container_lend_it_nothing() -> None:
    sidecar, init = Asking("sidecar", {RESOURCE: 1}), Asking("init", {RESOURCE: 1}, short=True)
    requests, _ = requests_of(sidecar, init, Asking("main", {"cpu": 1}))
    assert requests == [("container-0-request-0", "gpu", 1), ("container-1-request-0", "gpu", 1)]


@pytest.mark.parametrize("amount", ["500m", "0", "nonsense", "-1", "1e30"])
def test_amounts_that_are_no_number_of_devices_make_no_claim_and_end_no_cycle(amount: str) -> None:
    world = world_with()
    world.add(pod("odd", limits={RESOURCE: amount}))
    world.settle()
    assert world.claims == {}
    assert ask(world, "a") == "n0"
